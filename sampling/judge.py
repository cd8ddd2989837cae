"""Processor and verdict of a round as one function of fixed shapes, which a graph can hold."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sampling.forward.runner import Runner
from sampling.forward.static import StaticRunner
from sampling.forward.tree import Parents
from sampling.proposal import Proposal
from sampling.verifier import Verdict, Verifier, follows_best, packet_of_best, told
from utils.coins import Asked, Coins, Drawn, Noted, drawn
from utils.graphed import Tensors
from utils.logits_processor import LogitsProcessor

_PARTS = ("probs", "first", "chances")


@dataclass(frozen=True, slots=True)
class _Form:
    """Which parts a proposal has; a graph is made for each."""

    tree: bool
    parts: tuple[str, ...]

    @classmethod
    def of(cls, proposal: Proposal) -> "_Form":
        return cls(proposal.parents is not None, tuple(name for name in _PARTS if getattr(proposal, name) is not None))

    def tensors(self, proposal: Proposal, device: torch.device) -> Tensors:
        """The parts as tensors where the drafts are judged."""
        given = [proposal.tokens, *([proposal.parents_on(device)] if self.tree else [])]
        return *given, *(getattr(proposal, name).to(device) for name in self.parts)

    def proposal(self, tokens: Tensor, *rest: Tensor) -> Proposal:
        """The proposal of these tensors."""
        parents = Parents(rest[0]) if self.tree else None
        given = dict(zip(self.parts, rest[self.tree :], strict=True))
        return Proposal(tokens, parents, given.get("probs"), given.get("first"), given.get("chances"))


class Judge:
    """Judges the rounds of a text. Where its target's forwards are graphs, the processor and the verdict are one too.

    The numbers that a verdict rests on are drawn before it, in the order in which it asks for them: the first round of
    a form is judged without a graph and tells which. So verdicts are the same with a graph and without.
    """

    def __init__(self, target: Runner, verifier: Verifier, processor: LogitsProcessor) -> None:
        self._target = target if isinstance(target, StaticRunner) and _plain(verifier, processor) else None
        self._verifier, self._processor = verifier, processor
        self._follows = follows_best(verifier, processor)
        self._asked: dict[tuple[_Form, int], list[Asked]] = {}

    def __call__(self, proposal: Proposal, logits: Tensor, rng: torch.Generator) -> Verdict:
        """The verdict from raw logits `[n + 1, V]`. Raises `UserError` as `Verifier.verify` does."""
        if self._target is None or not self._fixed(proposal):
            if self._follows:
                return told(proposal, packet_of_best(proposal, logits).tolist())
            return self._verifier.verify(proposal, self._processor(logits), rng)
        form = _Form.of(proposal)
        asked = self._asked.get((form, len(proposal)))
        given = logits, *form.tensors(proposal, logits.device)
        if asked is None:
            noted = Noted(rng)
            (found,) = _judged(self._verifier, self._processor, form, noted, *given)
            self._asked[form, len(proposal)] = noted.asked
        else:
            key = "judge", _about(self._verifier), _about(self._processor), form
            function = partial(_with_coins, self._verifier, self._processor, form, len(given))
            (found,) = self._target.graph(key, function)(*given, *drawn(asked, rng, logits.device))
        return told(proposal, found.tolist())

    def _fixed(self, proposal: Proposal) -> bool:
        """Whether the verdict asks nothing of the host; that on a tree of drawn drafts goes draft by draft."""
        asks = self._verifier.reads_trees or (proposal.probs is not None and not self._follows)
        return proposal.parents is None or not asks


def _judged(
    verifier: Verifier, processor: LogitsProcessor, form: _Form, coins: Coins, logits: Tensor, *given: Tensor
) -> Tensors:
    """The packet of a round."""
    proposal = form.proposal(*given)
    if follows_best(verifier, processor):
        return (packet_of_best(proposal, logits),)
    return (verifier.packet(proposal, processor(logits), coins),)


def _with_coins(verifier: Verifier, processor: LogitsProcessor, form: _Form, count: int, *inputs: Tensor) -> Tensors:
    """The same, its numbers being the inputs behind the first `count`."""
    return _judged(verifier, processor, form, Drawn(inputs[count:]), *inputs[:count])


def _about(part: Any) -> tuple[Any, ...]:
    """What a verifier or processor depends on: two that agree in it share a graph."""
    return type(part), tuple(sorted(vars(part).items()))


def _plain(*parts: Any) -> bool:
    """Whether all parts are told apart by plain values; others look at what they are called with, or hold state."""
    return all(isinstance(value, bool | int | float | str | tuple) for part in parts for value in vars(part).values())

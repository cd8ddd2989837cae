"""Processor and verdict of a round as one function of fixed shapes, which a graph can hold."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from sampling.block import BlockVerifier
from sampling.chains import Chains
from sampling.forward.runner import Runner
from sampling.forward.static import StaticRunner
from sampling.forward.tree import Parents
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from sampling.traversal import TraversalVerifier
from sampling.verifier import (
    GreedyVerifier,
    RejectionVerifier,
    TargetMatchVerifier,
    Verdict,
    Verifier,
    best_of,
    follow_many,
    packet_of_best,
    packets_of_chains,
    told,
    told_of_chains,
)
from utils.coins import Asked, Coins, Drawn, Noted, Source, drawn
from utils.graphed import Tensors
from utils.logits_processor import GreedyProcessor, LogitsProcessor

_FOLLOWING = (RejectionVerifier, BlockVerifier, TraversalVerifier, TargetMatchVerifier, GreedyVerifier)
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

    def __call__(self, proposal: Proposal, logits: Tensor, coins: Source) -> Verdict:
        """The verdict from raw logits `[n + 1, V]`. Raises `UserError` as `Verifier.verify` does."""
        if self._target is None or not self._fixed(proposal):
            if self._follows:
                return told(proposal, packet_of_best(proposal, logits).tolist())
            return self._verifier.verify(proposal, self._processor(logits), coins)
        form = _Form.of(proposal)
        asked = self._asked.get((form, len(proposal)))
        given = logits, *form.tensors(proposal, logits.device)
        if asked is None:
            noted = Noted(coins)
            (found,) = _judged(self._verifier, self._processor, form, noted, *given)
            self._asked[form, len(proposal)] = noted.asked
        else:
            key = "judge", _about(self._verifier), _about(self._processor), form
            function = partial(_with_coins, self._verifier, self._processor, form, len(given))
            (found,) = self._target.graph(key, function)(*given, *drawn(asked, coins, logits.device))
        return told(proposal, found.tolist())

    def _fixed(self, proposal: Proposal) -> bool:
        """Whether the verdict asks nothing of the host; that on a tree of drawn drafts goes draft by draft."""
        asks = self._verifier.reads_trees or (proposal.probs is not None and not self._follows)
        return proposal.parents is None or not asks


def judge_many(
    verifier: Verifier, seqs: Collection[Sequence], proposals: Collection[Proposal], logits: Collection[Tensor]
) -> list[Verdict]:
    """The verdict on each sequence's proposal from its raw logits `[n + 1, V]`: all are read together.

    Sequences that share a processor go through it together, row by row as ever. Raises `UserError` as `Verifier.verify`
    does.
    """
    rounds = [_Judging(place, *one) for place, one in enumerate(zip(seqs, proposals, logits, strict=True))]
    groups = [
        _Group(
            verifier, processor, some, Chains([one.proposal for one in some], some[0].logits.device) if many else None
        )
        for processor in {id(seq.processor): seq.processor for seq in seqs}.values()
        for many, some in _alike(verifier, [one for one in rounds if one.seq.processor is processor])
    ]
    packets = [group.packet() for group in groups]
    numbers, verdicts = iter(torch.cat(packets).tolist()), dict[int, Verdict]()
    for group, packet in zip(groups, packets, strict=True):
        found = group.told([*islice(numbers, len(packet))])
        verdicts.update(zip((one.place for one in group.rounds), found, strict=True))
    return [verdicts[place] for place in range(len(rounds))]


@dataclass(frozen=True, slots=True)
class _Judging:
    """A round that is judged with others, and its number among them."""

    place: int
    seq: Sequence
    proposal: Proposal
    logits: Tensor


def _alike(verifier: Verifier, rounds: Collection[_Judging]) -> Iterator[tuple[bool, list[_Judging]]]:
    """Those of one processor: chains that can be judged at once, drawn ones and point masses apart; then each other."""
    at_once = _decides_many(verifier)
    groups: dict[bool, list[_Judging]] = {}
    for one in rounds:
        if one.proposal.parents is not None or not at_once:
            yield False, [one]
        else:
            groups.setdefault(one.proposal.probs is not None, []).append(one)
    yield from ((True, some) for some in groups.values())


def _decides_many(verifier: Verifier) -> bool:
    """Whether what it says of many chains is what it says of one: a class that overrides one of both is asked that."""
    kinds = type(verifier).__mro__
    owners = [next(kind for kind in kinds if name in vars(kind)) for name in ("decide", "decide_many")]
    return owners[0] is owners[1]


@dataclass(frozen=True, slots=True)
class _Group:
    """Rounds of one processor: those of `chains`, which are judged at once, or a round alone."""

    verifier: Verifier
    processor: LogitsProcessor
    rounds: list[_Judging]
    chains: Chains | None

    def packet(self) -> Tensor:
        """What the host has to know of them."""
        logits = torch.cat([one.logits for one in self.rounds]) if len(self.rounds) > 1 else self.rounds[0].logits
        follows, proposal, draws = follows_best(self.verifier, self.processor), self.rounds[0].proposal, self._draws
        chains = self.chains
        if chains is None:
            if follows:
                return packet_of_best(proposal, logits)
            return self.verifier.packet(proposal, self.processor(logits), draws[0])
        if follows:
            best, sure = best_of(logits)
            decision = follow_many(chains, best)
            p_x = sure.index_select(0, chains.rows)
            p_x = p_x - (best.index_select(0, chains.rows) != chains.tokens).float()
            chosen = sure.index_select(0, chains.roots + decision.end + 1)
        else:
            p = self.processor(logits)
            found = self.verifier.decide_many(chains, p, draws)
            assert found is not None
            decision, p_x = found, p[chains.rows, chains.tokens]
            chosen = p[chains.roots + decision.end + 1, decision.token]
        return torch.cat(packets_of_chains(chains, decision, chosen, p_x))

    def told(self, numbers: list[float]) -> list[Verdict]:
        """Their verdicts, once the packet was read."""
        if self.chains is None:
            return [told(self.rounds[0].proposal, numbers)]
        return told_of_chains(self.chains, numbers)

    @property
    def _draws(self) -> list[Source]:
        return [one.seq.draws for one in self.rounds]


def follows_best(verifier: Verifier, processor: LogitsProcessor) -> bool:
    """Whether the verdict is the way along the best tokens whatever is drawn, as of all of ours under greedy.

    A class of somebody else's may judge otherwise, and is asked.
    """
    return type(processor) is GreedyProcessor and type(verifier) in _FOLLOWING


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

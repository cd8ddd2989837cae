"""DSpark drafts: a block is filled in one pass, and a low-rank matrix makes a chain of its rows."""

from collections import abc
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from sampling.drafters.best_first import BestFirst
from sampling.drafters.draft_tree import TreeShape
from sampling.drafters.forward_drafter import ForwardDrafter
from sampling.forward.asked import Asking
from sampling.forward.int8 import Int8Linear
from sampling.heads.one_pass_forward import OnePassForward, OnePassRunner
from sampling.heads.one_pass_sharing import SharedOnePass
from sampling.sequence import Sequence
from utils.events import Round
from utils.sent import sent


@dataclass(slots=True)
class _Block:
    """What is kept for a sequence: its rows in the head's cache, what is not injected yet, and the block of the round.

    known: how many positions of the text have shown their states. state, logits: `[steps, H]` and `[steps, V]`, the
    block before the Markov head. place: the row that what was fed last is drafted from. acceptance: `[k]`, what the
    confidence head says of it.
    """

    rows: OnePassRunner
    text: list[Tensor] = field(default_factory=list)
    known: int = 0
    state: Tensor = field(default_factory=lambda: torch.empty(0))
    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    place: int = 0
    acceptance: Tensor | None = None


class DsparkDrafter(ForwardDrafter):
    """DSpark (arXiv 2607.05147) on DFlash's backbone (2602.06036): one forward a round, whatever its length.

    Its cache has rows of the text alone, from states that the target has computed; those of a block are overwritten by
    whatever comes next. Given the drafts before it, a draft is drawn from q_k = softmax(U_k + W1[x_{k-1}] W2).
    """

    method = "dspark"

    def __init__(
        self,
        forward: OnePassForward,
        shape: TreeShape | BestFirst | None = None,
        cached: bool = True,
        rows: abc.Callable[[], OnePassRunner] | None = None,
    ) -> None:
        self.needs_hidden, self.shape = tuple(forward.config.features), shape
        self._forward, self._cached = forward, cached
        self._rows = rows or partial(OnePassRunner, forward)

    @classmethod
    def build(cls, pair: Any, values: abc.Mapping[str, Any]) -> Self:
        head = pair.head(cls.method)
        forward = OnePassForward.of(head, pair.target.model)
        if pair.drafts_in_int8(cls.method, values["draft_weights"]):
            forward = forward.with_kernel(Int8Linear)
        rows = SharedOnePass(forward).another if pair.share else None
        return cls(forward, cls.shape_of(head.config, values), pair.cached, rows)

    def begin(self, seq: Sequence) -> None:
        block = seq.drafting[self] = _Block(self._rows())
        self._learn(seq)
        if self._cached:
            self._inject(block)

    def observe(self, seq: Sequence, round: Round) -> None:
        self._learn(seq)

    def mark(self, seq: Sequence) -> abc.Callable[[], None]:
        block: _Block = seq.drafting[self]
        rows, text, known = block.rows.length, block.text.copy(), block.known

        def forget() -> None:
            block.rows.crop(rows)
            block.text, block.known = text, known

        return forget

    def room(self, seq: Sequence) -> int:
        block: _Block = seq.drafting[self]
        unseen = len(seq.tokens) - 1 - block.known
        steps: int = self._forward.config.steps
        return min(steps - unseen, self._forward.window - len(seq.tokens))

    def ahead(self, seq: Sequence, depth: int) -> Asking[Tensor]:
        """Raw logits `[depth, V]` of the next places, whatever is drafted between: before the Markov head."""
        block: _Block = seq.drafting[self]
        yield from self._fill(seq)
        return block.logits[block.place : block.place + depth]

    def root(self, seq: Sequence) -> Asking[Tensor]:
        yield from self._fill(seq)
        block: _Block = seq.drafting[self]
        return self._behind(block, sent(seq.tokens[-1:], block.logits.device))

    def feed(self, seq: Sequence, tokens: Tensor, parents: Tensor | None = None) -> Asking[Tensor]:
        yield from ()
        block: _Block = seq.drafting[self]
        block.place += 1
        return self._behind(block, tokens)

    def acceptance(self, seq: Sequence) -> Tensor | None:
        acceptance: Tensor | None = seq.drafting[self].acceptance
        return acceptance

    def _fill(self, seq: Sequence) -> Asking[None]:
        """The block of this round. Tokens whose states nobody has shown are taken for drafts of it."""
        block: _Block = seq.drafting[self]
        if not self._cached:
            block.rows.crop(0)
        self._inject(block)
        anchor = sent(seq.tokens[block.known : block.known + 1], self._forward.mask.device)
        block.state = yield from block.rows.block(anchor)
        block.logits = self._forward.output(block.state)
        block.place = len(seq.tokens) - 1 - block.known

    def _behind(self, block: _Block, tokens: Tensor) -> Tensor:
        """Raw logits `[k, V]` behind tokens `[k]` of one depth."""
        row = slice(block.place, block.place + 1)
        block.acceptance = self._forward.acceptance(block.state[row], tokens)
        logits = block.logits[row].expand(len(tokens), -1)
        return logits if self._forward.markov is None else logits + self._forward.markov(tokens)

    def _inject(self, block: _Block) -> None:
        if block.text:
            block.rows.inject(torch.cat(block.text))
        if self._cached:
            block.text = []

    def _learn(self, seq: Sequence) -> None:
        """Take the states of the positions that were just committed."""
        if seq.hidden and len(seq.hidden[self.needs_hidden[0]]):
            states, block = [seq.hidden[layer] for layer in self.needs_hidden], seq.drafting[self]
            block.text.append(self._forward.read(states))
            block.known += len(states[0])

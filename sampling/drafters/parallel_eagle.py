"""P-EAGLE drafts: a block over the target's states fills all places of a round in one forward."""

from collections import abc
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from egag.controller import GammaController
from sampling.drafters.best_first import BestFirst
from sampling.drafters.draft_tree import TreeShape
from sampling.drafters.forward_drafter import ForwardDrafter
from sampling.drafters.recurrent import forward_and_rows
from sampling.events import Round
from sampling.forward.asked import Asking
from sampling.heads.inference import RecurrentForward, RecurrentRunner
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.sent import sent


@dataclass(slots=True)
class _Filling:
    """What is kept for a sequence: its rows in the head's cache, and features of the target that are not fed yet.

    known: how many positions of the text have shown their features. most: places that the rule has in this round, where
    it was asked. logits: `[k, V]`, of the places from `first` on. place: the one that is drafted next.
    """

    rows: RecurrentRunner
    features: list[Tensor] = field(default_factory=list)
    known: int = 0
    most: int | None = None
    logits: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    first: int = 0
    place: int = 0


class ParallelEagleDrafter(ForwardDrafter):
    """P-EAGLE (arXiv 2602.01469): what stands in each place, whatever stands between.

    Its cache has rows of the text only; mask rows never outlive their forward. Where the text is longer than what
    the target has shown states of, the first places are passed over.
    """

    method = "parallel_eagle"

    def __init__(
        self,
        forward: RecurrentForward,
        shape: TreeShape | BestFirst | None = None,
        cached: bool = True,
        rows: abc.Callable[[], RecurrentRunner] | None = None,
    ) -> None:
        self.needs_hidden = tuple(forward.config.features)
        self.shape = shape
        self._forward, self._cached = forward, cached
        self._rows = rows or partial(RecurrentRunner, forward)

    @classmethod
    def build(cls, pair: Any, values: abc.Mapping[str, Any]) -> Self:
        forward, rows = forward_and_rows(pair, cls.method, values["draft_weights"])
        return cls(forward, cls.shape_of(forward.config, values), pair.cached, rows)

    def begin(self, seq: Sequence) -> None:
        filling = seq.drafting[self] = _Filling(self._rows())
        self._learn(seq)
        if self._cached and filling.known > 1 and self.room(seq) > 0:
            self._read_prompt(filling, seq.tokens)

    def observe(self, seq: Sequence, round: Round) -> None:
        self._learn(seq)

    def mark(self, seq: Sequence) -> abc.Callable[[], None]:
        filling: _Filling = seq.drafting[self]
        rows, features, known = filling.rows.length, filling.features.copy(), filling.known

        def forget() -> None:
            filling.rows.crop(rows)
            filling.features, filling.known = features, known

        return forget

    def room(self, seq: Sequence) -> int:
        filling: _Filling = seq.drafting[self]
        if not filling.known:
            return 0
        return min(self._forward.config.steps - self._unseen(seq), self._forward.window - len(seq.tokens))

    def drafting(self, seq: Sequence, gamma: GammaController, limit: int) -> Asking[Proposal]:
        seq.drafting[self].most = max(1, min(limit, gamma.gamma))
        return (yield from super().drafting(seq, gamma, limit))

    def root(self, seq: Sequence) -> Asking[Tensor]:
        filling: _Filling = seq.drafting[self]
        room = self.room(seq)
        filling.logits = yield from self.ahead(seq, min(filling.most or room, room))
        filling.first = filling.place = 0
        return filling.logits[:1]

    def feed(self, seq: Sequence, tokens: Tensor, parents: Tensor | None = None) -> Asking[Tensor]:
        filling: _Filling = seq.drafting[self]
        filling.place += 1
        if filling.place == filling.first + len(filling.logits):
            filling.logits, filling.first = (yield from self._further(seq)), 1
        return filling.logits[filling.place - filling.first].expand(len(tokens), -1)

    def ahead(self, seq: Sequence, depth: int) -> Asking[Tensor]:
        """Raw logits `[depth, V]` of the next places, whatever is drafted between: one forward.

        Once a round, for at most `room` places. They hold until the next forward of this head.
        """
        filling: _Filling = seq.drafting[self]
        if not self._cached:
            filling.rows.crop(0)
        feature = torch.cat(filling.features)
        if self._cached:
            filling.features = []
        start, unseen = filling.rows.length + 1, self._unseen(seq)
        tokens = sent(seq.tokens[start : start + len(feature)], feature.device)
        logits = yield from filling.rows.ahead(tokens, feature, unseen + depth - 1)
        return logits[unseen:]

    def _further(self, seq: Sequence) -> Asking[Tensor]:
        """The places behind the first: a rule may raise its gamma when it has seen that one."""
        filling: _Filling = seq.drafting[self]
        unseen, forward = self._unseen(seq), self._forward
        tokens = torch.empty(0, dtype=torch.long, device=forward.embedding.device)
        feature = forward.embedding.new_empty(0, forward.config.hidden_size)
        logits = yield from filling.rows.ahead(tokens, feature, unseen + self.room(seq) - 1)
        return logits[unseen:]

    def _unseen(self, seq: Sequence) -> int:
        """How many tokens of the text follow the one behind the last known state."""
        filling: _Filling = seq.drafting[self]
        return len(seq.tokens) - 1 - filling.known

    def _read_prompt(self, filling: _Filling, tokens: abc.Sequence[int]) -> None:
        """All rows of the prompt but the last, from which the first round comes."""
        feature = torch.cat(filling.features)
        filling.rows.read(sent(tokens[1 : len(feature)], feature.device), feature[:-1])
        filling.features = [feature[-1:]]

    def _learn(self, seq: Sequence) -> None:
        """Take the states of the positions that were just committed."""
        if seq.hidden and len(seq.hidden[self.needs_hidden[0]]):
            states, filling = [seq.hidden[layer] for layer in self.needs_hidden], seq.drafting[self]
            filling.features.append(self._forward.read(states))
            filling.known += len(states[0])

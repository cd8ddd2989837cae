"""What drafters over the rows of a recurrent head have in common: its forward, and rows for each sequence."""

from collections import abc
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from sampling.drafters.best_first import BestFirst
from sampling.drafters.draft_tree import TreeShape
from sampling.drafters.forward_drafter import ForwardDrafter
from sampling.forward.int8 import Int8Linear
from sampling.heads.inference import RecurrentForward, RecurrentRunner
from sampling.heads.sharing import SharedHead
from sampling.heads.static import fixed_rows
from sampling.sequence import Sequence
from utils.events import Round
from utils.sent import sent

NewRows = Callable[[], RecurrentRunner]


def forward_and_rows(pair: Any, method: str, draft_weights: str) -> tuple[RecurrentForward, NewRows]:
    """The head of this kind on its target, and what makes the rows of a sequence: shared, of fixed shapes, or neither.

    draft_weights: the setting. Raises `UserError` where the pair has no such head.
    """
    forward = RecurrentForward.of(pair.head(method), pair.target.model)
    if pair.drafts_in_int8(method, draft_weights):
        forward = forward.with_kernel(Int8Linear)
    if pair.share:
        return forward, SharedHead(forward).another
    if pair.cached and pair.target_info.graphs:
        return forward, fixed_rows(forward)
    return forward, partial(RecurrentRunner, forward)


@dataclass(slots=True)
class Shown:
    """What is kept for a sequence: its rows in the head's cache, and features of the target that are not fed yet.

    known: how many positions of the text have shown their features.
    """

    rows: RecurrentRunner
    features: list[Tensor] = field(default_factory=list)
    known: int = 0


class OverStates(ForwardDrafter):
    """Row t of its cache joins the state of position t, which the target has shown, with token t + 1.

    keeps: what is kept for a sequence.
    """

    method: ClassVar[str]
    keeps: ClassVar[type[Shown]] = Shown

    def __init__(
        self,
        forward: RecurrentForward,
        shape: TreeShape | BestFirst | None = None,
        cached: bool = True,
        rows: NewRows | None = None,
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
        shown = seq.drafting[self] = self.keeps(self._rows())
        self._learn(seq)
        if self._cached and shown.known > 1 and self.room(seq) > 0:
            self._read_prompt(shown, seq.tokens)

    def observe(self, seq: Sequence, round: Round) -> None:
        self._learn(seq)

    def mark(self, seq: Sequence) -> abc.Callable[[], None]:
        shown: Shown = seq.drafting[self]
        rows, features, known = shown.rows.length, shown.features.copy(), shown.known

        def forget() -> None:
            shown.rows.crop(rows)
            shown.features, shown.known = features, known

        return forget

    def _unread(self, shown: Shown, tokens: abc.Sequence[int]) -> tuple[Tensor, Tensor]:
        """Tokens `[n]` and features `[n, H]` of the rows that the cache lacks: of the last round, or all of them."""
        if not self._cached:
            shown.rows.crop(0)
        feature = torch.cat(shown.features)
        if self._cached:
            shown.features = []
        start = shown.rows.length + 1
        return sent(tokens[start : start + len(feature)], feature.device), feature

    def _read_prompt(self, shown: Shown, tokens: abc.Sequence[int]) -> None:
        """All rows of the prompt but the last, from which the first draft comes."""
        feature = torch.cat(shown.features)
        shown.rows.read(sent(tokens[1 : len(feature)], feature.device), feature[:-1])
        shown.features = [feature[-1:]]

    def _learn(self, seq: Sequence) -> None:
        """Take the states of the positions that were just committed."""
        if seq.hidden and len(seq.hidden[self.needs_hidden[0]]):
            states, shown = [seq.hidden[layer] for layer in self.needs_hidden], seq.drafting[self]
            shown.features.append(self._forward.read(states))
            shown.known += len(states[0])

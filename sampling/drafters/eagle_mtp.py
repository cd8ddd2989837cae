"""EAGLE and MTP draft: a block continues the target's hidden states."""

from collections import abc
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from sampling.drafters.best_first import BestFirst
from sampling.drafters.draft_tree import TreeShape
from sampling.drafters.forward_drafter import ForwardDrafter
from sampling.drafters.recurrent import forward_and_rows
from sampling.events import Round
from sampling.forward.asked import Asking
from sampling.heads.inference import RecurrentForward, RecurrentRunner
from sampling.sequence import Sequence
from utils.sent import sent


@dataclass(slots=True)
class _Draft:
    """What is kept for a sequence: its rows in the head's cache, and features of the target that are not fed yet.

    known: how many positions of the text have shown their features. unseen: how many tokens follow those and the next
    one, and are gone through like drafts.
    """

    rows: RecurrentRunner
    features: list[Tensor] = field(default_factory=list)
    known: int = 0
    unseen: int = 0


class RecurrentDrafter(ForwardDrafter):
    """Row t of its cache joins the state of position t with token t + 1; drafts continue its own states.

    Rows of drafts never outlive their round: when the target has judged, its own states take their place.
    """

    method: str

    def __init__(
        self,
        forward: RecurrentForward,
        features: abc.Sequence[int],
        shape: TreeShape | BestFirst | None = None,
        cached: bool = True,
        rows: abc.Callable[[], RecurrentRunner] | None = None,
    ) -> None:
        self.needs_hidden = tuple(features)
        self.shape = shape
        self._forward, self._cached = forward, cached
        self._rows = rows or partial(RecurrentRunner, forward)

    @classmethod
    def build(cls, pair: Any, values: abc.Mapping[str, Any]) -> Self:
        forward, rows = forward_and_rows(pair, cls.method, values["draft_weights"])
        return cls(forward, forward.config.features, cls.shape_of(forward.config, values), pair.cached, rows)

    def begin(self, seq: Sequence) -> None:
        draft = seq.drafting[self] = _Draft(self._rows())
        self._learn(seq)
        if self._cached and draft.known > 1 and self.room(seq) > 0:
            self._read_prompt(draft, seq.tokens)

    def observe(self, seq: Sequence, round: Round) -> None:
        self._learn(seq)

    def mark(self, seq: Sequence) -> abc.Callable[[], None]:
        draft: _Draft = seq.drafting[self]
        rows, features, known = draft.rows.length, draft.features.copy(), draft.known

        def forget() -> None:
            draft.rows.crop(rows)
            draft.features, draft.known = features, known

        return forget

    def room(self, seq: Sequence) -> int:
        return self._forward.window - len(seq.tokens) if seq.drafting[self].known else 0

    def root(self, seq: Sequence) -> Asking[Tensor]:
        draft: _Draft = seq.drafting[self]
        if not self._cached:
            draft.rows.crop(0)
        feature = torch.cat(draft.features)
        if self._cached:
            draft.features = []
        start = draft.rows.length
        tokens = sent(seq.tokens[start + 1 :], feature.device)
        logits = yield from draft.rows.feed(tokens[: len(feature)], feature)
        draft.unseen = len(tokens) - len(feature)
        for number in range(draft.unseen):
            logits = yield from draft.rows.branch(tokens[len(feature) + number].view(1))
        return logits

    def feed(self, seq: Sequence, tokens: Tensor, parents: Tensor | None = None) -> Asking[Tensor]:
        draft: _Draft = seq.drafting[self]
        return (yield from draft.rows.branch(tokens, None if parents is None else parents + draft.unseen))

    def _read_prompt(self, draft: _Draft, tokens: abc.Sequence[int]) -> None:
        """All rows of the prompt but the last, from which the first draft comes."""
        feature = torch.cat(draft.features)
        draft.rows.read(sent(tokens[1:-1], feature.device), feature[:-1])
        draft.features = [feature[-1:]]

    def _learn(self, seq: Sequence) -> None:
        """Take the states of the positions that were just committed."""
        if seq.hidden and len(seq.hidden[self.needs_hidden[0]]):
            states, draft = [seq.hidden[layer] for layer in self.needs_hidden], seq.drafting[self]
            draft.features.append(self._forward.read(states))
            draft.known += len(states[0])


class EagleDrafter(RecurrentDrafter):
    """EAGLE (arXiv 2401.15077), also over the states of several layers (EAGLE-3, 2503.01840)."""

    method = "eagle"


class MtpDrafter(RecurrentDrafter):
    """The multi-token prediction module of DeepSeek-V3 (arXiv 2412.19437), fed back into itself."""

    method = "mtp"

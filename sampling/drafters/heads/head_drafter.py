"""The common base of drafters with a head over the target's states: its runner, and cache rows for each sequence."""

from collections import abc
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from sampling.drafters.best_first import BestFirst
from sampling.drafters.draft_tree import TreeShape
from sampling.drafters.forward_drafter import ForwardDrafter
from sampling.forward.kernels.linear import drafted_ids
from sampling.heads.runner import HeadForward, HeadRunner, joined
from sampling.pair.drafting_pair import DraftingPair
from sampling.sequence import Sequence
from utils.device.sent import sent
from utils.events import Round


@dataclass(slots=True)
class HeadState:
    """The state for a sequence: its rows in the head's cache, and states of the target that are not fed yet.

    known: the number of positions whose target states have been received.
    """

    rows: Any
    features: list[Tensor] = field(default_factory=list)
    known: int = 0


class HeadDrafter(ForwardDrafter):
    """A drafter whose cache has rows of the text only, computed from states of the target.

    forward, runner: the head's computation and its runner. keeps: the class of the state for a sequence.
    """

    method: ClassVar[str]
    forward: ClassVar[type[HeadForward]]
    runner: ClassVar[type[HeadRunner[Any]]]
    keeps: ClassVar[type[HeadState]] = HeadState

    def __init__(
        self, runner: HeadRunner[Any], shape: TreeShape | BestFirst | None = None, cached: bool = True
    ) -> None:
        self.needs_hidden = tuple(runner.forward.config.features)
        self.shape = shape
        self._runner, self._forward, self._cached = runner, runner.forward, cached
        self.draft_ids = drafted_ids(runner.forward.output)

    @classmethod
    def build(cls, pair: DraftingPair, values: abc.Mapping[str, Any]) -> Self:
        runner = pair.kept_head(cls.method, cls.forward, values["draft_weights"], cls.runner)
        return cls(runner, cls.shape_of(runner.forward.config, values), pair.cached)

    def begin(self, seq: Sequence) -> None:
        seq.drafter_state[self] = self.keeps(self._runner.another())
        self._learn(seq)
        if self._cached:
            self._read_prompt(seq)

    def observe(self, seq: Sequence, round: Round) -> None:
        self._learn(seq)

    def observe_together(
        self, seqs: abc.Sequence[Sequence], rounds: abc.Sequence[Round]
    ) -> abc.Sequence[Exception | None]:
        """The states of all sequences are read at once."""
        fed = [seq for seq in seqs if seq.hidden and len(seq.hidden[self.needs_hidden[0]])]
        if len(fed) < 2:
            return super().observe_together(seqs, rounds)
        counts = [len(seq.hidden[self.needs_hidden[0]]) for seq in fed]
        feature = self._forward.read([torch.cat([seq.hidden[layer] for seq in fed]) for layer in self.needs_hidden])
        for seq, count, own in zip(fed, counts, feature.split(counts), strict=True):
            state: HeadState = seq.drafter_state[self]
            state.features.append(own)
            state.known += count
        return [None] * len(seqs)

    def mark(self, seq: Sequence) -> abc.Callable[[], None]:
        state: HeadState = seq.drafter_state[self]
        rows, features, known = state.rows.length, state.features.copy(), state.known

        def forget() -> None:
            state.rows.crop(min(rows, state.rows.length))
            state.features, state.known = features, known

        return forget

    def _learn(self, seq: Sequence) -> None:
        """Store the states of the positions just committed."""
        if seq.hidden and len(seq.hidden[self.needs_hidden[0]]):
            states, state = [seq.hidden[layer] for layer in self.needs_hidden], seq.drafter_state[self]
            state.features.append(self._forward.read(states))
            state.known += len(states[0])

    def _read_prompt(self, seq: Sequence) -> None:
        """Prefill all rows of the prompt but the last, which gives the first draft.

        Row t of the cache joins the state of position t with token t + 1.
        """
        state: HeadState = seq.drafter_state[self]
        if state.known > 1 and self.room(seq) > 0:
            seq.read_by_drafter(0)
            feature = torch.cat(state.features)
            state.rows.read(sent(seq.tokens[1 : len(feature)], feature.device), feature[:-1])
            state.features = [feature[-1:]]

    def _unread(self, state: HeadState, tokens: abc.Sequence[int]) -> tuple[Tensor, Tensor]:
        """Tokens `[n]` on the host, features `[n, H]`: of the rows that the cache lacks, the last round's or all."""
        unread, feature = self._unread_rows(state, tokens)
        return torch.tensor(unread, dtype=torch.long), feature

    def _unread_rows(self, state: HeadState, tokens: abc.Sequence[int]) -> tuple[abc.Sequence[int], Tensor]:
        """The same with the tokens as numbers; what drafts left behind is forgotten."""
        state.rows.crop(state.rows.length if self._cached else 0)
        feature = joined(state.features)
        if self._cached:
            state.features = []
        start = state.rows.length + 1
        return tokens[start : start + len(feature)], feature

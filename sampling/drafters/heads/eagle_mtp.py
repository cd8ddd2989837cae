"""EAGLE and MTP drafting: a block continues the target's hidden states."""

from collections import abc
from dataclasses import dataclass

from torch import Tensor

from sampling.drafters.chains import ChainSteps
from sampling.drafters.heads.head_drafter import HeadDrafter, HeadState
from sampling.forward.caches.attention_metadata import wanted_rows
from sampling.forward.graphs.further import FurtherForwards
from sampling.forward.requests import StepGenerator
from sampling.heads.inference import RecurrentForward
from sampling.heads.recurrent_runner import RecurrentRunner, RecurrentSlot
from sampling.heads.runner import HeadRunner, joined
from sampling.sequence import Sequence
from utils.device.sent import sent


@dataclass(slots=True)
class _Draft(HeadState):
    """unseen: the number of text tokens without a state of the target, beyond the next token.

    They are fed like drafts.
    """

    rows: RecurrentSlot
    unseen: int = 0


class _RecurrentSteps:
    """See `ChainSteps`. tokens, features: of each sequence the rows of its text that the head has not read yet."""

    def __init__(
        self,
        runner: HeadRunner[RecurrentForward],
        slots: abc.Sequence[RecurrentSlot],
        tokens: abc.Sequence[list[int]],
        features: abc.Sequence[Tensor],
    ) -> None:
        assert isinstance(runner, RecurrentRunner)
        self._runner, self._slots, self._tokens, self._features = runner, slots, tokens, features

    def root(self) -> Tensor:
        """The head first reads the target's states; the last of each sequence is what its drafts continue."""
        feature, counts = joined(self._features), [len(tokens) for tokens in self._tokens]
        ids = sent([token for tokens in self._tokens for token in tokens], feature.device)
        rows = [slot.next_rows(count) for slot, count in zip(self._slots, counts, strict=True)]
        state, logits = self._runner.run_flat(rows, ids, feature, [1] * len(rows))
        for slot, count in zip(self._slots, counts, strict=True):
            slot.count_text(count)
        last = wanted_rows(rows, [1] * len(rows), feature.device)
        self._live, self._above = [*range(len(rows))], _last(state, last)
        return logits

    def feed(self, numbers: abc.Sequence[int], tokens: Tensor) -> Tensor:
        """See `ChainSteps.feed`."""
        if self._live != [*numbers]:
            kept = sent([self._live.index(number) for number in numbers], self._above.device)
            self._live, self._above = [*numbers], self._above.index_select(0, kept)
        slots = [self._slots[number] for number in numbers]
        rows = [slot.next_rows(1) for slot in slots]
        state, logits = self._runner.run_flat(rows, tokens.to(self._above.device), self._above, [1] * len(rows))
        for slot in slots:
            slot.count_drafts(1)
        self._above = state.clone()
        return logits


def _last(state: Tensor, rows: int | Tensor) -> Tensor:
    """A copy of these rows, which are the last ones where they are a number."""
    return state[len(state) - rows :].clone() if isinstance(rows, int) else state.index_select(0, rows)


class RecurrentDrafter(HeadDrafter):
    """The base of drafters that continue their own hidden states.

    Rows of drafts last one round only: after verification the target's own states replace them.
    """

    forward, runner, keeps = RecurrentForward, RecurrentRunner, _Draft

    def room(self, seq: Sequence) -> int:
        return self._runner.window - len(seq.tokens) if seq.drafter_state[self].known else 0

    def root(self, seq: Sequence) -> StepGenerator[Tensor]:
        draft: _Draft = seq.drafter_state[self]
        tokens, feature = self._unread(draft, seq.tokens)
        logits = yield from draft.rows.feed(tokens, feature)
        after = seq.tokens[draft.known + 1 :]
        draft.unseen = len(after)
        for token in sent(after, feature.device).split(1) if after else ():
            logits = yield from draft.rows.branch(token)
        return logits

    def along(self, seq: Sequence, count: int) -> StepGenerator[Tensor]:
        """The last row of the text is forgotten again, so that `root` has a row to read."""
        draft: _Draft = seq.drafter_state[self]
        if draft.known < len(seq.tokens) - 1 or not self._cached:
            return (yield from super().along(seq, count))
        tokens, feature = self._unread(draft, seq.tokens)
        logits = yield from draft.rows.feed(tokens, feature, min(count, len(tokens)))
        draft.rows.crop(draft.rows.length - 1)
        draft.features = [feature[-1:].clone()]
        return logits

    def steps_together(self, seqs: abc.Sequence[Sequence]) -> ChainSteps | None:
        drafts: list[_Draft] = [seq.drafter_state[self] for seq in seqs]
        if any(draft.known < len(seq.tokens) - 1 for draft, seq in zip(drafts, seqs, strict=True)):
            return None
        unread = [self._unread_rows(draft, seq.tokens) for draft, seq in zip(drafts, seqs, strict=True)]
        return _RecurrentSteps(self._runner, [draft.rows for draft in drafts], *zip(*unread, strict=True))

    def feed(self, seq: Sequence, tokens: Tensor, parents: Tensor | None = None) -> StepGenerator[Tensor]:
        draft: _Draft = seq.drafter_state[self]
        return (yield from draft.rows.branch(tokens, None if parents is None else parents + draft.unseen))

    def further(self, seq: Sequence, count: int) -> FurtherForwards | None:
        draft: _Draft = seq.drafter_state[self]
        return None if draft.unseen else draft.rows.further(count)


class EagleDrafter(RecurrentDrafter):
    """EAGLE (arXiv 2401.15077), also with the states of several layers (EAGLE-3, 2503.01840)."""

    method = "eagle"


class MtpDrafter(RecurrentDrafter):
    """The multi-token prediction module of DeepSeek-V3 (arXiv 2412.19437), applied to its own output."""

    method = "mtp"

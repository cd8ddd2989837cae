"""EAGLE and MTP drafting: a block continues the target's hidden states."""

from dataclasses import dataclass

from torch import Tensor

from sampling.drafters.head_drafter import HeadDrafter, HeadState
from sampling.forward.graphs.further import FurtherForwards
from sampling.forward.requests import StepGenerator
from sampling.heads.inference import RecurrentForward
from sampling.heads.recurrent_runner import RecurrentRunner, RecurrentSlot
from sampling.sequence import Sequence
from utils.device.sent import sent


@dataclass(slots=True)
class _Draft(HeadState):
    """unseen: the number of text tokens without a state of the target, beyond the next token.

    They are fed like drafts.
    """

    rows: RecurrentSlot
    unseen: int = 0


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

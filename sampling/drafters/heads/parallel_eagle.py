"""P-EAGLE drafting: a block over the target's states fills all positions of a round in one forward."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from egag.length_rule import LengthRule
from sampling.drafters.heads.head_drafter import HeadDrafter, HeadState
from sampling.forward.requests import StepGenerator
from sampling.heads.inference import RecurrentForward
from sampling.heads.recurrent_runner import RecurrentRunner, RecurrentSlot
from sampling.proposal import Proposal
from sampling.sequence import Sequence


@dataclass(slots=True)
class _Filling(HeadState):
    """most: the number of positions that the rule allows in this round; None before the rule is asked.

    logits: `[k, V]`, of the positions from `first` on. place: the next position to draft.
    """

    rows: RecurrentSlot
    most: int | None = None
    logits: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    first: int = 0
    place: int = 0


class ParallelEagleDrafter(HeadDrafter):
    """P-EAGLE (arXiv 2602.01469): predicts the token of each position, independent of the drafts between.

    The cache holds rows of the text only. Mask rows last one forward. Text tokens without a state of the target use the
    first positions.
    """

    method = "parallel_eagle"
    forward, runner, keeps = RecurrentForward, RecurrentRunner, _Filling

    def room(self, seq: Sequence) -> int:
        filling: _Filling = seq.drafter_state[self]
        if not filling.known:
            return 0
        steps: int = self._forward.config.steps
        return min(steps - self._unseen(seq), self._runner.window - len(seq.tokens))

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> StepGenerator[Proposal]:
        seq.drafter_state[self].most = max(1, min(limit, gamma.gamma))
        return (yield from super().propose(seq, gamma, limit))

    def root(self, seq: Sequence) -> StepGenerator[Tensor]:
        filling: _Filling = seq.drafter_state[self]
        room = self.room(seq)
        filling.logits = yield from self.ahead(seq, min(filling.most or room, room))
        filling.first = filling.place = 0
        return filling.logits[:1]

    def feed(self, seq: Sequence, tokens: Tensor, parents: Tensor | None = None) -> StepGenerator[Tensor]:
        filling: _Filling = seq.drafter_state[self]
        filling.place += 1
        if filling.place == filling.first + len(filling.logits):
            filling.logits, filling.first = (yield from self._further(seq)), 1
        return filling.logits[filling.place - filling.first].expand(len(tokens), -1)

    def ahead(self, seq: Sequence, depth: int) -> StepGenerator[Tensor]:
        """Raw logits `[depth, V]` of the next positions in one forward, independent of the drafts between.

        It is called once per round, for at most `room` positions. The logits are valid until the next forward of this
        head.
        """
        filling: _Filling = seq.drafter_state[self]
        unseen = self._unseen(seq)
        tokens, feature = self._unread(filling, seq.tokens)
        logits = yield from filling.rows.ahead(tokens, feature, unseen + depth - 1)
        return logits[unseen:]

    def _further(self, seq: Sequence) -> StepGenerator[Tensor]:
        """Compute the positions after the first: a rule may raise its gamma after it has read the first."""
        filling: _Filling = seq.drafter_state[self]
        unseen, forward = self._unseen(seq), self._forward
        tokens = torch.empty(0, dtype=torch.long, device=forward.embedding.device)
        feature = forward.embedding.new_empty(0, forward.config.hidden_size)
        logits = yield from filling.rows.ahead(tokens, feature, unseen + self.room(seq) - 1)
        return logits[unseen:]

    def _unseen(self, seq: Sequence) -> int:
        """The number of text tokens after the token behind the last known state."""
        filling: _Filling = seq.drafter_state[self]
        return len(seq.tokens) - 1 - filling.known

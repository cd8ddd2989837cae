"""DSpark drafting: one forward fills a block, and a low-rank matrix makes a chain of its rows."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from sampling.drafters.heads.head_drafter import HeadDrafter, HeadState
from sampling.forward.requests import StepGenerator
from sampling.heads.one_pass_forward import OnePassForward, OnePassRunner, OnePassSlot
from sampling.sequence import Sequence
from utils.device.sent import sent


@dataclass(slots=True)
class _Block(HeadState):
    """state, logits: `[steps, H]` and `[steps, V]`, the block of the round before the Markov head.

    place: the row for the draft after the last token that was fed. acceptance: `[k]`, the output of the confidence
    head.
    """

    rows: OnePassSlot
    state: Tensor = field(default_factory=lambda: torch.empty(0))
    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    place: int = 0
    acceptance: Tensor | None = None


class DsparkDrafter(HeadDrafter):
    """DSpark (arXiv 2607.05147) with DFlash's backbone (2602.06036): one forward per round, whatever its length.

    The cache holds rows of the text only, from states of the target. The next forward overwrites the rows of a block.
    Each draft is drawn from q_k = softmax(U_k + W1[x_{k-1}] W2), given the draft before it.
    """

    method = "dspark"
    forward, runner, keeps = OnePassForward, OnePassRunner, _Block

    def room(self, seq: Sequence) -> int:
        block: _Block = seq.drafter_state[self]
        unseen = len(seq.tokens) - 1 - block.known
        steps: int = self._forward.config.steps
        return min(steps - unseen, self._runner.window - len(seq.tokens))

    def ahead(self, seq: Sequence, depth: int) -> StepGenerator[Tensor]:
        """Raw logits `[depth, V]` of the next positions before the Markov head, independent of the drafts between."""
        block: _Block = seq.drafter_state[self]
        yield from self._fill(seq)
        return block.logits[block.place : block.place + depth]

    def root(self, seq: Sequence) -> StepGenerator[Tensor]:
        yield from self._fill(seq)
        block: _Block = seq.drafter_state[self]
        return self._behind(block, sent(seq.tokens[-1:], block.logits.device))

    def feed(self, seq: Sequence, tokens: Tensor, parents: Tensor | None = None) -> StepGenerator[Tensor]:
        yield from ()
        block: _Block = seq.drafter_state[self]
        block.place += 1
        return self._behind(block, tokens)

    def acceptance(self, seq: Sequence) -> Tensor | None:
        acceptance: Tensor | None = seq.drafter_state[self].acceptance
        return acceptance

    def _fill(self, seq: Sequence) -> StepGenerator[None]:
        """Fill the block of this round. Tokens without a state of the target count as drafts of the block."""
        block: _Block = seq.drafter_state[self]
        if not self._cached:
            block.rows.crop(0)
        self._inject(block)
        anchor = sent(seq.tokens[block.known : block.known + 1], self._forward.mask.device)
        block.state = yield from block.rows.block(anchor)
        block.logits = self._forward.output(block.state)
        block.place = len(seq.tokens) - 1 - block.known

    def _behind(self, block: _Block, tokens: Tensor) -> Tensor:
        """Raw logits `[k, V]` after tokens `[k]` of one depth."""
        row = slice(block.place, block.place + 1)
        block.acceptance = self._forward.acceptance(block.state[row], tokens)
        logits = block.logits[row].expand(len(tokens), -1)
        return logits if self._forward.markov is None else logits + self._forward.markov(tokens)

    def _read_prompt(self, seq: Sequence) -> None:
        seq.read_by_drafter(0)
        self._inject(seq.drafter_state[self])

    def _inject(self, block: _Block) -> None:
        if block.features:
            block.rows.inject(torch.cat(block.features))
        if self._cached:
            block.features = []

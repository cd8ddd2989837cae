"""What a P-EAGLE head learns: all places of a round, from the text's rows and the mask rows behind each of them.

Every place of every row is trained in one step. Depth by depth that is the one forward of the paper under its mask:
a mask row sees the text up to its row and the mask rows between, and never those behind another row.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.distill.batches import TrainingBatch
from sampling.distill.shards import TrainingRow
from sampling.distill.tasks import Guess, Task, TrainingPass, Trunk, correct, feature_layers, last_blocks
from sampling.heads.config import HeadConfig
from sampling.heads.recurrent import ParallelEagleHead

_UNSURE = 0.5
_SAMPLE = 64


class ParallelEagleTask(Task):
    """The first pass reads the target's states, each later one the mask rows of one depth more."""

    def __init__(self, config: HeadConfig, trunk: Trunk) -> None:
        super().__init__(config, trunk)
        self.module = self.head = ParallelEagleHead(config)

    @classmethod
    def configure(cls, layers: int) -> dict[str, Any]:
        return {"features": feature_layers(layers), "normed": True}

    def inherited(self, layers: int) -> dict[str, str]:
        return last_blocks(self.config.layers, layers)

    def begin(self, rows: Sequence[TrainingRow], guess: Guess) -> None:
        """The text's rows begin as linear guesses of the target's states, mask rows as the guess for a mean row."""
        head, last, some = self.head, self.trunk.last, rows[:_SAMPLE]
        states = {n: torch.cat([row.states[n][:-1].float() for row in some]) for n in {*self.config.features, last}}
        if head.feature is not None:
            unit = torch.eye(self.config.hidden_size)
            head.feature.weight.copy_(torch.cat([unit * (layer == last) for layer in self.config.features], dim=1))
        correct(head)
        if head.norm is not None:
            head.norm.weight.fill_(_UNSURE * float(states[last].pow(2).mean().sqrt()))
        if head.fc is not None:
            head.fc.weight.copy_(guess(0))
        tokens = torch.cat([row.tokens for row in some])
        head.mask_embedding.copy_(F.embedding(tokens, self.trunk.embedding.cpu()).mean(0))
        head.mask_hidden.copy_(torch.cat([states[layer].mean(0) for layer in self.config.features]))

    def joined(self, states: Mapping[int, Tensor], between: Sequence[Tensor]) -> Iterable[Tensor]:
        head = self.head
        state = head.read([states[layer] for layer in self.config.features])
        left = between[0] if head.embed_norm is None else head.embed_norm(between[0])
        return left, state if head.feature_norm is None else head.feature_norm(state)

    def passes(self, batch: TrainingBatch) -> Iterator[TrainingPass]:
        feature = self.head.read([batch.states[layer] for layer in self.config.features])
        rows, text_rows = self.head.text(self.embed(batch.tokens, 1), feature)
        past = [text_rows]
        yield TrainingPass(rows, 2)
        for depth in range(1, self.config.steps):
            rows, text_rows = self.head.masks(depth, past)
            past.append(text_rows)
            yield TrainingPass(rows, depth + 2)

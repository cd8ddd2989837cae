"""What a one-pass head learns: to fill the blocks behind many places of a text at once, and how sure it may be."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.distill.batches import TrainingBatch
from sampling.distill.objective import LOSSES, Objective, acceptance
from sampling.distill.shards import TrainingRow
from sampling.distill.tasks import Guess, Task, TrainingPass, Trunk, feature_layers
from sampling.heads.config import HeadConfig
from sampling.heads.one_pass import OnePassHead

_RANK = 64
# One place in so many begins a block; which ones changes from step to step.
_APART = 4
# What the blocks add at first, and how sure the output is, against what they would be.
_CORRECTION, _UNSURE = 0.1, 0.5
# Of the regression that the Markov head begins with.
_TOKENS, _DAMPING = 50_000, 1e-3


class DsparkTask(Task):
    """A block behind token t reads the states before it and predicts the tokens from t + 1 on (arXiv 2607.05147).

    The Markov head is taught by the text's own tokens. It is so many more columns of the output matrix: its rows of W1
    stand beside the states. The confidence head learns sum(min(p, q)) = 1 - TV(p, q) over the draft vocabulary.
    """

    def __init__(self, config: HeadConfig, trunk: Trunk) -> None:
        super().__init__(config, trunk)
        self.module = self.head = OnePassHead(config)

    @classmethod
    def configure(cls, layers: int) -> dict[str, Any]:
        return {"features": feature_layers(layers), "markov_rank": _RANK, "confidence": "markov"}

    @property
    def output(self) -> Tensor:
        """What rows of its passes are multiplied with, `[D, H + r]`."""
        assert self.head.markov_out is not None
        return torch.cat([self.trunk.output, self.head.markov_out.weight[self.trunk.ids]], dim=1)

    def inherited(self, layers: int) -> dict[str, str]:
        """The last blocks."""
        below = layers - self.config.layers
        return {f"blocks.{place}.": f"model.layers.{below + place}." for place in range(self.config.layers)}

    def begin(self, rows: Sequence[TrainingRow], guess: Guess) -> None:
        """The blocks read the target's last state and begin as small; the Markov head as what one token tells."""
        head, last = self.head, self.trunk.last
        unit = torch.eye(self.config.hidden_size)
        head.feature.weight.copy_(torch.cat([unit * (layer == last) for layer in self.config.features], dim=1))
        if head.mask is not None:
            head.mask.copy_(self.trunk.embedding.mean(dim=0))
        for name, weight in head.blocks.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.mul_(_CORRECTION)
        size = torch.cat([row.states[last][:-1].float() for row in rows[:64]]).pow(2).mean().sqrt()
        head.norm.weight.fill_(_UNSURE * float(size))
        if head.markov_in is not None and head.markov_out is not None:
            self._begin_markov(rows, head.markov_in.weight, head.markov_out.weight)

    def _begin_markov(self, rows: Sequence[TrainingRow], into: Tensor, out: Tensor) -> None:
        """W1 `[V, r]` and W2 `[V, r]`, both of one size: an optimiser moves all weights alike."""
        first, second = self._from_the_token_before(rows)
        before, after = self.trunk.embedding.cpu() @ first, self.trunk.output.cpu() @ second.T
        balance = (before.norm() / len(before) ** 0.5 / after.norm() * len(after) ** 0.5).sqrt()
        into.copy_(before / balance)
        out.zero_()
        out[self.trunk.ids.cpu()] = after * balance

    def _from_the_token_before(self, rows: Sequence[TrainingRow]) -> tuple[Tensor, Tensor]:
        """`[H, r]` and `[r, H]` from the embedding of a token to its state, which lose least of the logits behind it.

        The regression M is cut to r directions by what it says of logits: of X M L, where L L^T = O^T O and X are
        embeddings as often as their tokens are said.
        """
        states = torch.cat([row.states[self.trunk.last][:-1].float() for row in rows])[:_TOKENS]
        tokens = torch.cat([row.tokens[:-1] for row in rows])[:_TOKENS]
        read, rank = F.embedding(tokens, self.trunk.embedding.cpu()), self.config.markov_rank
        gram, output = read.T @ read, self.trunk.output.cpu()
        solution = torch.linalg.solve(gram + _damped(gram), read.T @ states)
        metric = torch.linalg.cholesky(output.T @ output + _damped(output.T @ output))
        kept = torch.linalg.svd(read @ solution @ metric, full_matrices=False).Vh[:rank]
        out: Tensor = torch.linalg.solve(metric, kept, left=False)
        return F.pad(solution @ metric @ kept.T, (0, rank - len(kept))), F.pad(out, (0, 0, 0, rank - len(kept)))

    def passes(self, batch: TrainingBatch) -> Iterator[TrainingPass]:
        """All places begin a block."""
        state = self._blocks(batch, torch.arange(batch.tokens.shape[1], device=batch.tokens.device))
        for step in range(self.config.steps):
            before = self.head.before(torch.roll(batch.tokens, -step, dims=1))
            yield TrainingPass(torch.cat([state[:, :, step], before], dim=-1), 1 + step)

    def logits(self, rows: Tensor) -> Tensor:
        return rows @ self.output.T

    def loss(self, batch: TrainingBatch, progress: float = 1.0, objective: Objective = Objective()) -> Tensor:  # noqa: B008
        """Distance to the target's distribution, and the cross-entropy of the confidence head beside it.

        Which places begin a block is a function of `progress`: a training that goes on takes the same ones.
        """
        length = batch.tokens.shape[1]
        first = random.Random(repr(progress)).randrange(min(_APART, max(1, length - 1)))
        anchors = torch.arange(first, length, _APART, device=batch.tokens.device)
        states = self._blocks(batch, anchors)
        total, weights = batch.tokens.new_zeros((), dtype=torch.float32), 0.0
        for step in range(self.config.steps):
            places = anchors + step
            text, block = (places.unsqueeze(0) + 1 < batch.lengths[:, None]).nonzero(as_tuple=True)
            if not len(text):
                continue
            place, state = places[block], states[text, block, step]
            before = self.head.before(batch.tokens[text, place])
            logits = self.logits(torch.cat([state, before], dim=-1))
            theirs = batch.states[self.trunk.last][text, place] @ self.trunk.output.T
            logs = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
            p = torch.softmax(theirs, dim=-1, dtype=torch.float32)
            accept_logits = self.head.told(state.detach(), before.detach())
            sure = F.binary_cross_entropy_with_logits(accept_logits, acceptance(p, logs.detach()))
            weight = objective.decay**step
            total = total + weight * (LOSSES[objective.loss](p, logs) + sure)
            weights += weight
        return total / weights

    def _blocks(self, batch: TrainingBatch, anchors: Tensor) -> Tensor:
        """States `[B, A, steps, H]` of the blocks that begin at these places."""
        text = self.head.read([batch.states[layer] for layer in self.config.features])
        state: Tensor = self.head(text, F.embedding(batch.tokens[:, anchors], self.trunk.embedding), anchors)
        return state


def _damped(gram: Tensor) -> Tensor:
    return torch.diag(_DAMPING * gram.diagonal() + 1e-6)

"""What each kind of drafter learns: which rows predict which tokens, and the distance to the target's distribution.

Every task distils: the label of a row is the target's whole distribution over the draft vocabulary, which its
last state and its output matrix give, and the loss is a distance to it (`objective`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sampling.distill.batches import TrainingBatch
from sampling.distill.low_rank import low_rank
from sampling.distill.objective import LOSSES, Objective, cross_entropy
from sampling.distill.shards import TrainingRow
from sampling.heads.block import Rows
from sampling.heads.config import HeadConfig
from sampling.heads.parallel import HydraHead, MedusaHead
from sampling.heads.recurrent import JoiningHead, RecurrentHead
from sampling.heads.small import SmallModel

_CORRECTION = 0.1
_UNSURE = 0.5

Guess = Callable[[int], Tensor]


@dataclass(frozen=True, slots=True)
class Trunk:
    """The frozen parts of the target: embedding `[V, H]`, output rows of the draft vocabulary `[D, H]`, its ids `[D]`.

    last: number of the layer whose states the output matrix reads.
    """

    embedding: Tensor
    output: Tensor
    ids: Tensor
    last: int


def feature_layers(layers: int) -> tuple[int, ...]:
    """A low, a middle and the last one of so many layers, as EAGLE-3 reads them (arXiv 2503.01840)."""
    return layers // 3, 2 * layers // 3, layers


@dataclass(frozen=True, slots=True)
class TrainingPass:
    """Rows that the output matrix reads, `[B, T, H]`: row t predicts token t + ahead."""

    rows: Tensor
    ahead: int


class Task(ABC):
    """A module and what its rows mean. learned: passes that its first weights were trained for already."""

    module: nn.Module
    learned: int = 0

    def __init__(self, config: HeadConfig, trunk: Trunk) -> None:
        self.config, self.trunk = config, trunk

    @classmethod
    def configure(cls, layers: int) -> dict[str, Any]:
        """What sets its `HeadConfig` apart, for a target of so many layers."""
        return {}

    def inherited(self, layers: int) -> dict[str, str]:
        """Weights that begin as the target's own, of so many layers: our prefix to the target's."""
        return {}

    def begin(self, rows: Sequence[TrainingRow], guess: Guess) -> None:  # noqa: B027
        """First weights from data. guess: step -> matrix from what `joined` gives to the state `step + 1` places on."""

    def joined(self, states: Mapping[int, Tensor], between: Sequence[Tensor]) -> Iterable[Tensor]:
        """What its joining layer reads of these states and of the embeddings of the tokens behind them, in order."""
        return states[self.trunk.last], *between

    @abstractmethod
    def passes(self, batch: TrainingBatch) -> Iterator[TrainingPass]:
        """What is trained, in the order of the drafts."""

    def drafts(self, batch: TrainingBatch) -> Iterator[TrainingPass]:
        """The rows of draft 1, 2, ... behind the same text: row t of each predicts from what is known at t."""
        return self.passes(batch)

    def trained(self, progress: float) -> int:
        """How many of the passes are trained when this share of the training (0..1) is done."""
        return self.config.steps

    def logits(self, rows: Tensor) -> Tensor:
        """Raw logits over the draft vocabulary, `[..., D]`, of rows of a pass."""
        return rows @ self.trunk.output.T

    def drafted(self, rows: Tensor) -> Tensor:
        """As `logits`, as they are while it drafts."""
        return self.logits(rows)

    def beside(self, rows: Tensor, logs: Tensor) -> Tensor | float:
        """What is learned beside the target: a loss of rows `[n, H]`, whose log-probabilities `[n, D]` are there."""
        return 0.0

    def loss(self, batch: TrainingBatch, progress: float = 1.0, objective: Objective = Objective()) -> Tensor:  # noqa: B008
        """Weighted mean over the trained passes of the distance to the target's distribution over the draft vocabulary.

        A pass that no dialogue of the batch is long enough for does not count.
        """
        p = torch.softmax(batch.states[self.trunk.last] @ self.trunk.output.T, dim=-1, dtype=torch.float32)
        total, weights = batch.tokens.new_zeros((), dtype=torch.float32), 0.0
        for number, training_pass in enumerate(islice(self.passes(batch), self.trained(progress))):
            rows, label = _facing(training_pass, batch)
            if not len(rows[0]):
                continue
            facing = training_pass.rows[rows]
            logs = torch.log_softmax(self.logits(facing), dim=-1, dtype=torch.float32)
            weight = objective.decay**number
            total = total + weight * (LOSSES[objective.loss](p[label], logs) + self.beside(facing, logs))
            weights += weight
        return total / weights

    def embed(self, tokens: Tensor, by: int) -> Tensor:
        """Embeddings of the tokens `by` places further on, `[B, T, H]`; the last ones repeat."""
        moved = torch.cat([tokens[:, by:], tokens[:, -1:].expand(-1, min(by, tokens.shape[1]))], dim=1)
        return F.embedding(moved[:, : tokens.shape[1]], self.trunk.embedding)


def _facing(training_pass: TrainingPass, batch: TrainingBatch) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """(rows of the pass, rows of the target's distribution) that predict the same token of the text."""
    places = torch.arange(training_pass.rows.shape[1], device=batch.tokens.device)
    sequence, row = (places[None, :] + training_pass.ahead < batch.lengths[:, None]).nonzero(as_tuple=True)
    return (sequence, row), (sequence, row + training_pass.ahead - 1)


class RecurrentTask(Task):
    """The first pass reads the target's states, each later one the states of the pass before it."""

    def __init__(self, config: HeadConfig, trunk: Trunk) -> None:
        super().__init__(config, trunk)
        self.module = self.head = RecurrentHead(config)

    def inherited(self, layers: int) -> dict[str, str]:
        return last_blocks(self.config.layers, layers)

    def begin(self, rows: Sequence[TrainingRow], guess: Guess) -> None:
        """Its states begin as linear guesses of the target's, which the target's output matrix can read."""
        head, last = self.head, self.trunk.last
        states = {layer: torch.cat([row.states[layer][:-1].float() for row in rows[:64]]) for layer in rows[0].states}
        for norm, read in zip(head.state_norms, _behind_one_norm(self.config, states), strict=True):
            norm.get_parameter("weight").fill_(float(read.pow(2).mean(-1).sqrt().median()))
        for down, up in ((head.output_down, head.output_up), (head.candidates_down, head.candidates_up)):
            if down is not None and up is not None:
                narrow, wide = low_rank(self.trunk.output.cpu(), states[last], len(down.weight))
                down.weight.copy_(narrow)
                up.weight.copy_(wide)
        if head.feature is not None:
            unit = torch.eye(self.config.hidden_size)
            head.feature.weight.copy_(torch.cat([unit * (layer == last) for layer in self.config.features], dim=1))
        correct(head)
        if head.norm is not None:
            size = states[last].pow(2).mean().sqrt()
            head.norm.weight.fill_(_UNSURE * float(size))
        if head.fc is not None:
            head.fc.weight.copy_(guess(0))

    def joined(self, states: Mapping[int, Tensor], between: Sequence[Tensor]) -> Iterable[Tensor]:
        head = self.head
        state = head.read([states[layer] for layer in self.config.features])
        left = between[0] if head.embed_norm is None else head.embed_norm(between[0])
        return left, state if head.feature_norm is None else head.feature_norm(state)

    def trained(self, progress: float) -> int:
        """One pass more at a time: the first is worth most, and the later ones build on what it has learned."""
        return min(self.config.steps, max(self.learned, 1 + int(progress * self.config.steps)))

    def passes(self, batch: TrainingBatch) -> Iterator[TrainingPass]:
        state = self.head.read([batch.states[layer] for layer in self.config.features])
        past: list[list[Rows]] = []
        for step in range(self.config.steps):
            state, rows = self.head(self.embed(batch.tokens, step + 1), state, step, past)
            past.append(rows)
            yield TrainingPass(self.head.output(state), step + 2)

    def logits(self, rows: Tensor) -> Tensor:
        return self.head.logits(rows, self.trunk.output)

    def drafted(self, rows: Tensor) -> Tensor:
        return self.head.drafted(rows, self.trunk.output)

    def beside(self, rows: Tensor, logs: Tensor) -> Tensor | float:
        """Cross-entropy of what finds candidates to the head's own distribution, which does not learn from it."""
        rough = self.head.rough(rows.detach())
        if rough is None:
            return 0.0
        return cross_entropy(logs.detach().exp(), torch.log_softmax(rough, dim=-1, dtype=torch.float32))


def last_blocks(count: int, layers: int) -> dict[str, str]:
    """The target's last blocks, of so many layers, as what `count` blocks of a `JoiningHead` begin as."""
    names = ("block.", *(f"later.{place}." for place in range(count - 1)))
    return {name: f"model.layers.{layers - count + place}." for place, name in enumerate(names)}


def correct(head: JoiningHead) -> None:
    """Make each block a small correction to what it reads."""
    for block in (head.block, *head.later):
        for name in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
            block.get_parameter(name).mul_(_CORRECTION)


def _behind_one_norm(config: HeadConfig, states: Mapping[int, Tensor]) -> list[Tensor]:
    """What each norm of the target's states reads."""
    read = [states[layer] for layer in config.features]
    return {"none": [], "each": read, "joined": [torch.cat(read, dim=-1)]}[config.state_norm]


class EagleTask(RecurrentTask):
    """EAGLE: the states of several layers."""

    @classmethod
    def configure(cls, layers: int) -> dict[str, Any]:
        return {"features": feature_layers(layers)}


class MtpTask(RecurrentTask):
    """MTP: the last states, and both of what it joins behind a norm."""

    @classmethod
    def configure(cls, layers: int) -> dict[str, Any]:
        return {"features": (layers,), "normed": True}


class MedusaTask(Task):
    """Head k predicts token t + 2 + k from the state of position t."""

    def __init__(self, config: HeadConfig, trunk: Trunk) -> None:
        super().__init__(config, trunk)
        self.module = self.head = MedusaHead(config)

    def passes(self, batch: TrainingBatch) -> Iterator[TrainingPass]:
        for step in range(self.config.steps):
            yield TrainingPass(self.head(batch.states[self.trunk.last], step), step + 2)


class HydraTask(Task):
    """As Medusa's, with the tokens between."""

    def __init__(self, config: HeadConfig, trunk: Trunk) -> None:
        super().__init__(config, trunk)
        self.module = self.head = HydraHead(config)

    def begin(self, rows: Sequence[TrainingRow], guess: Guess) -> None:
        for step in range(self.config.steps):
            self.head.get_parameter(f"residuals.{step}.weight").copy_(guess(step))

    def passes(self, batch: TrainingBatch) -> Iterator[TrainingPass]:
        between: list[Tensor] = []
        for step in range(self.config.steps):
            between.append(self.embed(batch.tokens, step + 1))
            yield TrainingPass(self.head(batch.states[self.trunk.last], torch.stack(between, dim=-2), step), step + 2)


class ModelTask(Task):
    """A small model: every row predicts the next token."""

    def __init__(self, config: HeadConfig, trunk: Trunk) -> None:
        super().__init__(config, trunk)
        self.module = self.model = SmallModel(config)

    def inherited(self, layers: int) -> dict[str, str]:
        """Evenly chosen blocks, and the norm."""
        chosen = torch.linspace(0, layers - 1, self.config.layers).round().int().tolist()
        blocks = {f"blocks.{place}.": f"model.layers.{layer}." for place, layer in enumerate(chosen)}
        return {**blocks, "norm.": "model.norm."}

    def passes(self, batch: TrainingBatch) -> Iterator[TrainingPass]:
        yield TrainingPass(self.model(self.embed(batch.tokens, 0)), 1)

    def drafts(self, batch: TrainingBatch) -> Iterator[TrainingPass]:
        """Draft k behind token t is the prediction of row t + k, when the drafts before it were right."""
        (first,) = self.passes(batch)
        for step in range(self.config.steps):
            yield TrainingPass(torch.roll(first.rows, -step, dims=1), 1 + step)

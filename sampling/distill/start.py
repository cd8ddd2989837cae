"""Weights that a module begins with: the target's own blocks, and the best linear guess of its next state.

A head that begins with the target's last block and nothing else first has to unlearn what that block expects to
read. So the joining layer begins as the regression from what it reads to the state that follows, in closed
form, and the block as a small correction to it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn import functional as F

from sampling.distill.shards import TrainingRow
from sampling.distill.tasks import Task

_TOKENS = 100_000
_DAMPING = 1e-3


def start(task: Task, rows: Sequence[TrainingRow], checkpoint: Path, layers: int) -> None:
    """Give the task's module its first weights.

    rows: data to regress on. checkpoint: safetensors of the target, of so many layers; where there is no such
    file its blocks are not inherited.
    """
    if checkpoint.is_file():
        _inherit(task, checkpoint, task.inherited(layers))
    with torch.no_grad():
        task.begin(rows, lambda step: _regression(task, rows, step))


def _inherit(task: Task, checkpoint: Path, sources: Mapping[str, str]) -> None:
    """The target's weights under these prefixes, ours to the target's, as far as they fit."""
    weights = task.module.state_dict()
    with safe_open(checkpoint, framework="pt") as file:
        inherited = {
            ours + name.removeprefix(theirs): file.get_tensor(name).float()
            for name in file.keys()  # noqa: SIM118
            for ours, theirs in sources.items()
            if name.startswith(theirs)
        }
    fit = {
        name: weight for name, weight in inherited.items() if name in weights and weights[name].shape == weight.shape
    }
    task.module.load_state_dict({**weights, **fit})


def _regression(task: Task, rows: Sequence[TrainingRow], step: int) -> Tensor:
    """The matrix that maps what a joining layer reads to the state `step + 1` places on, with least squares."""
    size = task.config.hidden_size
    width = (step + 2) * size
    gram, cross = torch.zeros(width, width), torch.zeros(width, size)
    for read, state in _pairs(task, rows, step):
        gram += read.T @ read
        cross += read.T @ state
    damping = torch.diag(_DAMPING * gram.diagonal() + 1e-6)
    solution: Tensor = torch.linalg.solve(gram + damping, cross)
    return solution.T


def _pairs(task: Task, rows: Sequence[TrainingRow], step: int) -> Iterator[tuple[Tensor, Tensor]]:
    """(what is read `[n, (step + 2) * H]`, the state that follows `[n, H]`) of each row, as the module joins them."""
    embedding, last, seen = task.trunk.embedding.cpu(), task.trunk.last, 0
    for row in rows:
        count = len(row.tokens) - 2 - step
        if count > 0:
            states = {layer: part.float() for layer, part in row.states.items()}
            between = [F.embedding(row.tokens[1 + k : 1 + k + count], embedding) for k in range(step + 1)]
            read = task.joined({layer: part[:count] for layer, part in states.items()}, between)
            yield torch.cat(list(read), dim=1), states[last][1 + step : 1 + step + count]
            seen += count
        if seen > _TOKENS:
            return

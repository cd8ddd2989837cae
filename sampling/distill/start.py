"""Weights that a module begins with: the target's own blocks, and the best linear guess of its next state.

A head that begins with the target's last block and nothing else first has to unlearn what that block expects to
read. So the joining layer begins as the regression from what it reads to the state that follows, in closed
form, and the block as a small correction to it.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn import functional as F

from sampling.distill.shards import Row
from sampling.distill.tasks import HydraTask, ModelTask, RecurrentTask, Task

_TOKENS = 100_000
_DAMPING = 1e-3
_CORRECTION = 0.1
_UNSURE = 0.5


def start(task: Task, rows: Sequence[Row], checkpoint: Path, layers: int) -> None:
    """Give the task's module its first weights.

    rows: data to regress on. checkpoint: safetensors of the target, of so many layers; where there is no such
    file its blocks are not inherited.
    """
    if checkpoint.is_file() and isinstance(task, RecurrentTask | ModelTask):
        _inherit(task, checkpoint, layers)
    with torch.no_grad():
        if isinstance(task, RecurrentTask):
            _continue_states(task, rows)
        if isinstance(task, HydraTask):
            for step in range(task.config.steps):
                task.head.get_parameter(f"residuals.{step}.weight").copy_(_regression(task, rows, step))


def _inherit(task: Task, checkpoint: Path, layers: int) -> None:
    """Blocks of the target: the last one for a head, evenly chosen ones for a model, and the norm for a model."""
    sources = {"block.": f"model.layers.{layers - 1}."}
    if isinstance(task, ModelTask):
        chosen = torch.linspace(0, layers - 1, task.config.layers).round().int().tolist()
        sources = {f"blocks.{place}.": f"model.layers.{layer}." for place, layer in enumerate(chosen)}
        sources["norm."] = "model.norm."
    own = task.module.state_dict()
    with safe_open(checkpoint, framework="pt") as file:
        found = {
            ours + name.removeprefix(theirs): file.get_tensor(name).float()
            for name in file.keys()  # noqa: SIM118
            for ours, theirs in sources.items()
            if name.startswith(theirs)
        }
    fit = {name: weight for name, weight in found.items() if name in own and own[name].shape == weight.shape}
    task.module.load_state_dict({**own, **fit})


def _continue_states(task: RecurrentTask, rows: Sequence[Row]) -> None:
    """A head whose states begin as linear guesses of the target's, which the target's output matrix can read."""
    head, last = task.head, task.trunk.last
    if head.feature is not None:
        unit = torch.eye(task.config.hidden_size)
        head.feature.weight.copy_(torch.cat([unit * (layer == last) for layer in task.config.features], dim=1))
    for projection in (head.block.self_attn.o_proj, head.block.mlp.down_proj):
        projection.weight.mul_(_CORRECTION)
    if head.norm is not None:
        size = torch.cat([row.states[last][:-1].float() for row in rows[:64]]).pow(2).mean().sqrt()
        head.norm.weight.fill_(_UNSURE * float(size))
    if head.fc is not None:
        head.fc.weight.copy_(_regression(task, rows, 0))


def _regression(task: RecurrentTask | HydraTask, rows: Sequence[Row], step: int) -> Tensor:
    """The matrix that maps what a joining layer reads to the state `step + 1` places on, with least squares."""
    size = task.config.hidden_size
    width = (step + 2) * size
    gram, cross = torch.zeros(width, width), torch.zeros(width, size)
    for read, state in _pairs(task, rows, step):
        gram += read.T @ read
        cross += read.T @ state
    damping = torch.diag(_DAMPING * gram.diagonal() + 1e-6)
    found: Tensor = torch.linalg.solve(gram + damping, cross)
    return found.T


def _pairs(task: RecurrentTask | HydraTask, rows: Sequence[Row], step: int) -> Iterator[tuple[Tensor, Tensor]]:
    """(what is read `[n, (step + 2) * H]`, the state that follows `[n, H]`) of each row, as the module joins them."""
    embedding, last, seen = task.trunk.embedding.cpu(), task.trunk.last, 0
    for row in rows:
        count = len(row.tokens) - 2 - step
        if count > 0:
            state = row.states[last].float()
            between = [F.embedding(row.tokens[1 + k : 1 + k + count], embedding) for k in range(step + 1)]
            yield torch.cat(list(_joined(task, state[:count], between)), dim=1), state[1 + step : 1 + step + count]
            seen += count
        if seen > _TOKENS:
            return


def _joined(task: RecurrentTask | HydraTask, state: Tensor, between: Sequence[Tensor]) -> Iterable[Tensor]:
    """State and embeddings in the order of the module's joining layer, behind its norms."""
    if isinstance(task, HydraTask):
        return state, *between
    head = task.head
    left = between[0] if head.embed_norm is None else head.embed_norm(between[0])
    return left, state if head.feature_norm is None else head.feature_norm(state)

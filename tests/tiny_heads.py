"""Heads of every kind for a tiny Llama, and the rows that they are trained on."""

from collections.abc import Callable
from copy import copy
from pathlib import Path

import pytest
import torch

from sampling.distill.shards import TrainingRow
from sampling.distill.tasks import Task, Trunk, feature_layers
from sampling.distill.training import CHECKPOINT, Schedule, Trainer
from sampling.forward.models import lean
from sampling.forward.runner import ModelRunner, catch_up, prefill
from sampling.heads.config import HeadConfig
from sampling.heads.head_files import fingerprint, save_head
from sampling.methods.tables import MODELS
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from tests.tiny_models import VOCAB, ids

KINDS = tuple(MODELS)
DRAFT_IDS = torch.tensor([token for token in range(VOCAB) if token % 3])


_ROWS: dict[tuple[int, int], tuple[lean.LeanModel, TrainingRow]] = {}


def rows_of(target: lean.LeanModel, count: int = 24) -> list[TrainingRow]:
    """What the target goes on to say after different beginnings, greedily, with its states; made once a target."""
    for seed in range(count):
        if (id(target), seed) not in _ROWS:
            _ROWS[id(target), seed] = target, _row_of(target, seed)
    return [_ROWS[id(target), seed][1] for seed in range(count)]


def _row_of(target: lean.LeanModel, seed: int) -> TrainingRow:
    runner, tokens = ModelRunner(target), ids(4, seed=seed)
    for _ in range(14 + seed % 3):
        tokens.append(int(catch_up(runner, tokens).logits.argmax()))
    states = prefill(ModelRunner(target), tokens, feature_layers(target.num_layers))
    return TrainingRow(torch.tensor(tokens), 4, True, {k: v.to(torch.bfloat16) for k, v in states.items()})


def task_of(kind: str, target: lean.LeanModel, draft_ids: torch.Tensor = DRAFT_IDS) -> Task:
    size, shape = target.embedding.shape[1], target.blocks.shape
    config = HeadConfig(
        method=kind,
        base="tiny",
        base_digest=fingerprint(target.landmarks()),
        hidden_size=size,
        vocab_size=VOCAB,
        draft_vocab=len(draft_ids),
        steps=3,
        intermediate_size=2 * size,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        window=target.window,
        **MODELS[kind].load_task().configure(target.num_layers),
    )
    torch.manual_seed(0)
    trunk = Trunk(target.embedding, target.output_rows(draft_ids), draft_ids, target.num_layers)
    task: Task = MODELS[kind].load_task()(config, trunk)
    for weight in task.module.parameters():
        torch.nn.init.normal_(weight, std=0.3)
        weight.data = weight.data.to(torch.bfloat16).float()
    return task


def check_goes_on_exactly(
    new: Callable[[], Task], rows: list[TrainingRow], schedule: Schedule, folder: Path
) -> Trainer:
    """A training that ran to its end; one that is killed at its fifth step and run again ends with the same weights."""

    class Killed(Exception):
        pass

    def run(place: str, kill_at: int | None = None) -> Trainer:
        trainer = Trainer(new(), rows, rows[:2], schedule, torch.device("cpu"))

        def watch(step: int, total: int, history: object) -> None:
            if step == kill_at:
                raise Killed

        trainer.run(folder / place, watch, float)
        return trainer

    whole = run("whole")
    with pytest.raises(Killed):
        run("cut", kill_at=5)
    assert (folder / "cut" / CHECKPOINT).is_file()
    cut = run("cut")
    assert cut.history.losses == whole.history.losses
    for weight, theirs in zip(cut.task.module.parameters(), whole.task.module.parameters(), strict=True):
        assert torch.equal(weight, theirs)
    return whole


def saved(task: Task, folder: Path) -> Path:
    save_head(folder, task.config, task.module.state_dict(), task.trunk.ids)
    return folder


def pair_of(target: lean.LeanModel, heads: dict[str, Path]) -> Pair:
    info = ModelInfo("tiny", "cpu", "float32")
    return Pair(ModelRunner(target), None, None, frozenset(), info, heads=heads)  # type: ignore[arg-type]


def with_config(task: Task, config: HeadConfig) -> Task:
    made = copy(task)
    made.config = config
    return made

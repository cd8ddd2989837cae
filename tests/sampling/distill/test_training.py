"""A training of heads: it learns, it goes on after a kill, and it refuses what is another's."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from sampling.distill import training
from sampling.distill.accuracy import accuracy
from sampling.distill.batches import TrainingBatch, split
from sampling.distill.shards import TrainingRow
from sampling.distill.tasks import Task, feature_layers
from sampling.distill.training import CHECKPOINT, Schedule, Trainer
from sampling.forward.kernels.probe import claims_bfloat16
from sampling.forward.models import lean
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from tests.refusals import refused
from tests.tiny_heads import (
    DRAFT_IDS,
    KINDS,
    check_goes_on_exactly,
    pair_of,
    rows_of,
    saved,
    task_of,
    with_config,
)
from tests.tiny_models import VOCAB, make


@pytest.fixture(scope="module")
def target() -> lean.LeanModel:
    return lean.from_transformers(make("llama"))


@pytest.fixture
def products(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.dtype:
    """On a CPU with instructions for bfloat16, and on one without."""
    monkeypatch.setattr(training, "claims_bfloat16", lambda: request.param is torch.bfloat16)
    return cast(torch.dtype, request.param)


def in_turn(kinds: Sequence[str]) -> pytest.MarkDecorator:
    """Each kind in one of the products."""
    both = (torch.float32, torch.bfloat16)
    turns = [pytest.param(kind, both[at % 2], id=f"{kind}-{both[at % 2]}") for at, kind in enumerate(kinds)]
    return pytest.mark.parametrize(("kind", "products"), turns, indirect=["products"])


@in_turn(KINDS)
def test_training_learns_what_the_target_says(
    kind: str, target: lean.LeanModel, tmp_path: Path, products: torch.dtype
) -> None:
    rows = rows_of(target)
    task = task_of(kind, target, torch.arange(VOCAB))
    train, held_out = split(rows, 4)
    assert len(train) + len(held_out) == 24 and held_out
    trainer = Trainer(task, train, train[:4], Schedule(30, 64, 1e-2, warmup=2, every=10_000), torch.device("cpu"))
    assert trainer.products is products
    assert {weight.dtype for weight in task.module.parameters()} == {torch.float32}
    whole = TrainingBatch.of(train, sorted({*task.config.features, task.trunk.last}), torch.device("cpu"))
    before = task.loss(whole).item()
    trainer.run(tmp_path, lambda *_: None, float)
    assert task.loss(whole).item() < 0.85 * before


@in_turn(["eagle", "parallel_eagle", "dspark"])
def test_a_training_that_was_killed_goes_on_exactly(
    kind: str, target: lean.LeanModel, tmp_path: Path, products: torch.dtype
) -> None:
    schedule = Schedule(3, 64, 1e-2, warmup=2, every=2)
    check_goes_on_exactly(lambda: task_of(kind, target), rows_of(target, 8), schedule, tmp_path)


def test_a_checkpoint_of_another_training_is_refused_with_what_differs(
    target: lean.LeanModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, schedule = rows_of(target, 6), Schedule(1, 64, 1e-2, warmup=2, every=2)
    cpu = torch.device("cpu")

    def run(task: Task, rows: list[TrainingRow] = rows, schedule: Schedule = schedule, began: str = "") -> None:
        Trainer(task, rows, rows[:2], schedule, cpu, began).run(tmp_path, lambda *_: None, float)

    def differs(names: str, *given: Any) -> None:
        with refused(tmp_path / CHECKPOINT, names, "--out"):
            run(*given)

    task = task_of("medusa", target)
    run(task)
    run(task_of("medusa", target))
    config = task.config
    differs("method", with_config(task, replace(config, method="hydra")))
    differs("base_digest, steps", with_config(task, replace(config, base_digest="other", steps=2)))
    differs("draft vocabulary", task_of("medusa", target, DRAFT_IDS - 1))
    differs("training data", task, [replace(rows[0], tokens=rows[0].tokens + 1), *rows[1:]])
    differs("rate", task, rows, replace(schedule, rate=1e-3))
    differs("weights it began with", task, rows, schedule, "others")
    with monkeypatch.context() as other:
        other.setattr(training, "claims_bfloat16", lambda: not claims_bfloat16())
        differs("products", task)
    state = torch.load(tmp_path / CHECKPOINT, weights_only=True)
    del state["belongs"]
    torch.save(state, tmp_path / CHECKPOINT)
    with refused(tmp_path / CHECKPOINT, "--out"):
        run(task)


def test_a_pass_that_no_text_is_long_enough_for_does_not_count(target: lean.LeanModel) -> None:
    task, cpu = task_of("medusa", target), torch.device("cpu")
    row = rows_of(target, 1)[0]
    short = replace(row, tokens=row.tokens[:3], states={layer: part[:3] for layer, part in row.states.items()})
    batch = TrainingBatch.of([short], row.states, cpu)
    loss = task.loss(batch)
    assert torch.isfinite(loss)
    torch.testing.assert_close(loss, with_config(task, replace(task.config, steps=1)).loss(batch))


def test_a_loss_that_is_not_finite_ends_the_training(target: lean.LeanModel, tmp_path: Path) -> None:
    task, rows = task_of("medusa", target), rows_of(target, 4)
    next(task.module.parameters()).data.fill_(float("inf"))
    trainer = Trainer(task, rows, rows, Schedule(1, 64), torch.device("cpu"))
    with refused("step 1", "nan", "--rate", 0.001):
        trainer.run(tmp_path, lambda *_: None, float)
    assert not list(tmp_path.iterdir())


def test_coverage_counts_the_tokens_of_answers(target: lean.LeanModel) -> None:
    row, cpu = rows_of(target, 1)[0], torch.device("cpu")
    tokens = torch.tensor([0, 0, 0, 0, 1, 2, 3, 4])
    states = {layer: part[:8] for layer, part in row.states.items()}
    longer = rows_of(target, 2)[1]
    batch = TrainingBatch.of([replace(row, tokens=tokens, states=states), replace(longer, answer=99)], row.states, cpu)
    assert accuracy(task_of("medusa", target), [batch]).covered == 0.75


def test_a_checkpoint_on_a_full_disk_leaves_nothing_behind(
    target: lean.LeanModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(state: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise RuntimeError("[enforce fail at inline_container.cc:664] . unexpected pos\nmore")

    monkeypatch.setattr(torch, "save", full)
    rows = rows_of(target, 4)
    trainer = Trainer(task_of("medusa", target), rows, rows, Schedule(1, 64), torch.device("cpu"))
    with refused("enforce fail", tmp_path / CHECKPOINT, error=OSError):
        trainer.run(tmp_path, lambda *_: None, float)
    assert not list(tmp_path.iterdir())


def test_held_out_accuracy_counts_what_greedy_decoding_accepts(target: lean.LeanModel, tmp_path: Path) -> None:
    """An EAGLE head drafts on the texts it is counted on: the counted tokens a round are those of the first rounds."""
    rows = rows_of(target, 6)
    task = task_of("eagle", target, torch.arange(VOCAB))
    Trainer(task, rows, rows, Schedule(40, 64, 1e-2, warmup=2, every=10_000), torch.device("cpu")).run(
        tmp_path / "run", lambda *_: None, float
    )
    batch = TrainingBatch.of(rows[:1], feature_layers(target.num_layers), torch.device("cpu"))
    counted = accuracy(task, [batch]).tokens_per_round
    engine = PairEngine(pair_of(target, {"eagle": saved(task, tmp_path / "head")}))
    tokens, values = rows[0].tokens.tolist(), {**Settings(), "gamma": 3, "length": 40}
    accepted = []
    for start in range(4, len(tokens) - 2):
        events = list(engine.stream("eagle", values, tokens[:start]))
        accepted.append(1 + len(events[1].path))  # type: ignore[union-attr]
    assert counted == pytest.approx(sum(accepted) / len(accepted))

"""scripts/ablate_training.py on a tiny target: the same data and steps for each choice, and a table."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from sampling.distill.objective import LOSSES
from sampling.distill.shards import TrainingRow
from sampling.heads.head_files import load_head
from sampling.loading.pairs import LoadOptions, load_pair
from scripts import ablate_training
from scripts.ablate_training import CHOICES, PROCESSORS, SETS, TrainingPlan, apart, first, main, possible
from tests.refusals import lacking, refused
from tests.tiny import llama, save_checkpoint
from utils.files import CACHE_VARIABLE

app = typer.Typer()
app.command()(main)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    folder = tmp_path / "root" / "ablation" / "prompts"
    folder.mkdir(parents=True)
    for task in SETS:
        (folder / f"{task}.jsonl").write_text(json.dumps({"prompt": f"a {task}"}) + "\n", encoding="utf-8")
    monkeypatch.setattr(ablate_training, "ROOT", tmp_path / "root")
    yield


def test_each_choice_learns_as_much_and_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    target, out = save_checkpoint(tmp_path / "target", llama()), tmp_path / "out"
    given = ["--method", "eagle", "--target", str(target), "--out", str(out), "--tokens", "2000", "--most", "1000"]
    more = ["--epochs", "1", "--steps", "2", "--draft-vocab", "64", "--batch-tokens", "256", "--length", "8"]
    names = ["as usual", "loss lk", "state-norm each, feedback normed"]

    def run(only: list[str]) -> str:
        done = CliRunner().invoke(app, [*given, *more, "--only", ";".join(only)])
        assert done.exit_code == 0, done.output
        return done.output

    run(names[:2])
    begun = (out / "eagle-as-usual" / "trained.json").stat().st_mtime_ns
    lines = [line for line in run(names).splitlines() if line.startswith("| eagle")]
    assert (out / "eagle-as-usual" / "trained.json").stat().st_mtime_ns == begun
    assert [line.split(" | ")[0] for line in lines] == [
        "| eagle-as-usual", "| eagle-loss-lk", "| eagle-state-norm-each-feedback-normed",
    ]  # fmt: skip
    figures = [json.loads((folder / "trained.json").read_text()) for folder in sorted(out.glob("eagle*"))]
    assert len({(one["tokens"], one["steps"]) for one in figures}) == 1 and figures[0]["tokens"] >= 1000
    assert load_head(out / "eagle-state-norm-each-feedback-normed").config.state_norm == "each"
    assert all(one["tokens a round"] >= 1 for one in figures)
    for folder in out.glob("eagle*"):
        counts = json.loads((folder / "drafted.json").read_text())
        assert len(counts) == len(SETS) * len(PROCESSORS)
        assert all(1 <= rounds <= tokens <= 8 + 2 for tokens, rounds in counts.values())
    (out / "eagle-loss-lk" / "drafted.json").write_text(json.dumps({"code, greedy": [7, 2]}))
    line = next(line for line in run(names).splitlines() if line.startswith("| eagle-loss-lk"))
    assert line.split(" | ")[5] == "3.50", "what is counted is not counted again"
    assert (out / "table.md").read_text() in run(names)
    done = CliRunner().invoke(app, [*given, *more, "--only", names[0], "--rate", "0.1"])
    assert done.exit_code == 2 and not lacking(" ".join(done.output.split()), out / "eagle-as-usual", "rate", "--out")


def test_choices_that_answers_make_learn_from_others_of_the_same_data() -> None:
    rows = [TrainingRow(torch.tensor([number] * 10), 4, number % 2 == 0, {}) for number in range(400)]
    learned, held_out = apart(rows)
    assert not {int(row.tokens[0]) for row in learned} & {int(row.tokens[0]) for row in held_out}
    assert len(held_out) > 40 and all(row.greedy for row in held_out)
    assert sum(len(row.tokens) for row in first(learned, 95)) == 100
    with refused("--most 9000", sum(len(row.tokens) for row in learned)):
        list(first(learned, 9000))


def test_texts_are_held_out_as_well() -> None:
    texts = [TrainingRow(torch.tensor([number] * 10), 1, False, {}) for number in range(60)]
    learned, held_out = apart(texts)
    assert learned and len(learned) + len(held_out) == 60 and held_out
    drawn = [TrainingRow(torch.tensor([number] * 10), 4, False, {}) for number in range(60)]
    with refused("60 pieces"):
        apart(drawn)


def test_what_a_drafter_cannot_have_is_left_out_or_refused(tmp_path: Path) -> None:
    target = save_checkpoint(tmp_path / "target", llama())
    pair = load_pair(LoadOptions(target=str(target), device="cpu", dtype="float32"))
    plan = TrainingPlan("medusa", 2, 64, 1000, 1, 8)
    assert [*possible(pair, plan, CHOICES, True)] == [name for name, one in CHOICES.items() if not one.variant]
    with refused("--feedback normed", "medusa", "eagle", "mtp"):
        possible(pair, plan, CHOICES, False)


def test_drafters_of_other_data_are_not_compared(tmp_path: Path) -> None:
    target, out = save_checkpoint(tmp_path / "target", llama()), tmp_path / "out"
    given = ["--method", "medusa", "--target", str(target), "--out", str(out), "--most", "1000", "--only", "as usual"]
    given += ["--epochs", "1", "--steps", "1", "--draft-vocab", "64", "--batch-tokens", "256", "--prompts", "0"]
    for tokens, code, said in (("2000", 0, ""), ("5000", 2, "it differs in data; repeat that command")):
        done = CliRunner().invoke(app, [*given, "--tokens", tokens])
        assert done.exit_code == code and said in " ".join(done.output.split()), done.output


def test_a_choice_that_there_is_not_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["--method", "mtp", "--out", str(tmp_path), "--only", "as usual;loss kl"])
    said = " ".join(done.output.split())
    assert done.exit_code == 2 and "unknown choice 'loss kl'; expected some of: as usual; loss lk; " in said
    done = CliRunner().invoke(app, ["--method", "mtp", "--out", str(tmp_path), "--rate", "nan"])
    assert done.exit_code == 2 and "--rate nan given; expected a finite number above 0" in done.output
    done = CliRunner().invoke(app, ["--method", "model", "--out", str(tmp_path)])
    assert done.exit_code == 2 and "'model' is not one of" in done.output
    assert all(choice.loss in LOSSES for choice in CHOICES.values())

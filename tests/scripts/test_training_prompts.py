"""scripts/write_training_prompts.py: prompts of all kinds, none of them measured with."""

import json
import random
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ablation.plan.prompts.file import read_prompts
from ablation.plan.prompts.sets import measured_turns
from sampling.distill.prompts.grounded import _mistyped, grounded, summaries
from sampling.distill.prompts.invented import FORMS
from sampling.distill.prompts.passages import documentation, passage
from scripts import train_drafter
from scripts.write_training_prompts import DRAWN, main, mixed

app = typer.Typer()
app.command()(main)


def test_every_kind_is_there_and_no_prompt_twice(tmp_path: Path) -> None:
    out = tmp_path / "training.jsonl"
    done = CliRunner().invoke(app, ["--out", str(out), "--each", "30"])
    assert done.exit_code == 0, done.output
    entries = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    counts = Counter(entry["task"] for entry in entries)
    assert set(counts) == {"code", "prose", *DRAWN} and all(counts[kind] == 30 for kind in DRAWN)
    assert all(f"{count} {kind}" in done.output for kind, count in counts.items())
    assert len({entry["prompt"] for entry in entries}) == len(entries) == len(read_prompts(out))


def test_the_seed_decides_and_more_of_a_kind_begin_with_the_same() -> None:
    assert mixed(20, 1) == mixed(20, 1)
    drawn = {
        (each, seed): {e["prompt"] for e in mixed(each, seed) if e["task"] in DRAWN}
        for each, seed in ((20, 1), (25, 1), (20, 2))
    }
    assert drawn[20, 1] < drawn[25, 1] and not drawn[20, 1] >= drawn[20, 2]


def test_as_many_as_may_be_asked_for_exist() -> None:
    assert Counter(entry["task"] for entry in mixed(1500, 3))["question"] == 1500


def test_none_is_measured_with_and_a_measured_one_is_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = [entry["prompt"] for entry in mixed(1000, 1)]
    assert len(prompts) > 5000 and not any(map(measured_turns(), prompts))
    measured = [
        path_prompt.turns[0]
        for path in sorted((train_drafter.ROOT / "ablation" / "prompts").glob("*.jsonl"))
        for path_prompt in read_prompts(path)
    ]
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": text}) for text in (*prompts[:5], *measured)), encoding="utf-8")
    assert train_drafter._learnable(path) == prompts[:5]
    assert f"left out {len(measured)} of {len(measured) + 5} prompts" in capsys.readouterr().err


def test_passages_have_every_slot_filled_and_answer_their_questions() -> None:
    chance = random.Random(4)
    assert all(len(form.places) >= 5 and len(form.questions) >= 4 for form in FORMS)
    for one in (passage(chance) for _ in range(200)):
        assert "{" not in one.text + "".join(one.questions)
        assert 250 < len(one.text) < 900
    for text in (*islice(summaries(chance), 200), *islice(grounded(chance), 200)):
        assert len(text) > 250 and "{name}" not in text and "{text}" not in text


def test_documentation_is_prose() -> None:
    found = documentation()
    assert len(found) > 100 and all(text.endswith(".") and ">>>" not in text for text in found)


def test_mistakes_change_some_words_and_only_letters_of_them() -> None:
    chance = random.Random(0)
    words = ["meeting"] * 600
    wrong = [_mistyped(chance, word) for word in words]
    assert 50 < sum(word != "meeting" for word in wrong) < 200
    assert all(set(word) == set("meeting") or len(word) == 6 for word in wrong)
    assert _mistyped(chance, "a-1") == "a-1"

"""scripts/benchmark.py: what it measures becomes one record, and the page says what the record says."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sampling.measure.metrics import RunMetrics
from sampling.pair_engine import PairEngine
from scripts.benchmark import (
    END,
    PAGE,
    RECORD,
    START,
    Again,
    Benchmark,
    repeated_requests,
    say,
    settings_of,
    verify_growth,
)
from scripts.duels import Duel
from tests.tiny import tiny_pair


def _duel(name: str = "AR") -> Duel:
    account = RunMetrics(output_ids=[1, 2], draft_s=0.25, verify_s=0.5, other_s=0.25, rounds=2)
    texts = iter(([1, 2], [1, 3], [1, 2]))
    return Duel(name, "generate", lambda _: account, lambda _: list(next(texts)))


def test_a_duel_counts_what_was_played_behind_its_warm_up() -> None:
    duel = _duel()
    duel.play([7], True)
    duel.forget()
    duel.play([7], True)
    duel.play([7], False)
    found = duel.outcome()
    assert (found.runs, found.other_text, found.outside_forwards) == (2, 1, 0.5)
    assert found.low <= found.ratio <= found.high


def test_the_forwards_of_a_drafting_model_are_not_called_outside_of_forwards() -> None:
    duel = _duel("SD")
    duel.play([7], True)
    assert duel.outcome().outside_forwards is None


def test_forwards_and_requests_that_come_again_are_measured_on_any_pair() -> None:
    engine = PairEngine(tiny_pair())
    prompt = engine.pair.encode(["Hello"], chat=True)
    assert all(ms > 0 for ms in verify_growth(engine, prompt, (1, 2)).values())
    assert engine.pair.target.length == len(prompt) + 2
    settings = settings_of(length=8, drafts=4)
    settings.assign("max_cached_requests", "-1")
    again = repeated_requests(engine, settings, [prompt])
    assert again.prompts == 1 and again.low <= again.ratio <= again.high
    assert again.tokens_per_round > 1, "the second time the answer is in the memory"


def test_the_page_says_what_its_record_says() -> None:
    """After a change: uv run scripts/benchmark.py --write"""
    text = PAGE.read_text(encoding="utf-8")
    assert text.split(START)[1].split(END)[0].strip() == Benchmark.read(RECORD).markdown()


def test_a_record_is_written_beside_its_page_and_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, record = tmp_path / "page.md", tmp_path / "record.json"
    page.write_text(f"before\n{START}\nold\n{END}\nafter\n", encoding="utf-8")
    given = replace(Benchmark.read(RECORD), forward_ms={1: 10.04, 5: 20.0}, again=Again(5.66, 4.7, 6.05, 7.84, 4))
    given.write(page, record)
    assert Benchmark.read(record) == given
    assert json.loads(record.read_text(encoding="utf-8"))["forward_ms"] == {"1": 10.04, "5": 20.0}
    text = page.read_text(encoding="utf-8")
    assert text == f"before\n{START}\n{given.markdown()}\n{END}\nafter\n"
    assert "n tokens, ms: 1: 10.0, 5: 20.0; v(5) = 1.99." in text
    say(given)
    assert "suffix 5.66 (4.70 to 6.05) times our AR, 7.84 tokens a round, 4 prompts" in capsys.readouterr().out

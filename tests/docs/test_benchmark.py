"""scripts/benchmark.py: what it measures becomes one record, and the page says what the record says."""

import json
from dataclasses import replace
from pathlib import Path

from sampling.measure.metrics import RunMetrics
from sampling.pair_engine import PairEngine
from scripts.benchmarks import growth
from scripts.benchmarks.growth import Growth, verify_growth
from scripts.benchmarks.play import repeated_requests, settings_of
from scripts.benchmarks.record import MARK, PAGE, RECORD, UNMEASURED, Again, Benchmark, between, write
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
    engines = {"full": engine, "int8": PairEngine(tiny_pair())}
    found = verify_growth(engines, prompt, (1, 2), rounds=2)
    assert list(found) == ["full", "int8"] and all(ms > 0 for of in found.values() for ms in of.values())
    assert all(one.pair.target.length == len(prompt) + 2 for one in engines.values())
    settings = settings_of(length=8, drafts=4)
    settings.assign("max_cached_requests", "-1")
    again = repeated_requests(engine, settings, [prompt])
    assert again.prompts == 1 and again.low <= again.ratio <= again.high
    assert again.tokens_per_round > 1, "the second time the answer is in the memory"


def test_the_page_says_what_its_record_says() -> None:
    """After a change: uv run scripts/benchmark.py --write"""
    assert between(PAGE, MARK) == Benchmark.read(RECORD).markdown()


def test_a_record_is_written_beside_its_page_and_read_back(tmp_path: Path) -> None:
    page, record = tmp_path / "page.md", tmp_path / "record.json"
    start, end = "<!-- benchmark table -->", "<!-- end of benchmark table -->"
    page.write_text(f"before\n{start}\nold\n{end}\nafter\n", encoding="utf-8")
    given = replace(Benchmark.read(RECORD), forward_ms={1: 10.04, 5: 20.0}, again=Again(5.66, 4.7, 6.05, 7.84, 4))
    write(given, MARK, page, record)
    assert Benchmark.read(record) == given
    assert json.loads(record.read_text(encoding="utf-8"))["forward_ms"] == {"1": 10.04, "5": 20.0}
    text = page.read_text(encoding="utf-8")
    assert text == f"before\n{start}\n{given.markdown()}\n{end}\nafter\n"
    assert "n tokens, ms: 1: 10.0, 5: 20.0; v(5) = 1.99." in text
    assert "suffix 5.66 (4.70 to 6.05) times our AR, 7.84 tokens a round, 4 prompts" in given.sentences()[1]


def _growth() -> Growth:
    ms = {"full": {1: 20.0, 2: 25.0}, "int4": {1: 10.0, 2: 15.04}}
    return Growth("uv run it", "a CPU", 2, "2.8", 47, 15, {"full": "bfloat16", "int4": "float32"}, ms)


def test_growth_is_told_by_format_in_forwards_over_one_row() -> None:
    lines = _growth().markdown().splitlines()
    assert lines[-4:] == [
        "| rows | full, ms | v(n) | int4, ms | v(n) |",
        "|---|---|---|---|---|",
        "| 1 | 20.0 | 1.00 | 10.0 | 1.00 |",
        "| 2 | 25.0 | 1.25 | 15.0 | 1.50 |",
    ]
    assert "behind 47 tokens, medians of 15 interleaved rounds, full in bfloat16, int4 in float32" in lines[0]


def test_growth_is_read_back(tmp_path: Path) -> None:
    page, record = tmp_path / "page.md", tmp_path / "growth.json"
    page.write_text("<!-- growth table -->\n<!-- end of growth table -->\n", encoding="utf-8")
    write(_growth(), growth.MARK, page, record)
    assert Growth.read(record) == _growth()


def test_the_page_says_what_the_growth_record_says() -> None:
    """After a change: uv run scripts/benchmark.py --only growth --write"""
    recorded = Growth.read(growth.RECORD).markdown() if growth.RECORD.exists() else UNMEASURED
    assert between(PAGE, growth.MARK) == recorded

"""scripts/verify_growth.py: what it measures becomes one record, and the page says what the record says."""

from pathlib import Path

from ablation.growth import Growth, told, verify_growth
from sampling.pair.pair_engine import PairEngine
from scripts.verify_growth import PAGE, RECORD
from tests.tiny import tiny_pair


def test_forwards_are_measured_on_any_pair() -> None:
    engine = PairEngine(tiny_pair())
    prompt = engine.pair.encode(["Hello"], chat=True)
    engines = {"full": engine, "int8": PairEngine(tiny_pair())}
    found = verify_growth(engines, prompt, (1, 2), rounds=2)
    assert list(found) == ["full", "int8"] and all(ms > 0 for of in found.values() for ms in of.values())
    assert all(one.pair.target.length == len(prompt) + 2 for one in engines.values())


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


def test_growth_is_written_beside_its_page_and_read_back(tmp_path: Path) -> None:
    page, record = tmp_path / "page.md", tmp_path / "growth.json"
    page.write_text("before\n<!-- growth table -->\nold\n<!-- end of growth table -->\nafter\n", encoding="utf-8")
    _growth().write(page, record)
    assert Growth.read(record) == _growth() and told(page) == _growth().markdown()
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text


def test_the_page_says_what_the_growth_record_says() -> None:
    """After a change: uv run scripts/verify_growth.py --dtype float32 --write"""
    assert told(PAGE) == Growth.read(RECORD).markdown()

import re
from pathlib import Path

from ablation.report.load import load_results
from ablation.report.tables.summary import summarise
from ablation.results.document import metrics_page, summary_columns
from tests.ablation.synthetic import PLAIN, record, write_results

ROOT = Path(__file__).resolve().parents[3]


def test_the_metrics_page_is_the_generated_one() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == metrics_page()


def test_the_columns_of_a_summary_are_explained(tmp_path: Path) -> None:
    frame = load_results(write_results(tmp_path / "r.csv", [record(PLAIN)]))
    named = ["processor", "configuration", "task", "method", *summary_columns()]
    assert sorted(summarise(frame).columns) == sorted(named)


def test_every_key_has_a_meaning() -> None:
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| ([^|]+) \|", metrics_page(), flags=re.MULTILINE)
    assert len(rows) == 163 and all(meaning.strip() for _, meaning in rows)

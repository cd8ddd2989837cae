import re
from pathlib import Path

from ablation.results.document import metrics_page

ROOT = Path(__file__).resolve().parents[2]


def test_the_metrics_page_is_the_generated_one() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == metrics_page()


def test_every_key_has_a_meaning() -> None:
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| ([^|]+) \|", metrics_page(), flags=re.MULTILINE)
    assert len(rows) == 68 and all(meaning.strip() for _, meaning in rows)

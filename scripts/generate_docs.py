"""Write the reference pages that are generated from the code: `uv run scripts/generate_docs.py`."""

from ablation.results.document import metrics_page
from scripts.api_reference import api_page
from utils.provenance import ROOT

DOCS = ROOT / "docs"


def main() -> None:
    """Write each page."""
    DOCS.mkdir(exist_ok=True)
    (DOCS / "metrics.md").write_text(metrics_page(), encoding="utf-8")
    (DOCS / "api-reference.md").write_text(api_page(), encoding="utf-8")


if __name__ == "__main__":
    main()

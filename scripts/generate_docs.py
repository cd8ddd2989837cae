"""Write the reference pages that are generated from the code: `uv run python -m scripts.generate_docs`."""

from pathlib import Path

from ablation.document import metrics_page

DOCS = Path(__file__).resolve().parent.parent / "docs"


def main() -> None:
    """Write each page."""
    DOCS.mkdir(exist_ok=True)
    (DOCS / "metrics.md").write_text(metrics_page(), encoding="utf-8")


if __name__ == "__main__":
    main()

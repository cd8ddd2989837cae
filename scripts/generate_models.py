"""Write docs/models.md, every family built and run anew: `uv run scripts/generate_models.py`, a minute or two."""

import utils.device.threads  # noqa: F401

import warnings

from transformers.utils import logging

from sampling.loading.families.configs import FAMILIES
from sampling.loading.families.judge import judge
from sampling.loading.families.page import page
from utils.provenance import ROOT


def main() -> None:
    """Judge each family, tell it as it goes, and write the page."""
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    rows = []
    for family in FAMILIES:
        rows.append(judge(family))
        print(f"{family}: {rows[-1].result}")
    (ROOT / "docs" / "models.md").write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Write docs/models.md, every family built and run anew: `uv run scripts/generate_models.py`, a minute or two."""

import utils.device.threads  # noqa: F401

import warnings
from dataclasses import replace

from transformers.utils import logging

from sampling.loading.families.configs import DECODERS, FAMILIES
from sampling.loading.families.judge import judge
from sampling.loading.families.page import page
from sampling.proof.families import invariance_of
from utils.provenance import ROOT


def main() -> None:
    """Judge each family, tell it as it goes, and write the page."""
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    rows = []
    for family in FAMILIES:
        row = judge(family)
        runs = row.result.startswith("equal") and family in DECODERS
        rows.append(replace(row, invariant=invariance_of(family)) if runs else row)
        print(f"{family}: {rows[-1].result}; batch-invariant: {rows[-1].invariant or '-'}")
    (ROOT / "docs" / "models.md").write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()

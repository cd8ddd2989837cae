"""A results file read with pandas: each configuration's speedup over plain decoding, with an interval over prompts.

    uv run docs/examples/read_csv.py
    uv run docs/examples/read_csv.py g.csv

Reads a file of `scripts/run_ablation.py`; by default the recorded run `quick`. A prompt counts once: its speedup is the
geometric mean of its rows. Prints median and 95 % interval over prompts. `control` is plain decoding once more.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from utils.numbers.intervals import median_interval

QUICK = Path(__file__).parents[1] / "results" / "quick" / "results.csv"


def speedups(rows: pd.DataFrame) -> pd.Series:
    """By configuration and prompt: tokens/s over those of AR, the configuration `target`, on the same prompt."""
    asked = ["id", "turn", "processor", "seed", "repeat"]
    plain = rows[rows["configuration"] == "target"].set_index(asked)["tokens_per_s"]
    others = rows[rows["configuration"] != "target"].set_index([*asked, "configuration"])["tokens_per_s"]
    return np.exp(np.log(others / plain).groupby(["configuration", "id"]).mean())


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else QUICK
    rows = pd.read_csv(path)
    print("speedup over AR on the same prompt, median [95 % interval over prompts]")
    for name, values in speedups(rows).groupby("configuration"):
        middle, low, high = median_interval(values.to_numpy())
        print(f"{name:12} {middle:.2f} [{low:.2f}, {high:.2f}], {len(values)} prompts")


if __name__ == "__main__":
    main()

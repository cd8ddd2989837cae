"""Reference pages that are generated from the code, so that they cannot say anything else."""

from collections.abc import Sequence
from textwrap import fill

from ablation.results.column import markdown
from ablation.results.comparison_table import COLUMNS
from ablation.results.record import Record
from ablation.results.table import columns, setting_columns
from ablation.results.trace import TraceLine
from sampling.settings import PARAMETERS


def _wrapped(names: Sequence[str]) -> str:
    return fill(", ".join(f"`{name}`" for name in names), 110, break_on_hyphens=False)


def _settings() -> str:
    rows = [f"| `{name}` | {PARAMETERS[name].help} |" for name in setting_columns()]
    return "\n".join(["| setting | meaning |", "|---|---|", *rows]) + "\n"


def _headings() -> str:
    rows = [f"| {column.heading} | {column.meaning} |" for column in COLUMNS]
    return "\n".join(["| heading | meaning |", "|---|---|", *rows]) + "\n"


def metrics_page() -> str:
    """docs/metrics.md: every key of a record and of a trace line, and every heading of the comparison table."""
    return f"""# What is measured

Generated from the dataclasses that write these keys; do not edit (`uv run scripts/generate_docs.py`).

p is the target's distribution, q the drafter's, both after the processor. A round is one target forward: it
judges the drafts before it in order, up to and including the first rejection, and emits the accepted ones and
one token of the target's own. Unknown is null: with nothing drafted, a rate is null, not 0. Times are taken
inside the decode loop; what shows or records the output is never in them.

## A record

One object a line for each prompt, turn, method and repeat (`infer.py run --json`).

{markdown(Record)}
## A row of a results file

`scripts/run_ablation.py` writes the same keys as the columns of a CSV file, except `output_ids`; `settings` is one
column a setting, empty where it does not matter to the method. Unknown is an empty cell, a list is numbers between
spaces. A row is known by `id`, `turn`, `configuration`, `processor`, `seed` and `repeat`: no two rows share them all.
The columns, in order:

{_wrapped(columns())}

The settings:

{_settings()}
## The comparison table

The session, `infer.py run` and the summary that ends an ablation show one table. One run has `tokens`; the summary of
many has the interval and `sums` in their place. Where a terminal is too narrow, each line is stacked in two.
Unknown is -.

{_headings()}
## A trace line

One object a line for each round (`infer.py run --trace FILE.jsonl`).

{markdown(TraceLine)}"""

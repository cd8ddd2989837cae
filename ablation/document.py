"""Reference pages that are generated from the code, so that they cannot say anything else."""

from ablation.column import markdown
from ablation.record import Record
from ablation.trace import Round


def metrics_page() -> str:
    """docs/metrics.md: every key of a record and of a trace line."""
    return f"""# What is measured

Generated from the dataclasses that write these keys; do not edit (`uv run python -m scripts.generate_docs`).

p is the target's distribution, q the drafter's, both after the processor. A round is one target forward: it
judges the drafts before it in order, up to and including the first rejection, and emits the accepted ones and
one token of the target's own. Unknown is null: with nothing drafted, a rate is null, not 0. Times are taken
inside the decode loop; what shows or records the output is never in them.

## A record

One object a line for each prompt, turn, method and repeat (`infer.py run --json`).

{markdown(Record)}
## A trace line

One object a line for each round (`infer.py run --trace FILE.jsonl`).

{markdown(Round)}"""

"""Verify growth v(n): what a forward over n rows costs, in forwards over one, by format of the target's weights.

Reports to the terminal and, with --write, to docs/benchmarks.md and docs/results.
"""

import utils.device.threads  # noqa: F401

import sys
from dataclasses import replace
from typing import Annotated

import typer

from ablation.commands.shared.checked import run_checked
from ablation.commands.shared.options import exit_statuses, out_console
from ablation.growth import Growth
from sampling.loading.options import DEVICES, DTYPES, EVERYWHERE, GRAPHS
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.pair.pair_engine import PairEngine
from utils.device.machine import Machine, disturbance
from utils.errors import UnknownName
from utils.provenance import ROOT

PAGE = ROOT / "docs/benchmarks.md"
RECORD = ROOT / "docs/results/growth.json"
EVERY_FORMAT = ",".join(EVERYWHERE)
_PROMPT = "Explain in a few sentences how a steam engine turns heat into motion, and why it needs a condenser."

Dtype = Annotated[str, typer.Option(help=", ".join(DTYPES))]
Device = Annotated[str, typer.Option(help=f"where it runs: {', '.join(DEVICES)}")]
Graphs = Annotated[str, typer.Option(help=f"forwards as CUDA graphs: {', '.join(GRAPHS)}")]
Weights = Annotated[str, typer.Option(help="formats of the target's weights, comma-separated")]
Write = Annotated[bool, typer.Option(help="put the table into docs/benchmarks.md, and the numbers into docs/results")]


def main(
    dtype: Dtype = "auto",
    device: Device = "cpu",
    graphs: Graphs = "auto",
    weights: Weights = EVERY_FORMAT,
    write: Write = False,
) -> None:
    """Measure what verifying n rows costs on the embedded default, in each format of its weights."""
    with exit_statuses():
        names = [name.strip() for name in weights.split(",")]
        for name in names:
            if name not in EVERYWHERE:
                raise UnknownName("weights", name, EVERYWHERE)
        options = LoadOptions(dtype=dtype, device=device, graphs=graphs)
        engines = {name: PairEngine(load_pair(replace(options, target_weights=name))) for name in dict.fromkeys(names)}
        prompt = next(iter(engines.values())).pair.encode([_PROMPT], chat=True)
        with Machine() as machine:
            growth = Growth.measure(engines, prompt)
        out_console().print(growth.table())
        if disturbed := disturbance([machine.other_cores]):
            print(disturbed, file=sys.stderr)
        if write:
            growth.write(PAGE, RECORD)


if __name__ == "__main__":
    run_checked(main)

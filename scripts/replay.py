"""Price rules, lengths, trees, verifiers and batches on a full trace, without a model."""

from pathlib import Path
from typing import Annotated

import typer

from ablation.commands.shared.checked import run_checked
from ablation.commands.shared.options import exit_statuses, out_console

Trace = Annotated[
    Path, typer.Argument(metavar="TRACE", help="what a run with --full-trace wrote, or a simulator's rows")
]
Rule = Annotated[str | None, typer.Option(metavar="NAME", help="a draft-length rule in place of the own")]
Gamma = Annotated[str | None, typer.Option(metavar="N,...", help="fixed lengths")]
Nodes = Annotated[str | None, typer.Option(metavar="N,...", help="nodes of a tree, at most")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="a parameter of the rule; repeatable")
]
Strategy = Annotated[str | None, typer.Option(metavar="NAME", help="what rejection or target_match would accept")]
Methods = Annotated[str | None, typer.Option(metavar="NAME,...", help="only these methods of the trace")]
Batch = Annotated[int, typer.Option(min=1, help="sequences side by side")]
PriceOf = Annotated[
    str, typer.Option(metavar="FILE|fitted", help="what a round costs; fitted: as the rounds of the trace did")
]
Bounded = Annotated[
    bool, typer.Option("--bounded", help="hold rules to the drafts of the trace, where they ask for more")
]
Bounds = Annotated[bool, typer.Option("--bounds", help="also the best fixed lengths and the oracle")]
Gap = Annotated[
    Path | None, typer.Option(metavar="DIR", help="split what the oracle leaves, under --rule or all; a report there")
]
Out = Annotated[Path | None, typer.Option(metavar="FILE.csv", help="also write the rows as a results file")]
Simulator = Annotated[
    Path | None, typer.Option(metavar="FILE.jsonl", help="also write SpecDecode-Bench's simulator rows")
]


def main(
    trace: Trace,
    rule: Rule = None,
    gamma: Gamma = None,
    tree_tokens: Nodes = None,
    assignments: Sets = None,
    verify_strategy: Strategy = None,
    methods: Methods = None,
    batch: Batch = 1,
    price: PriceOf = "fitted",
    bounded: Bounded = False,
    bounds: Bounds = False,
    gap: Gap = None,
    out: Out = None,
    simulator: Simulator = None,
) -> None:
    """Replay a full trace: the recorded settings, or any rule, length, tree budget, verifier or batch in their place.

    \b
    uv run infer.py run --prompts p.jsonl --methods target,speculative,mtp --trace t.jsonl --full-trace
    uv run scripts/replay.py t.jsonl
    uv run scripts/replay.py t.jsonl --gamma 1,2,4,8 --bounds
    uv run scripts/replay.py t.jsonl --rule egag --set egag_gamma_max=8
    uv run scripts/replay.py t.jsonl --gamma 4 --batch 8
    uv run --extra gap scripts/replay.py t.jsonl --gap folder
    """
    with exit_statuses():
        # Late, so that --help and a wrong call need no pandas.
        from ablation.commands.replay import ReplayCall, replay

        sets = tuple(assignments or ())
        asked = ReplayCall(
            trace, rule, gamma, tree_tokens, sets, verify_strategy, methods, batch, price, bounded, bounds, gap
        )
        replay(asked, out_console(), out, simulator)


if __name__ == "__main__":
    run_checked(main)

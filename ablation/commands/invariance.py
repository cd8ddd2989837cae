"""The command `invariance`: which numbers of rows give a row the same bits, and where they do not."""

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablation.commands.quality import refuse_to_replace
from ablation.commands.shared.opened import opened
from ablation.commands.shared.options import Json, exit_statuses, load_chosen, out_console
from sampling.loading.options import LoadOptions
from utils.device.torchrun import refuse_under_torchrun
from utils.errors import UserError, wrong_value
from utils.parameter import Values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sampling.pair.pair import Pair
    from sampling.proof.invariance import CountResult

_ROWS = "1,2,3,5,9,17,33"
_MOST = 1024
_PICTURES = (".svg", ".png", ".pdf")


@opened(models=LoadOptions)
def invariance(
    *,
    rows: Annotated[str, typer.Option(metavar="N,...", help="Numbers of rows.", show_default=True)] = _ROWS,
    context: Annotated[int, typer.Option(min=1, help="Tokens before the compared rows.")] = 150,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Plot the differing rows; also .png and .pdf.")
    ] = None,
    models: Values,
    json: Json = False,
) -> None:
    """Compare rows fed together with the same rows fed one by one, bit for bit, operation by operation.

    Where greedy output with speculation differs from plain decoding's, this says whether the model's own arithmetic
    does it, and which operation is the first: no drafter takes part. 1 row is fed twice: it tells whether the same
    forward gives the same bits again.

    Example: infer.py invariance --batch-invariant off --rows 1,2,5 --context 300

    Exit status: 0 all rows have the same bits; 1 some differ; 2 the call is wrong.
    """
    with exit_statuses():
        refuse_under_torchrun("invariance", "one process")
        counts = _counts(rows)
        _refuse_picture(picture)
        pair = load_chosen(models)
        if pair.encoder:
            raise UserError(f"{pair.target_info.name} is an encoder-decoder model; expected a decoder-only one")
        results = []
        for result in _results(pair, counts, context):
            results.append(result)
            if json:
                typer.echo(json_module.dumps(_facts(result, context)))
        if picture is not None:
            from ablation.report.plots.invariance import draw

            draw(picture, pair.target_info.name, results)
        if not json:
            _show(results)
    raise typer.Exit(1 if any(result.first for result in results) else 0)


def _results(pair: "Pair", counts: list[int], context: int) -> "Iterator[CountResult]":
    """The numbers of rows, one after the other, and what is compared where that is not all."""
    from sampling.forward.runner import has_one_width
    from sampling.pair.model_info import probe_ids
    from sampling.proof.invariance import compare_counts

    one_width = pair.target if has_one_width(pair.target) else None
    if one_width is not None:
        typer.echo("All forwards have one width: logits are compared, and no other operation.", err=True)
    elif pair.target_info.graphs:
        typer.echo("Forwards are compared as they are without graphs.", err=True)
    return compare_counts(pair.target.model, probe_ids(pair.tokenizer), counts, context, one_width)


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        raise wrong_value("--rows", text, "whole numbers with commas between, as in 1,2,5") from None
    if any(not 1 <= count <= _MOST for count in counts):
        raise wrong_value("--rows", text, f"numbers from 1 to {_MOST}")
    return counts


def _refuse_picture(path: Path | None) -> None:
    if path is not None and path.suffix not in _PICTURES:
        raise wrong_value("--picture", str(path), f"a name that ends with {', '.join(_PICTURES)}")
    refuse_to_replace(path)


def _facts(result: "CountResult", context: int) -> dict[str, object]:
    first = None if result.first is None else asdict(result.first)
    return {"rows": result.rows, "context": context, "first": first, "logit": result.logit, "ulp": dict(result.ulp)}


def _show(results: "list[CountResult]") -> None:
    from rich.table import Table

    table = Table(box=None)
    for heading in ("rows", "bits", "first operation that differs", "in rows", "ULP", "logits"):
        table.add_column(heading, justify="left" if heading.startswith(("bits", "first")) else "right")
    for result in results:
        first = result.first
        if first is None:
            table.add_row(str(result.rows), "equal", "", "", "", "")
        else:
            differing = first.operation, f"{first.rows} of {result.rows}", f"{first.ulp:,}", f"{result.logit:.2g}"
            table.add_row(str(result.rows), "differ", *differing)
    out_console().print(table)
    alike = [str(result.rows) for result in results if result.first is None]
    typer.echo(f"Numbers of rows without a changed bit: {', '.join(alike) or 'none'}.")
    if len(alike) < len(results):
        typer.echo("ULP: units in the last place; logits: how far one of them is off; the largest of both.")

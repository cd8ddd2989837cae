"""The command `profile`: what a pair's forwards and drafts cost here. What is slow to import waits for a right call."""

import json as json_module
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablation.commands.shared.opened import opened
from ablation.commands.shared.options import Json, exit_statuses, load_chosen, out_console
from sampling.loading.options import LoadOptions
from utils.parameter import Values

if TYPE_CHECKING:
    from sampling.pair.pair import Pair
    from sampling.pair.profile import LatencyProfile

_BUDGET_S = 30.0
_PARTS = 100


@opened(models=LoadOptions)
def profile(
    *,
    refresh: Annotated[bool, typer.Option("--refresh", help="Repeat measurements that are stored.")] = False,
    seconds: Annotated[float, typer.Option(min=0, help="Maximum time of the measurement.")] = _BUDGET_S,
    models: Values,
    json: Json = False,
) -> None:
    """Show what the target's forwards and each drafter's drafts cost on this machine; measure it where nobody has.

    It is kept beside the choices of kernels, for these weights, formats and this machine, and read by whatever weighs
    costs: rules, the time that a plan takes, the predictions of reports. What was measured beside busy processes is
    shown and not kept.

    Exit status: 0 shown; 2 the call is wrong; 130 stopped by Ctrl-C, which keeps nothing.
    """
    with exit_statuses():
        pair = load_chosen(models)
        profile_found = pair.profile
        if profile_found is None or refresh:
            profile_found = _measured(pair, seconds)
        kept = _kept(pair, profile_found)
        if json:
            typer.echo(json_module.dumps(_facts(pair, profile_found, kept)))
        else:
            _show(profile_found, kept)


def _measured(pair: "Pair", seconds: float) -> "LatencyProfile":
    from ablation.run.progress.bar import told
    from sampling.measure.times.profiling import measure

    with told("profile") as tell:
        return measure(pair, lambda share: tell(int(share * _PARTS), _PARTS), seconds)


def _kept(pair: "Pair", profile: "LatencyProfile") -> str | None:
    """The file that keeps this profile; None where none does."""
    from sampling.pair.profile_store import store_path, with_stored

    return str(store_path()) if with_stored(replace(pair, profile=None)).profile == profile else None


def _facts(pair: "Pair", profile: "LatencyProfile", kept: str | None) -> dict[str, Any]:
    names = {"target": pair.target_info.name, "drafter": pair.drafter_info and pair.drafter_info.name}
    return {**names, "target_weights": pair.target_info.stored, "kept": kept, **profile.as_dict()}


def _show(shown_profile: "LatencyProfile", kept: str | None) -> None:
    from rich.table import Table
    from rich.text import Text

    from ablation.results.tables import profile as cells

    console = out_console()
    for headers, rows in (
        (cells.forward_headers(shown_profile), cells.forward_rows(shown_profile)),
        (cells.DRAFTER_HEADERS, cells.drafter_rows(shown_profile)),
    ):
        table = Table(*headers)
        for row in rows:
            table.add_row(*map(Text, row))
        if rows:
            console.print(table)
    where = f"Kept in {kept}." if kept else "Not stored: other processes were busy, or the folder cannot be written."
    for line in (*cells.sentences(shown_profile), where):
        console.print(Text(line, style="dim"))

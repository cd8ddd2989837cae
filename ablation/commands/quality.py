"""The command `quality`: what rounding the target's weights costs. What is slow to import waits for a right call."""

import json as json_module
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablation.commands.shared.opened import opened
from ablation.commands.shared.options import (
    Json,
    exit_statuses,
    load_chosen,
    out_console,
)
from sampling.loading.options import DTYPES, EVERYWHERE, LOAD, WEIGHTS, load_options
from sampling.methods.chat_template import TemplateOptions, TemplateVariables
from utils.device.torchrun import refuse_under_torchrun
from utils.errors import UnknownName, UserError, wrong_value
from utils.option import option
from utils.parameter import Values
from utils.text import counted, shown

if TYPE_CHECKING:
    from ablation.plan.prompts.file import Prompt
    from ablation.run.formats import FormatComparison, FormatLine

# Of fewer, intervals over prompts say little.
_FEW_PROMPTS, _FEW_TOKENS = 6, 1000
FULL, ROUNDED, USUAL = WEIGHTS[0], WEIGHTS[1:], EVERYWHERE[1:]
_USUAL = ",".join(USUAL)

Formats = Annotated[
    str,
    typer.Option(metavar="NAME,...", help=f"Of {', '.join(ROUNDED)}; default: {', '.join(USUAL)}.", show_default=False),
]
Prompts = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SET|FILE", help="A built-in set or a file of prompts; repeatable; default: all built-in sets."
    ),
]
Limit = Annotated[int, typer.Option(min=1, help="Maximum number of prompts, taken from the sets in turn.")]
Length = Annotated[int, typer.Option(min=1, help="Maximum number of new tokens, for prompts without their own.")]
Output = Annotated[Path | None, typer.Option(metavar="FILE.jsonl", help="Write the JSON objects to this file as well.")]


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """The options of loading that hold for a target alone; the full weights are in float32, as what surrounds the
    rounded ones is."""

    target: str | None = option(None, LOAD["target"].help, LOAD["target"].usage)
    device: str = option("auto", LOAD["device"].help)
    dtype: str = option("float32", f"{', '.join(DTYPES)}; default: float32.")
    kernel: str = option("auto", LOAD["kernel"].help)
    compile: str = option("auto", LOAD["compile"].help)
    trust_remote_code: bool = option(False, LOAD["trust_remote_code"].help)


@opened(models=TargetOptions, told=TemplateOptions)
def quality(
    *,
    formats: Formats = _USUAL,
    prompts: Prompts = None,
    limit: Limit = 20,
    length: Length = 100,
    told: Values,
    models: Values,
    json: Json = False,
    output: Output = None,
) -> None:
    """Compare the target's weights in rounded formats with the full ones: quality, memory and speed, side by side.

    Both read the greedy answers of the full weights. The speed is plain decoding's, interleaved on the same prompts.

    Exit status: 0 all ran; 1 a prompt was left out or the output could not be written; 2 the call is wrong; 130
    stopped by Ctrl-C: the prompt under way ends first (a second Ctrl-C stops it too), and whatever has finished is
    shown.
    """
    from ablation.plan.prompts.sets import ALL, find_sources, gather

    with exit_statuses():
        refuse_under_torchrun("quality", "one process: weights that are cut are not rounded")
        names = choose_formats(formats)
        load_options(models)
        played = gather(find_sources(prompts or (ALL,), Path.cwd()))[:limit]
        refuse_to_replace(output)
        variables = TemplateVariables.read(told)
        comparison = _loaded(names, {"dtype": "float32", **models}, variables)
        left_out, stopped = _play(comparison, played, length)
        _tell(comparison.lines() if comparison.tokens else [], json, output)
        if stopped:
            raise KeyboardInterrupt
    raise typer.Exit(1 if left_out else 0)


def choose_formats(text: str) -> tuple[str, ...]:
    """The rounded formats in a list with commas. Raises `UserError`."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name == FULL:
            raise wrong_value("--formats", text, f"only {', '.join(ROUNDED)}: {FULL} is what they are compared with")
        if name not in ROUNDED:
            raise UnknownName("format", name, ROUNDED)
        if names.count(name) > 1:
            raise UserError(f"--formats: {name} is given {names.count(name)} times; expected once")
    return names


def refuse_to_replace(output: Path | None) -> None:
    """Raises `UserError` for a file that is there, or in a folder that is not."""
    if output is None:
        return
    if output.exists():
        raise UserError(f"{str(output)!r} exists; it was left alone. Choose another name")
    if not output.parent.is_dir():
        raise UserError(f"{str(output)!r} cannot be written: there is no folder {str(output.parent)!r}")


def _loaded(names: Iterable[str], models: Mapping[str, Any], variables: TemplateVariables) -> "FormatComparison":
    """All formats in memory together; the rounded ones first, so that what cannot be rounded is told at once."""
    from ablation.run.formats import FormatComparison
    from sampling.pair.pair_engine import PairEngine

    rounded = {name: PairEngine(load_chosen({**models, "target_weights": name})) for name in names}
    return FormatComparison({FULL: PairEngine(load_chosen(models)), **rounded}, variables)


def _play(comparison: "FormatComparison", prompts: "Sequence[Prompt]", length: int) -> tuple[int, bool]:
    """How many prompts were left out, with the reason on stderr, and whether Ctrl-C ended it."""
    from ablation.run.progress.bar import told
    from utils.device.machine import Machine, disturbance
    from utils.interrupt import Interrupt

    typer.echo(f"warming up {counted(len(comparison.engines), 'format')}", err=True)
    comparison.warm_up()
    left_out: list[str] = []
    done = 0
    with Machine() as machine, Interrupt() as interrupt, told("prompts") as tell:
        tell(0, len(prompts))
        for done, prompt in enumerate(prompts, start=1):
            try:
                comparison.play(prompt, prompt.max_new_tokens or length)
            except UserError as error:
                left_out.append(f"{shown(prompt.id)} is left out: {error}")
            tell(done, len(prompts))
            if interrupt.asked:
                break
    for line in (*left_out, disturbance([machine.other_cores])):
        if line:
            typer.echo(line, err=True)
    stopped = interrupt.asked and done < len(prompts)
    if stopped:
        typer.echo(f"after {done} of {counted(len(prompts), 'prompt')}:", err=True)
    return len(left_out), stopped


def _tell(lines: "Sequence[FormatLine]", as_json: bool, output: Path | None) -> None:
    """Everything at once: a table, or an object a line; and the objects in a file."""
    from utils.files import write_atomically

    objects = [json_module.dumps(facts(line)) for line in lines]
    if output is not None and objects:
        write_atomically(output, "".join(f"{line}\n" for line in objects))
    for line in objects if as_json else ():
        typer.echo(line)
    if not as_json and lines:
        _show(lines)


def facts(line: "FormatLine") -> dict[str, Any]:
    """A format as one flat JSON object; unknown is null."""
    values = {**asdict(line), **asdict(line.quality)}
    del values["quality"]
    return {name: None if value != value else value for name, value in values.items()}


def _show(lines: "Sequence[FormatLine]") -> None:
    from rich.table import Table
    from rich.text import Text

    from ablation.results.tables.quality import QUALITY_HEADERS, QUALITY_MEANING, full_cells, quality_cells

    rows = []
    for line in lines:
        cells = full_cells(line.quality) if line.format == FULL else quality_cells(line.format, line.quality)
        rows.append((*cells, f"{line.tokens_per_s:.1f}", _ratio(line)))
    console = out_console()

    def drawn(between: str) -> Table:
        """The table; between: what stands between a figure and its interval."""
        table = Table(*QUALITY_HEADERS, "AR tokens/s", "against full")
        for row in rows:
            table.add_row(*(Text(cell.replace(" [", f"{between}[")) for cell in row))
        return table

    wide = drawn(" ")
    fits = console.measure(wide).maximum < console.width  # a measure is cut at the width
    console.print(wide if fits else drawn("\n"))
    quality, dtype = lines[0].quality, lines[0].dtype
    compared = f"{counted(quality.prompts, 'prompt')}, {quality.tokens:,} tokens"
    if quality.prompts < _FEW_PROMPTS or quality.tokens < _FEW_TOKENS:
        few = f"Only {compared} were compared: of so few, figures and intervals say little; expected "
        console.print(Text(f"{few}{_FEW_PROMPTS} prompts and {_FEW_TOKENS:,} tokens or more (--limit, --length)."))
    console.print(Text(f"{compared}; {FULL} is {dtype}. {QUALITY_MEANING}", style="dim"))


def _ratio(line: "FormatLine") -> str:
    """AR's own ratio is 1 by definition."""
    if line.format == FULL:
        return "1.00"
    if line.speed_ratio != line.speed_ratio:
        return "–"
    ends = f" [{line.speed_ratio_low:.2f}, {line.speed_ratio_high:.2f}]"
    return f"{line.speed_ratio:.2f}" + ("" if line.speed_ratio_low != line.speed_ratio_low else ends)

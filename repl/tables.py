"""The comparison as a table: plain autoregression as the reference row, every other method against it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from sampling.measure.metrics import RunMetrics
from sampling.methods import METHODS

if TYPE_CHECKING:
    from sampling.measure.comparison import Comparison
    from sampling.measure.divergence import Divergence

UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Row:
    """One method's line.

    other: why it is not compared with the reference (`Method.other`). remembers: it drafts from earlier answers too.
    """

    title: str
    metrics: RunMetrics
    speedup: float | None = None
    cost_ratio: float | None = None
    divergence: "Divergence | None" = None
    lossless: bool = True
    reference: bool = False
    other: str | None = None
    remembers: bool = False


def rows(comparison: "Comparison", names: Sequence[str], verdicts: Mapping[str, "Divergence | None"]) -> list[Row]:
    """The rows of the methods that ran."""
    return [
        Row(
            METHODS[name].title,
            comparison.metrics[name],
            comparison.speedup(name),
            comparison.cost_ratio(name),
            verdicts.get(name),
            comparison.lossless(name),
            name == "target",
            METHODS[name].other,
            _remembers({one.name: comparison.values[one.name] for one in METHODS[name].relevant(comparison.values)}),
        )
        for name in names
    ]


def _remembers(settings: Mapping[str, Any]) -> bool:
    """Whether a method with these settings drafts from earlier answers of the session as well."""
    return settings.get("max_cached_requests", 0) != 0 or settings.get("reset_in_between") is False


def _speedup(row: Row) -> Text:
    if row.speedup is None:
        return Text(UNKNOWN)
    if row.reference:
        return Text("1.00x")
    if row.speedup < 1:
        return Text(f"{row.speedup:.2f}x slower", "red")
    return Text(f"{row.speedup:.2f}x", "green")


def _output(row: Row) -> Text:
    words = []
    if not row.lossless:
        words.append(("LOSSY", "bold red"))
    if row.metrics.finish_reason is None:
        words.append(("stopped", "yellow"))
    elif row.reference:
        words.append(("reference", "dim"))
    elif row.other is not None:
        words.append((row.other, "dim"))
    elif row.divergence is not None:
        words.append(_verdict(row.divergence))
    return Text(" ").join(Text(*word) for word in words) if words else Text(UNKNOWN)


def _verdict(divergence: "Divergence") -> tuple[str, str]:
    if divergence.verdict == "exact":
        return "exact", "green"
    if divergence.verdict == "tie":
        margin = UNKNOWN if divergence.margin is None else f"{divergence.margin:.2g}"
        return f"tie at {divergence.index} (margin {margin})", "yellow"
    return f"BUG at {divergence.index}", "bold red"


def _number(form: str, value: float | None) -> Text:
    return Text(UNKNOWN if value is None else form.format(value))


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and its cell; `main` ones make the first line of a stacked row."""

    heading: str
    cell: Callable[[Row], Text]
    main: bool = False


COLUMNS = (
    Column("method", lambda row: Text(row.title, "bold"), main=True),
    Column("tokens", lambda row: Text(str(row.metrics.new_tokens))),
    Column("tok/s", lambda row: _number("{:.1f}", row.metrics.tokens_per_s), main=True),
    Column("speedup", _speedup, main=True),
    Column("accepted", lambda row: _number("{:.0%}", row.metrics.acceptance_rate)),
    Column("alpha", lambda row: _number("{:.2f}", row.metrics.alpha)),
    Column("tok/round", lambda row: _number("{:.2f}", row.metrics.tokens_per_round)),
    Column("c", lambda row: _number("{:.2f}", row.cost_ratio)),
    Column("output", _output),
)


def comparison_table(lines: Sequence[Row], console: Console) -> RenderableType:
    """All columns where they fit; stacked lines, with nothing left out, where they do not."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for column in COLUMNS:
        left = column.heading in ("method", "output")
        table.add_column(column.heading, justify="left" if left else "right", no_wrap=column.heading != "output")
    for line in lines:
        table.add_row(*(column.cell(line) for column in COLUMNS))
    if console.measure(table, options=console.options.update(width=1000)).minimum <= console.width:
        return table
    return Group(*(_stacked(line) for line in lines))


def _stacked(line: Row) -> Text:
    """A method in two lines: what it is about, then the rest."""
    first, rest = Text(), []
    for column in COLUMNS:
        cell = column.cell(line)
        if column.main:
            unit = " tok/s" if column.heading == "tok/s" else ""
            first.append_text(cell).append(f"{unit}  ")
        elif cell.plain != UNKNOWN:
            rest.append(Text(f"{column.heading} ", "dim").append_text(cell))
    return Text("\n  ").join([first, Text(", ").join(rest)])


def notes(lines: Sequence[Row], settings: str, first: bool) -> list[str]:
    """What the numbers are against, and what to distrust."""
    whole = any(line.reference and line.metrics.finish_reason is not None for line in lines)
    if whole:
        said = ["speedup: tokens/s over our own AR on this prompt, one run each: small differences are noise"]
    elif any(line.reference for line in lines):
        said = ["no speedup: the reference was stopped"]
    else:
        said = ["no speedup: the reference is off (/target on)"]
    if any(line.speedup is not None and line.speedup < 1 for line in lines):
        said.append("a speedup below 1 is a slowdown")
    if any(not line.lossless for line in lines):
        said.append("LOSSY: the output does not follow the target's distribution")
    if trees := [line.title for line in lines if line.metrics.trees]:
        said.append(f"{', '.join(trees)}: a tree's other branches count as drafted; compare tok/round, not acceptance")
    if not first and (remembering := [line.title for line in lines if line.remembers]):
        said.append(
            f"{', '.join(remembering)}: drafted from earlier answers of this session too, so that a repeated "
            "prompt is fast; /max_cached_requests 0 and /reset_in_between on forget them"
        )
    said += [
        f"{line.title}: score {line.metrics.score:.3f}, {line.metrics.token_ms:.1f} ms a token; "
        "a search for a likelier text, so its output is another and its speed no speedup"
        for line in lines
        if line.metrics.score is not None
    ]
    said.append(settings)
    if first:
        said.append("first answer of this session: timings settle with the second")
    return said

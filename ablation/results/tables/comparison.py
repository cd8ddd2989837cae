"""THE comparison table: its columns, declared once, for the session, for `infer.py run` and for a report's summary."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ablation.results.stamp import LOSSY, stamped
from sampling.measure.ledger import PARTS, Ledger, ms

UNKNOWN = "-"
REFERENCE_WORDS = ("reference", "dim")
BUG, STOPPED = "BUG", "stopped"

Words = tuple[str, str]
Claim = Literal["", "faster", "slower", "n.s."]


@dataclass(frozen=True, slots=True)
class PredictionRatio:
    """Measured over predicted, and its 95 % interval where there is one."""

    ratio: float
    interval: tuple[float, float] | None = None

    @property
    def off(self) -> bool:
        """Whether the interval leaves out 1."""
        return self.interval is not None and not self.interval[0] <= 1.0 <= self.interval[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonLine:
    """A line of plain values: one run, or all runs of a configuration. None is unknown.

    claim: what the speedup may be called; of many runs, what a test says, `n.s.` (not significant) where it shows no
    difference.
    interval: of the speedup, where that is a median over prompts.
    output: words and their styles. lossless: None for another output. ledger: where the time of a token goes.
    predicted_ms: that time by the pair's profile.
    """

    title: str
    output: tuple[Words, ...] = ()
    lossless: bool | None = None
    reference: bool = False
    new_tokens: int | None = None
    tokens_per_s: float | None = None
    speedup: float | None = None
    claim: Claim = ""
    interval: tuple[float, float] | None = None
    predicted: float | None = None
    over_predicted: PredictionRatio | None = None
    ratio_of_sums: float | None = None
    acceptance_rate: float | None = None
    alpha: float | None = None
    tokens_per_round: float | None = None
    c: float | None = None
    ledger: Ledger | None = None
    predicted_ms: float | None = None


def claim_of(speedup: float | None) -> Claim:
    """What a speedup of one run on one prompt may be called."""
    if speedup is None:
        return ""
    return "slower" if speedup < 1 else "faster"


def verdict_words(verdict: str, index: int | None, margin: float | None = None) -> Words:
    """How an output compares with the reference's ids: exact, or where it parts and whether that is a tie."""
    if verdict == "exact":
        return "exact", "green"
    if verdict == "tie":
        return f"tie at {index}" + ("" if margin is None else f" (margin {margin:.2g})"), "yellow"
    return f"{BUG} at {index}", "bold red"


def _title(line: ComparisonLine) -> Text:
    text = Text(stamped(line.title, line.lossless), "bold")
    if line.lossless is False:
        text.stylize("red", len(text) - len(LOSSY))
    return text


def _speedup(line: ComparisonLine) -> Text:
    if line.reference and line.speedup is not None:
        return Text("1.00x")
    # What one run claims is not written out: a verdict is that of a test.
    tested = line.interval is not None or line.claim == "n.s."
    word = f" {line.claim}" if line.claim and tested else ""
    return _number(f"{{:.2f}}x{word}", line.speedup, {"slower": "red", "faster": "green"}.get(line.claim, ""))


def _interval(line: ComparisonLine) -> Text:
    # AR's own ratio is 1 by definition: an interval around it would claim a measurement.
    if line.interval is None or line.reference:
        return Text(UNKNOWN)
    return Text("{:.2f}-{:.2f}".format(*line.interval))


def _over_predicted(line: ComparisonLine) -> Text:
    if line.over_predicted is None:
        return Text(UNKNOWN)
    found = line.over_predicted
    ends = " {:.2f}-{:.2f}".format(*found.interval) if found.interval else ""
    return Text(f"{found.ratio:.2f}{ends}{' off' if found.off else ''}", "yellow" if found.off else "")


def _output(line: ComparisonLine) -> Text:
    return Text(" ").join(Text(*words) for words in line.output) if line.output else Text(UNKNOWN)


def _number(form: str, value: float | None, style: str = "") -> Text:
    return Text(UNKNOWN) if value is None else Text(form.format(value), style)


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, what it means, and the cell of a line.

    main: in the first line of a stacked row, with its `unit`. optional: left out where no line knows it.
    """

    heading: str
    meaning: str
    cell: Callable[[ComparisonLine], Text]
    main: bool = False
    unit: str = ""
    optional: bool = False


METHOD = Column("method", f"what ran; {LOSSY}: its output does not follow the target's distribution", _title, main=True)
TOKENS = Column("tokens", "new tokens", lambda line: _number("{}", line.new_tokens))
SPEED = Column(
    "tok/s", "tokens a second of decoding", lambda line: _number("{:.1f}", line.tokens_per_s), main=True, unit=" tok/s"
)
SPEEDUP = Column(
    "speedup",
    "tok/s over AR's on the same prompt, of one run",
    _speedup,
    main=True,
)
MEDIAN = Column(
    "median speedup",
    "in a summary: the median over prompts of the speedup, and the corrected test's verdict",
    _speedup,
    main=True,
    unit=" (median speedup)",
)
INTERVAL = Column("95 %", "interval of that median alone, not corrected; - of fewer than 5 prompts", _interval)
PREDICTED = Column(
    "predicted",
    "in a summary: the median over prompts of the speedups that the profile's costs predict for their rounds",
    lambda line: _number("{:.2f}x", line.predicted),
    optional=True,
)
OVER_PREDICTED = Column(
    "/ predicted",
    "in a summary: measured over predicted, the median of each prompt's ratio with its 95 % interval; off: without 1",
    _over_predicted,
    optional=True,
)
SUMS = Column(
    "ratio of sums",
    "in a summary: all tokens over all seconds, relative to AR's",
    lambda line: _number("{:.2f}", line.ratio_of_sums),
)
ACCEPTED = Column("accepted", "accepted share of all drafts", lambda line: _number("{:.0%}", line.acceptance_rate))
ALPHA = Column(
    "alpha", "share of the judged positions at which a draft was accepted", lambda line: _number("{:.2f}", line.alpha)
)
ROUND = Column("tok/round", "tokens per target forward", lambda line: _number("{:.2f}", line.tokens_per_round))
COST = Column("c", "time of a draft, in target forwards over one token", lambda line: _number("{:.2f}", line.c))
OUTPUT = Column("output", "compared with AR under greedy: exact, a tie of logits, or a bug", _output)


def _part(name: str) -> Column:
    return Column(name, f"ledger: {PARTS[name]}", lambda line: _ms(getattr(line.ledger, name, None)))


def _ms(seconds: float | None) -> Text:
    return Text(UNKNOWN) if seconds is None else Text(ms(seconds))


TOKEN = Column(
    "ms/token",
    "time of a token; the parts add up to it",
    lambda line: _ms(line.ledger.total if line.ledger else None),
    main=True,
)
EVEN = Column(
    "break-even",
    "the tok/round needed to be as fast as AR",
    lambda line: _number("{:.2f}", line.ledger.break_even if line.ledger else None),
)
EVEN_ALPHA = Column(
    "at alpha",
    "the alpha needed to be as fast as AR; - if no alpha suffices",
    lambda line: _number("{:.2f}", line.ledger.needed_alpha if line.ledger else None),
)
PROFILE = Column(
    "profile",
    "ms/token predicted by the costs of the pair's profile, for the same rounds",
    lambda line: _number("{:.1f}", line.predicted_ms),
)

ONE_RUN = (METHOD, TOKENS, SPEED, SPEEDUP, ACCEPTED, ALPHA, ROUND, COST, OUTPUT)
MANY_RUNS = (METHOD, SPEED, MEDIAN, INTERVAL, PREDICTED, OVER_PREDICTED, SUMS, ACCEPTED, ALPHA, ROUND, COST, OUTPUT)
LEDGER = (METHOD, TOKEN, *map(_part, PARTS), EVEN, EVEN_ALPHA)
_SHARED = (SUMS, ACCEPTED, ALPHA, ROUND, COST, OUTPUT)
COLUMNS = (METHOD, TOKENS, SPEED, SPEEDUP, MEDIAN, INTERVAL, PREDICTED, OVER_PREDICTED, *_SHARED, *LEDGER[1:], PROFILE)
# Whose cells may break, the less room the more: names, which are what has to be typed, break last. The last one takes
# the room that there is, those before it the least they can: rich would narrow several below that.
_BREAKING = (
    (OUTPUT,),
    (OUTPUT, ROUND),
    (OUTPUT, ROUND, SPEEDUP, MEDIAN),
    (OUTPUT, ROUND, SPEEDUP, MEDIAN, METHOD),
)


_HEADING = 5

LEDGER_TITLE = "Where the time of a token went, in ms"


def ledger_table(lines: Sequence[ComparisonLine], console: Console) -> RenderableType:
    """Where the time of a token goes, a line each; with what a profile says, where there is one."""
    known = [line for line in lines if line.ledger is not None]
    return comparison_table(known, console, (*LEDGER, PROFILE) if any(line.predicted_ms for line in known) else LEDGER)


def comparison_table(
    lines: Sequence[ComparisonLine], console: Console, columns: Sequence[Column] = ONE_RUN
) -> RenderableType:
    """All columns where they fit; stacked lines, with nothing left out, where they do not."""
    columns = [
        column for column in columns if not column.optional or any(column.cell(line).plain != UNKNOWN for line in lines)
    ]
    for breaking in _BREAKING:
        table = _table(lines, columns, breaking)
        if console.measure(table, options=console.options.update(width=1000)).minimum <= console.width:
            return table
    return Group(*(_stacked(line, columns) for line in lines))


def _table(lines: Sequence[ComparisonLine], columns: Sequence[Column], breaking: Sequence[Column]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for column in columns:
        whole = column not in breaking
        heading = on_lines(column.heading if whole else column.heading.replace("/", "/ "))
        justify: Literal["left", "right"] = "left" if column in (METHOD, OUTPUT) else "right"
        cells = [column.cell(line).plain for line in lines]
        # Rich would cut what may not break, and words.
        width = max(
            cell_len(part) for cell in (*heading.split("\n"), *cells) for part in ([cell] if whole else cell.split())
        )
        fixed = width if column in breaking[:-1] else None
        table.add_column(heading, justify=justify, no_wrap=whole, min_width=width, width=fixed)
    for line in lines:
        table.add_row(*(column.cell(line) for column in columns))
    return table


def on_lines(heading: str) -> str:
    """A long heading on lines of a word, so that its numbers keep their width."""
    return fill(heading, _HEADING, break_long_words=False, break_on_hyphens=False)


def _stacked(line: ComparisonLine, columns: Sequence[Column]) -> Text:
    """A line in two: what it is about, then the rest."""
    first, rest = Text(), []
    for column in columns:
        cell = column.cell(line)
        if column.main:
            first.append_text(cell).append(f"{column.unit}  ")
        elif cell.plain != UNKNOWN:
            rest.append(Text(f"{column.heading} ", "dim").append_text(cell))
    return Text("\n  ").join([first, Text(", ").join(rest)])

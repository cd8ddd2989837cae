"""/why: where the time of the last answer's tokens went, as bars, a table and sentences."""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ablation.results.tables.comparison import LEDGER_TITLE, ledger_table
from repl.screen.tables import TableRow, line_of, rows
from sampling.measure.acceptance.places import group_order
from sampling.measure.ledger import PARTS, Ledger, ms
from utils.errors import UnknownName, UserError

if TYPE_CHECKING:
    from repl.answers import Answers

# A sign for those who see no colours, and one for terminals without either.
_LOOKS = {
    "verify": ("█", "#", "blue"),
    "growth": ("▓", "%", "magenta"),
    "draft": ("▒", "=", "yellow"),
    "judging": ("░", ":", "cyan"),
    "rest": ("·", ".", "white"),
}
# Of the line: what a bar's name may take at most, and what stands behind it.
_NAME_SHARE, _BEHIND = 3, 18
_PLACES = {"phase": "phase of the text", "output": "tokens of the answer before"}


def page(answers: "Answers", wanted: str, console: Console) -> RenderableType:
    """Bars and table of what ran, and why each is as fast as it is; of one run beside AR, where one is `wanted`.

    Raises `UserError` where nothing of it ran, or nothing is known.
    """
    lines = rows(answers.comparison, answers.finished(), {}, answers.runs)
    if wanted:
        lines = _chosen(lines, answers, wanted)
    known = [line for line in lines if line.ledger is not None]
    if not known:
        raise UserError(f"there is no ledger: {'; '.join(map(_lacking, lines)) or 'nothing was generated'}")
    parts: list[RenderableType] = [Text(LEDGER_TITLE, "bold"), *bars(known, console), _legend(console)]
    parts.append(ledger_table([line_of(line) for line in known], console))
    said = [f"{line.title}: {line.ledger}" for line in known if not line.reference]
    said += [_lacking(line) for line in lines if line.ledger is None]
    if not any(line.reference for line in known):
        said.append("no AR ran here: what a plain forward takes is the profile's")
    return Group(*parts, *(Text(text, "dim") for text in said), *_by_place(answers, {line.title for line in lines}))


def _by_place(answers: "Answers", titles: Collection[str]) -> Iterator[RenderableType]:
    """Alpha of the runs that drafted, by phase of the text and by how far the answer was."""
    from sampling.measure.acceptance.place_rates import place_shares

    rounds = [at for name in answers.finished() for at in answers.rounds_at(name) if at.name in titles]
    shares = place_shares(rounds)
    for kind, head in _PLACES.items():
        own = [share for share in shares if share.kind == kind]
        groups = sorted({share.group for share in own}, key=lambda group: group_order(kind, group))
        if len(groups) < 2:
            continue
        table = Table(f"alpha by {head}", *groups, box=None, padding=(0, 2, 0, 0), header_style="dim")
        for name in dict.fromkeys(share.name for share in own):
            cells = {share.group: f"{share.share:.2f} of {share.cases:.0f}" for share in own if share.name == name}
            table.add_row(Text(name), *(cells.get(group, "-") for group in groups))
        yield table


def _chosen(lines: Sequence[TableRow], answers: "Answers", wanted: str) -> list[TableRow]:
    """The run that is called so, by its name or its title, and AR."""
    names = {call.lower(): answers.runs[name].title for name in answers.finished() for call in answers.runs[name].calls}
    if wanted.lower() not in names:
        raise UnknownName("run of the last answer", wanted, answers.finished())
    return [line for line in lines if line.reference or line.title == names[wanted.lower()]]


def _lacking(line: TableRow) -> str:
    """Why a run has no ledger."""
    if line.other is not None:
        return f"{line.title} is compared with nothing: {line.other}"
    return f"{line.title}: what a plain forward takes is not known; it needs AR beside it (/target on)"


def bars(lines: Sequence[TableRow], console: Console) -> Iterator[Text]:
    """A bar a run, as long as its token took; the longest fills the line."""
    ledgers = [(line.title, line.ledger) for line in lines if line.ledger is not None]
    widest = max(cell_len(title) for title, _ in ledgers)
    beside = widest if widest * _NAME_SHARE <= console.width else 0
    room = max(10, console.width - beside - (1 if beside else 2) - _BEHIND)
    longest = max(_length(ledger) for _, ledger in ledgers)
    for title, ledger in ledgers:
        bar = Text(f" {ms(ledger.total)} ms {ledger.speedup:.2f}x")
        bar = _bar(ledger, room / longest, console).append_text(bar)
        name = Text(title, "bold")
        if beside:
            name.pad_right(beside - cell_len(title))
        yield name.append(" " if beside else "\n  ").append_text(bar)


def _bar(ledger: Ledger, scale: float, console: Console) -> Text:
    """The parts side by side; each ends where the sum so far does, so that rounding adds nothing."""
    bar, done, drawn = Text(), 0.0, 0
    for part in PARTS:
        done += max(0.0, getattr(ledger, part))
        cells = round(done * scale) - drawn
        bar.append(_sign(part, console) * cells, _LOOKS[part][2])
        drawn += cells
    return bar


def _length(ledger: Ledger) -> float:
    """Seconds that are drawn: a part below 0 is noise, and has no length."""
    return sum(max(0.0, float(getattr(ledger, part))) for part in PARTS)


def _sign(part: str, console: Console) -> str:
    shade, ascii_only, _ = _LOOKS[part]
    return ascii_only if console.options.ascii_only else shade


def _legend(console: Console) -> Text:
    """What the signs and colours are."""
    legend = Text()
    for part, meaning in PARTS.items():
        colour = _LOOKS[part][2]
        legend.append(_sign(part, console), colour).append(f" {part} ({colour}): {meaning}\n", "dim")
    legend.rstrip()
    return legend

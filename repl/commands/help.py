"""The pages of /help."""

from collections.abc import Iterable, Mapping

from repl.commands.command import GROUPS, SessionCommand
from repl.own_settings import DEFAULT
from repl.replies import SectionSheet, SheetSection
from repl.session import Session

TABLE = "table"
_LIVE = {
    "H": "entropy of the drafter's distribution for the first draft, in nats; EGAG drafts less if it is high",
    "gamma": "draft length of the rule; `16 (drafted 2)`: the drafter stopped at 2",
    "round": "a round is one forward of the target: it verifies the drafts and adds one token",
    "by position": "acceptance rate of the judged drafts at each position, from the first",
    "score": "mean log-probability of a beam per token",
}
_METRICS = "Formulas and sources: docs/metrics.md."
Commands = Mapping[str, SessionCommand]

_KEYS = (
    "A line without / is a prompt; \\n and \\t in it become a newline and a tab. A space before a slash, or before "
    "help, exit or quit, makes it a prompt. Esc Enter (Alt-Enter) starts a new line, Up recalls, Tab completes.",
    "Ctrl-C stops a generation or clears the line; Ctrl-D quits.",
)
_SETTINGS = f"/NAME alone shows a setting; /NAME {DEFAULT} restores its initial value."
_MORE = (
    "/help COMMAND explains one command, /help all shows all of them; /help table explains the numbers.",
    _SETTINGS,
    "Tab completes, Up recalls, Esc Enter adds a line; Ctrl-C stops, Ctrl-D quits.",
)


def first_page() -> SectionSheet:
    """The groups, a line each: fits a terminal of 80 by 24, menu and toolbar included."""
    lines = tuple((group.name, "", group.help) for group in GROUPS.values())
    return SectionSheet(
        "Type a question to get an answer. Commands come in groups; /help GROUP shows one:",
        (SheetSection("", lines),),
        _MORE,
    )


def group_page(session: Session, name: str, commands: Commands) -> SectionSheet:
    """The commands of one group with their values."""
    commands_there = [command for command in commands.values() if command.group == name]
    return SectionSheet(GROUPS[name].help.capitalize(), _sections(session, commands_there), (_SETTINGS,))


def whole_page(session: Session, commands: Commands) -> SectionSheet:
    """All commands with their values."""
    order = list(GROUPS)
    sorted_ = sorted(commands.values(), key=lambda command: order.index(command.group))
    return SectionSheet("Commands, with their current values", _sections(session, sorted_), (_SETTINGS, *_KEYS))


def table_page() -> SectionSheet:
    """What the columns of a table say, and the numbers under a growing answer."""
    from ablation.results.tables.comparison import LEDGER, ONE_RUN, PROFILE

    sections = {"Columns of the table": ONE_RUN, "Columns of /why": (*LEDGER[1:], PROFILE)}
    told = [
        SheetSection(heading, tuple((column.heading, "", column.meaning) for column in columns))
        for heading, columns in sections.items()
    ]
    live = SheetSection("Under a growing answer", tuple((name, "", text) for name, text in _LIVE.items()))
    return SectionSheet("Meaning of the numbers", (*told, live), (_METRICS,))


def number_page(name: str) -> SectionSheet | None:
    """What one of those says; None where there is no such number."""
    from ablation.results.tables.comparison import COLUMNS

    known = {**_LIVE, **{column.heading: column.meaning for column in COLUMNS}}
    called = {heading.lower(): heading for heading in known}.get(name)
    if called is None:
        return None
    return SectionSheet(called, (SheetSection(f"{known[called][0].upper()}{known[called][1:]}.", ()),), (_METRICS,))


def command_page(session: Session, command: SessionCommand) -> SectionSheet:
    """One command in full."""
    lines = [("usage", command.call, "")]
    if command.setting:
        lines.append(("current", session.show(command.setting.name), ""))
        lines.append(("default", command.setting.show(command.setting.default), ""))
    lines.append(("example", f"/{command.name} {command.example}".rstrip(), ""))
    if command.aliases:
        lines.append(("also", ", ".join(f"/{alias}" for alias in command.aliases), ""))
    return SectionSheet(
        f"/{command.name}", (SheetSection(command.help, tuple(lines)),), (command.detail,) if command.detail else ()
    )


def _sections(session: Session, commands: Iterable[SessionCommand]) -> tuple[SheetSection, ...]:
    headings: dict[str, list[tuple[str, str, str]]] = {}
    for command in commands:
        value = session.show(command.setting.name) if command.setting else ""
        heading = command.heading or command.group.capitalize()
        headings.setdefault(heading, []).append((command.call, value, command.help))
    return tuple(SheetSection(heading, tuple(lines)) for heading, lines in headings.items())

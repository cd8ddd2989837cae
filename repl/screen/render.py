"""Replies on the screen."""

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from repl.replies import Message, Reply, SectionSheet, SheetSection
from utils.text import shown

_WIDE = 70


def show(console: Console, reply: Reply) -> None:
    """Print a reply."""
    if isinstance(reply, Message):
        line(console, Text(shown(reply.text), "dim"))
    else:
        console.print(_sheet(reply, console.width))


def problem(console: Console, text: str) -> None:
    """Print a failure."""
    line(console, Text.assemble(("error: ", "bold red"), shown(text, lines=True)))


def line(console: Console, text: Text) -> None:
    """Print one line, which stays one line where no terminal breaks it."""
    console.print(text, soft_wrap=not console.is_terminal)


def _sheet(sheet: SectionSheet, width: int) -> RenderableType:
    parts: list[RenderableType] = [Text(sheet.title, "bold")]
    for section in sheet.sections:
        if section.heading:
            parts.append(Text(section.heading, "bold blue"))
        parts.append(Padding(_grid(section) if width >= _WIDE else _stacked(section), (0, 0, 0, 2)))
    parts.extend(Text(note, "dim") for note in sheet.notes)
    return Group(*parts)


def _grid(section: SheetSection) -> Table:
    grid = Table.grid(padding=(0, 2), pad_edge=False)
    grid.add_column(max_width=44)
    for _ in range(2):
        grid.add_column()
    for name, value, help in section.rows:
        grid.add_row(Text(shown(name)), Text(shown(value), "green"), Text(shown(help), "dim"))
    return grid


def _stacked(section: SheetSection) -> Group:
    """For narrow terminals: name and value on a line, the explanation indented under it."""
    lines: list[RenderableType] = []
    for name, value, help in section.rows:
        lines.append(Text.assemble(shown(name), "  ", (shown(value), "green")))
        if help:
            lines.append(Padding(Text(shown(help), "dim"), (0, 0, 0, 2)))
    return Group(*lines)

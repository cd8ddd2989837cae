"""A report as Markdown, its plots linked from beside it."""

from collections.abc import Iterator
from urllib.parse import quote

from ablation.report.content import METHOD, ReportContent, ReportSection
from ablation.report.tables.cells import Table


def markdown(content: ReportContent) -> str:
    """The whole report.md."""
    lines = [f"# {safe(content.title)}", "", safe(content.facts), ""]
    lines += warning_lines(content.warnings)
    for section in content.sections:
        lines += _section(section)
    lines += ["## How it was computed", ""]
    for paragraph in METHOD:
        lines += [paragraph, ""]
    if content.manifest is not None:
        lines += ["## Manifest", "", "````json", content.manifest, "````", ""]
    return "\n".join(lines)


def warning_lines(warnings: tuple[str, ...]) -> list[str]:
    """The warnings under their heading; nothing where there are none."""
    return ["## Warnings", "", *(f"- **{safe(warning)}**" for warning in warnings), ""] if warnings else []


def table_lines(table: Table) -> list[str]:
    """A table's lines: header, rule, rows; numbers to the right."""
    return [
        _row(tuple(map(safe, table.headers))),
        "|" + "|".join(["---", *["---:"] * (len(table.headers) - 1)]) + "|",
        *(_row(tuple(safe(cell) for cell in row)) for row in table.rows),
    ]


def safe(text: str) -> str:
    """Text that Markdown shows as it is: names may hold underscores, pipes and angle brackets."""
    for mark in "\\|_*<`[]~$&":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


def _section(section: ReportSection) -> Iterator[str]:
    yield from (f"## {safe(section.title)}", "")
    # What holds for all tasks first: three tables, the pairs and the plots.
    for table in (*section.tables[:3], *([section.pairs] if section.pairs else [])):
        yield from _table(table)
    for plot in section.plots:
        yield from (f"![{safe(plot.caption)}]({quote(plot.stem)}.png)", "", safe(plot.caption), "")
    for table in section.tables[3:]:
        yield from _table(table)
    for note in section.notes:
        yield from (safe(note), "")


def _table(table: Table) -> Iterator[str]:
    yield from (f"### {safe(table.title)}", "")
    if table.rows:
        yield from (*table_lines(table), "")
    for note in table.notes:
        yield from (safe(note), "")


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"

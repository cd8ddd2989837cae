"""The tables of a report for LaTeX: `table` environments for `\\input`, with booktabs and nothing else."""

from collections.abc import Iterator

from ablation.report.content import ReportContent
from ablation.report.tables.cells import Table

_HEAD = (
    "% Written from results; a new report replaces this file. Needs \\usepackage{booktabs} and UTF-8.",
    "% In two columns, make table* of table.",
)
_INTERVALS = (
    "Median speedups and median ratios are over prompts, in brackets their 95 % intervals between two prompts' ratios, "
    "not corrected for their number; fewer than 5 prompts have none."
)
_MARKS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "_": r"\_",
    "%": r"\%",
    "&": r"\&",
    "#": r"\#",
    "$": r"\$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    # What a row begins with, the command before it would take for its option.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
}
_ESCAPES = str.maketrans(_MARKS)


def summary_tables(content: ReportContent) -> str:
    """summary.tex: speed, drafts and output, for all tasks and for each, of every processor."""
    tables = [(section.title, table) for section in content.sections for table in section.tables]
    return _document(content, tables, "summary", name_width=0.26)


def pair_tables(content: ReportContent) -> str:
    """pairs.tex: the paired tests of every processor."""
    tables = [(section.title, section.pairs) for section in content.sections if section.pairs]
    return _document(content, tables, "pairs", name_width=0.45)


def escaped(text: str) -> str:
    """Text that LaTeX sets as it is. Example: a_b 5 % -> a\\_b 5 \\%."""
    # Two hyphens would become a dash.
    return text.replace("--", "-\0-").translate(_ESCAPES).replace("\0", "{}")


def _document(content: ReportContent, tables: list[tuple[str, Table]], name: str, name_width: float) -> str:
    lines = list(_HEAD)
    for place, (title, table) in enumerate(tables, start=1):
        lines += ["", *_table(content, title, table, f"tab:{name}-{place}", name_width)]
    return "\n".join([*lines, ""])


def _table(content: ReportContent, section: str, table: Table, label: str, name_width: float) -> Iterator[str]:
    caption = escaped(f"{table.title}. {section}. {content.facts} {_INTERVALS}")
    yield from (r"\begin{table}", r"\centering\footnotesize\setlength{\tabcolsep}{3pt}")
    yield from (rf"\caption{{{caption}}}", rf"\label{{{label}}}")
    columns = f"p{{{name_width}\\linewidth}}{'r' * (len(table.headers) - 1)}"
    yield from (rf"\begin{{tabular}}{{{columns}}}", r"\toprule", _row(table.headers), r"\midrule")
    yield from map(_row, table.rows)
    yield from (r"\bottomrule", r"\end{tabular}")
    if notes := (*table.notes, *content.warnings):
        said = " ".join(map(escaped, notes))
        yield rf"\par\smallskip\parbox{{\linewidth}}{{\raggedright {said}}}"
    yield r"\end{table}"


def _row(cells: tuple[str, ...]) -> str:
    first, *others = map(escaped, cells)
    return " & ".join([rf"\raggedright {first}", *others]) + r" \tabularnewline"

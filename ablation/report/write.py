"""A report of a results file, written as a folder."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console

from ablation.report.caveats import caveats
from ablation.report.content import ReportContent, ReportSection, facts, make_section, manifest_text
from ablation.report.latex import pair_tables, summary_tables
from ablation.report.load import load_manifest, load_results
from ablation.report.markdown import markdown
from ablation.report.matrix.section import matrix_report
from ablation.report.origin import AGAINST, measured_on
from ablation.report.page import page
from ablation.report.plots.every_plot import answer_plot, place_plot, processor_plots
from ablation.report.plots.figure import Plot
from ablation.report.tables.acceptance import place_tables
from ablation.report.tables.batches import batches_section
from ablation.report.tables.best import compare_best, compare_rules
from ablation.report.tables.bounds import BoundRows, bound_rows
from ablation.report.tables.cells import Table
from ablation.report.tables.energy import energy_section
from ablation.report.tables.engines import engines_section
from ablation.report.tables.formats import formats_section
from ablation.report.tables.hosts import hosts_section
from ablation.report.tables.pairs import compare
from ablation.report.tables.predicted import Prices
from ablation.report.tables.summary import summarise
from ablation.report.terminal import print_summary
from ablation.results.traces.places import read_rounds
from ablation.results.traces.trace import trace_path
from sampling.measure.acceptance.place_rates import place_shares
from utils.errors import UserError
from utils.files import checked_path
from utils.text import shown


@dataclass(frozen=True, slots=True)
class Report:
    """What was written where: `summary` as in summary.csv, `warnings` a sentence each, worst first.

    answers: to the comparisons that the plan asked for. formats: tables of the formats of the target's weights and of
    batches. notes: what bounds among the rows are.
    """

    folder: Path
    summary: pd.DataFrame
    warnings: tuple[str, ...]
    answers: tuple[str, ...] = ()
    formats: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()

    def print(self, console: Console) -> None:
        """The summary as a table that fits the console, then the warnings."""
        print_summary(console, self.summary, self.warnings, self.answers, self.formats, self.notes)


def report_folder(results: Path) -> Path:
    """`name.report` beside `name.csv`."""
    return results.with_name(f"{results.stem}.report")


def write_report(results: Path, folder: Path | None = None) -> Report:
    """Write report.md, index.html, the summary and the pairs as .csv and .tex, and the plots.

    Files of an earlier report are replaced.

    Raises `UserError` for a results file or manifest that cannot be read and a folder that cannot be written.
    """
    if checked_path(str(results), "results file").is_dir():
        raise UserError(f"results file {str(results)!r} cannot be read: it is a folder; expected a CSV file")
    folder = folder or report_folder(results)
    _refuse_to_lose(results, folder)
    frame, manifest = load_results(results), load_manifest(results)
    summary = summarise(frame, Prices.of(manifest))
    asked = [pairs_asked for pairs_asked in (compare_best(frame, manifest), compare_rules(frame)) if len(pairs_asked)]
    pairs = pd.concat([*asked, compare(frame, summary)], ignore_index=True)
    warnings = tuple(map(shown, caveats(frame, summary, pairs, manifest)))
    formats, many = formats_section(frame, manifest), batches_section(frame, summary)
    engines, hosts = engines_section(frame, summary), hosts_section(frame, manifest)
    matrix, bound = matrix_report(frame), bound_rows(results)
    shown_rows = pd.concat([summary, bound.rows], ignore_index=True) if len(bound.rows) else summary
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shown_rows.to_csv(folder / "summary.csv", index=False)
        pairs.to_csv(folder / "pairs.csv", index=False)
        if matrix:
            matrix.matrix.frame().to_csv(folder / "matrix.csv", index=False)
        for section in (many, matrix.section if matrix else None):
            for plot in section.plots if section else ():
                plot.save(folder)
        first = [section for section in (hosts, engines, formats, many, energy_section(frame)) if section]
        sections = (
            *([matrix.section] if matrix else []),
            *first,
            *_sections(results, frame, summary, pairs, folder, bound),
        )
        title = f"Ablation report: {shown((manifest or {}).get('plan') or results.stem)}"
        head = facts(frame, shown(results.name)), shown(measured_on(manifest)), AGAINST
        content = ReportContent(title, " ".join(filter(None, head)), warnings, sections, manifest_text(manifest))
        _write_texts(folder, content)
    except OSError as error:
        raise UserError(f"report folder {str(folder)!r} cannot be written: {error.strerror or error}") from None
    answers = tuple(
        f"{pair['processor']}: {pair['verdict']}" for answers_of in asked for _, pair in answers_of.iterrows()
    )
    answers += (matrix.said,) if matrix else ()
    tables = [table for section in first for table in section.tables]
    return Report(folder, shown_rows, warnings, answers, tuple(tables), bound.notes)


def _write_texts(folder: Path, content: ReportContent) -> None:
    (folder / "report.md").write_text(markdown(content), encoding="utf-8")
    (folder / "index.html").write_text(page(content, folder), encoding="utf-8")
    (folder / "summary.tex").write_text(summary_tables(content), encoding="utf-8")
    (folder / "pairs.tex").write_text(pair_tables(content), encoding="utf-8")


def _refuse_to_lose(results: Path, folder: Path) -> None:
    """Raises `UserError` where a report would replace its own input, or a page that is no report."""
    for name in ("summary.csv", "pairs.csv"):
        if (folder / name).resolve() == results.resolve():
            raise UserError(f"the report's {name} would replace {str(results)!r}; choose another --out")
    page_file = folder / "report.md"
    if page_file.is_file() and not page_file.read_bytes().startswith(b"# Ablation report"):
        raise UserError(f"{str(page_file)!r} exists and is not a report; it was left alone; choose another --out")


def _sections(
    results: Path, frame: pd.DataFrame, summary: pd.DataFrame, pairs: pd.DataFrame, folder: Path, bound: BoundRows
) -> tuple[ReportSection, ...]:
    """One a processor, and one for the answer; each plot is saved as soon as it is drawn, and then let go."""
    sections = []
    for processor in dict.fromkeys(summary["processor"]):
        plots, notes = [], []
        for plot in processor_plots(frame, summary, processor):
            if isinstance(plot, str):
                notes.append(plot)
            else:
                plot.save(folder)
                plots.append(plot)
        sections.append(make_section(processor, summary, pairs, tuple(plots), tuple(notes), bound))
    return (*sections, *_places(results, folder), _answer(results, folder))


def _places(results: Path, folder: Path) -> tuple[ReportSection, ...]:
    """Acceptance by place, where a trace lies beside the results and something drafted."""
    rounds = list(read_rounds(trace_path(results)))
    shares = place_shares(rounds)
    if not shares:
        return ()
    plot = place_plot(shares)
    plot.save(folder)
    return (ReportSection("Acceptance by place", place_tables(shares, rounds), None, (plot,), ()),)


def _answer(results: Path, folder: Path) -> ReportSection:
    figure = answer_plot(results)
    if isinstance(figure, Plot):
        figure.save(folder)
        return ReportSection("Along one answer", (), None, (figure,), ())
    return ReportSection("Along one answer", (), None, (), (figure,))

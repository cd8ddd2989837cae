"""What the recorded runs say, computed from their rows."""

import re

from ablation.report.content import ReportContent, make_section
from ablation.report.load import load_results
from ablation.report.markdown import markdown
from ablation.report.tables.bounds import NO_BOUNDS
from ablation.report.tables.engines import engines_section
from ablation.report.tables.pairs import compare
from ablation.report.tables.summary import summarise
from tests.docs.pages import ROOT

RESULTS = ROOT / "docs" / "results"
# How a report writes an interval.
_REPORTED = re.compile(r"\\\[(\d+\.\d+), (\d+\.\d+)\\\]")


def recorded_intervals() -> set[str]:
    """Every interval in the tables of the recorded runs' reports, as pages quote it: "1.07 to 1.78".

    Runs that show equal outputs were played on a busy machine: no page may quote their times.
    """
    timed = (folder for folder in RESULTS.iterdir() if folder.is_dir() and not folder.name.startswith("exact"))
    reports = (_tables(folder.name) for folder in timed)
    return {f"{low} to {high}" for report in reports for low, high in _REPORTED.findall(report)}


def _tables(run: str) -> str:
    """A run's report without its plots."""
    frame = load_results(RESULTS / run / "results.csv")
    summary = summarise(frame)
    pairs = compare(frame, summary)
    names = dict.fromkeys(summary["processor"])
    engines = engines_section(frame, summary)
    sections = [make_section(name, summary, pairs, (), (), NO_BOUNDS) for name in names] + [engines] * bool(engines)
    return markdown(ReportContent(run, "", (), tuple(sections), None))

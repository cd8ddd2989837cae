"""A report as one HTML page that needs nothing but itself."""

import base64
from pathlib import Path

from ablation.report.content import METHOD, ReportContent
from ablation.report.plots.figure import Plot
from ablation.results.stamp import LOSSY
from ablation.results.tables.comparison import BUG
from utils.files import rendered


def page(content: ReportContent, folder: Path) -> str:
    """The whole index.html; the plots' PNG files are read from `folder` and put into it."""

    def image(plot: Plot) -> str:
        data = base64.b64encode((folder / f"{plot.stem}.png").read_bytes()).decode("ascii")
        return f"data:image/png;base64,{data}"

    above, below = _divided(content)
    template = Path(__file__).with_name("page.html.j2")
    return rendered(template, content=content, method=METHOD, image=image, above=above, below=below)


def _divided(content: ReportContent) -> tuple[list[str], list[str]]:
    """Warnings over the first table, which are those of wrong output, and below it, so that the table is seen first."""
    tables = any(section.tables for section in content.sections[:1])
    above = [text for text in content.warnings if not tables or text.startswith((BUG, LOSSY))]
    return above, [text for text in content.warnings if text not in above]

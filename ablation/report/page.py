"""A report as one HTML page that needs nothing but itself."""

import base64
from pathlib import Path

from ablation.report.content import METHOD, ReportContent
from ablation.report.plots.figure import Plot
from utils.html import rendered


def page(content: ReportContent, folder: Path) -> str:
    """The whole index.html; the plots' PNG files are read from `folder` and put into it."""

    def image(plot: Plot) -> str:
        data = base64.b64encode((folder / f"{plot.stem}.png").read_bytes()).decode("ascii")
        return f"data:image/png;base64,{data}"

    template = Path(__file__).with_name("page.html.j2")
    return rendered(template, content=content, method=METHOD, image=image)

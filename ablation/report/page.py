"""A report as one HTML page that needs nothing but itself."""

import base64
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ablation.report.content import METHOD, Content
from ablation.report.figure import Plot


def page(content: Content, folder: Path) -> str:
    """The whole index.html; the plots' PNG files are read from `folder` and put into it."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def image(plot: Plot) -> str:
        data = base64.b64encode((folder / f"{plot.stem}.png").read_bytes()).decode("ascii")
        return f"data:image/png;base64,{data}"

    return templates.get_template("page.html.j2").render(content=content, method=METHOD, image=image)

"""Pages from templates: what is put in is text, and a name that a template lacks is an error."""

from pathlib import Path
from typing import Any


def rendered(template: Path, **values: Any) -> str:
    """The page that a template file makes of these values."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(template.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template(template.name).render(**values)

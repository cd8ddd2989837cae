"""Fields of a result that say what they are: unit, meaning and formula live beside the type."""

from collections.abc import Iterator
from dataclasses import Field, field, fields
from typing import Any


def column(unit: str, meaning: str, formula: str = "") -> Any:
    """A dataclass field with its documentation, null until known."""
    return field(default=None, metadata={"unit": unit, "meaning": meaning, "formula": formula})


def metric(unit: str, meaning: str, formula: str = "") -> Any:
    """A column that `RunMetrics` holds under the same name."""
    return field(default=None, metadata={"unit": unit, "meaning": meaning, "formula": formula, "measured": True})


def keys(record: type[Any]) -> tuple[str, ...]:
    """The names of the columns, in order."""
    return tuple(f.name for f in fields(record))


def markdown(record: type[Any]) -> str:
    """The columns as a Markdown table: key, unit, meaning, formula."""
    rows = ["| key | unit | meaning | formula |", "|---|---|---|---|", *(_row(f) for f in fields(record))]
    return "\n".join(rows) + "\n"


def measured(record: type[Any]) -> Iterator[str]:
    """The names of the columns that a run's account holds."""
    return (f.name for f in fields(record) if f.metadata.get("measured"))


def _row(f: Field[Any]) -> str:
    formula = f"`{f.metadata['formula']}`" if f.metadata["formula"] else ""
    return f"| `{f.name}` | {f.metadata['unit']} | {f.metadata['meaning']} | {formula} |"

"""A record as one flat row of text cells: what a results file holds."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ablation.plan.grid import Key
from ablation.results.column import keys
from ablation.results.record import Record
from sampling.methods import METHODS
from sampling.settings import GENERAL, PARAMETERS

_FIRST = ("id", "turn", "task", "configuration", "method")
_LAST = ("error", "text")
_LEFT_OUT = ("settings", "output_ids")


def setting_columns() -> tuple[str, ...]:
    """One column a setting: the general ones, then the parameters of the methods."""
    general = tuple(parameter.name for parameter in GENERAL)
    return (*general, *(name for name in PARAMETERS if name not in METHODS and name not in general))


def columns() -> tuple[str, ...]:
    """All columns of a results file, in order: what was run, its settings, what was measured."""
    placed = (*_FIRST, "repeat", *_LAST, *_LEFT_OUT)
    measured = (name for name in keys(Record) if name not in placed)
    return (*_FIRST, *setting_columns(), "repeat", *measured, *_LAST)


def row(record: Record) -> dict[str, str]:
    """The cells of a record: unknown is empty, a list is numbers between spaces, a setting that does not matter
    to the method is empty."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: _cell(values.get(name, record.settings.get(name))) for name in columns()}


def key(cells: Mapping[str, str]) -> Key:
    """What a row is known by."""
    return Key(
        cells["id"],
        int(cells["turn"]),
        cells["configuration"],
        cells["processor"],
        int(cells["seed"]),
        int(cells["repeat"]),
    )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return " ".join(str(entry) for entry in value)
    return str(value)

"""Which methods a plan asks to compare at their best: `compare = [["egag", "speculative"]]`."""

from collections.abc import Collection
from typing import Any

from sampling.methods.tables import METHODS
from utils.errors import UserError, one_of, wrong_value

Comparisons = tuple[tuple[str, str], ...]


def read_comparisons(value: Any, present: Collection[str]) -> Comparisons:
    """Pairs of names of methods, each drafting and among those `present`. Raises `UserError`."""
    if not isinstance(value, list):
        raise _wrong(value)
    pairs = []
    for entry in value:
        if not isinstance(entry, list) or len(entry) != 2 or not all(isinstance(name, str) for name in entry):
            raise _wrong(entry)
        a, b = (METHODS[name].name for name in entry)
        for name in (a, b):
            if name not in present:
                raise UserError(f"compare: {name!r} given; expected {one_of(present)}, the plan's methods")
        if a == b:
            raise UserError(f"compare: {a!r} against itself given; expected two methods")
        pairs.append((a, b))
    return tuple(pairs)


def _wrong(value: Any) -> UserError:
    return wrong_value("compare", value, 'pairs of methods, such as [["egag", "speculative"]]')

"""The formats of the target's weights that a run compares. No torch is imported here."""

from collections.abc import Mapping
from typing import Any

from ablation.plan.section import many
from sampling.loading.options import LOAD, WEIGHTS
from utils.parameter import Values

NAME = "target_weights"


def read_formats(value: Any) -> str:
    """One format, a list of them, or names between commas, as those names between commas. Raises `UserError`."""
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    return ",".join(many(LOAD[NAME])(names))


def compared(pair: Values) -> tuple[str, ...]:
    """The formats that the options of a pair ask for, where there are several; none where one is loaded as it is."""
    names = tuple(str(pair.get(NAME, WEIGHTS[0])).split(","))
    return names if len(names) > 1 else ()


def to_load(pair: Values) -> Mapping[str, Any]:
    """The options of what is loaded: of several formats the full weights, of which the others are made.

    What is between the products is then float32 for all of them, as it is for rounded weights, unless `dtype` says.
    """
    if not compared(pair):
        return pair
    chosen = pair.get("dtype", "auto")
    return {**pair, NAME: WEIGHTS[0], "dtype": "float32" if chosen == "auto" else chosen}

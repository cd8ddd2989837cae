"""How much of a run is traced: nothing, its rounds, or all that replay needs."""

from typing import Any, Literal

from ablation.plan.section import one
from utils.errors import UserError, wrong_value
from utils.parameter import toggle

FULL: Literal["full"] = "full"
Traced = bool | Literal["full"]

_ROUNDS = toggle("trace", False, "write one line per round")


def read_traced(value: Any) -> Traced:
    """Reads true, false or full. Raises `UserError` for anything else."""
    if value == FULL:
        return FULL
    try:
        rounds: bool = one(_ROUNDS)(value)
    except UserError:
        raise wrong_value("trace", value, f"true, false or {FULL!r}") from None
    return rounds

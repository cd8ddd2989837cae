"""A dataclass that a person may fill in: the help and the limits of a field stand beside its type and default."""

from collections.abc import Mapping
from dataclasses import Field, field, fields
from typing import Any

from utils.errors import checked_text, wrong_value
from utils.parameter import LARGEST, Parameter, choice, integer, toggle

ANY_TEXT = "a text that is not empty"


def option(
    default: Any,
    help: str,
    usage: str = "",
    *,
    allowed: tuple[str, ...] = (),
    minimum: int | None = None,
    flag: str = "",
) -> Any:
    """A field with what its readers need to know.

    usage: what stands for the value in help. allowed: the only texts it takes; empty: any. minimum: of a whole
    number. flag: what the command line calls it, where that is not the field's own name.
    """
    about = {"help": help, "usage": usage, "allowed": allowed, "minimum": minimum, "flag": flag}
    return field(default=default, metadata=about)


def parameters(options: type) -> Mapping[str, Parameter]:
    """The fields by name, as what reads them from a text and refuses what is wrong: switches, integers and texts."""
    return {f.name: _parameter(f) for f in fields(options)}


def _parameter(f: Field[Any]) -> Parameter:
    default: Any = f.default
    if isinstance(default, bool):
        return toggle(f.name, default, f.metadata["help"])
    if (least := f.metadata["minimum"]) is not None:
        return integer(f.name, default, f.metadata["help"], minimum=least, maximum=LARGEST)
    if f.metadata["allowed"]:
        return choice(f.name, default, f.metadata["help"], f.metadata["allowed"])
    return words(f.name, f.metadata["usage"] or ANY_TEXT, default, f.metadata["help"])


def words(name: str, usage: str = ANY_TEXT, default: str | None = None, help: str = "") -> Parameter:
    """A free text."""

    def parse(text: str) -> str:
        if not text.strip():
            raise wrong_value(name, text, usage)
        return checked_text(text, name)

    return Parameter(name, default, help, usage, parse)

"""One table of a plan file, read key by key; what is wrong is collected, so that it is told all at once."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ablation.plan.lines import PlanLines
from utils.errors import UnknownName, UserError, wrong_value
from utils.parameter import Parameter

_SHOWN_ERRORS = 10
T = TypeVar("T")


@dataclass(slots=True)
class Faults:
    """What is wrong in a file called `name`, with the line of each."""

    name: str
    lines: PlanLines
    found: dict[tuple[int, str], None] = field(default_factory=dict)

    def add(self, message: str, key: str, table: str = "", place: int = 1) -> None:
        """Note what is wrong with a key; the same thing twice is noted once."""
        self.found.setdefault((self.lines.line(key, table, place) or 0, message))

    def check(self) -> None:
        """Raises `UserError` with the first ten faults, in the order of the lines."""
        shown = [f"line {line}: {message}" if line else message for line, message in sorted(self.found)]
        if shown:
            more = [f"and {len(shown) - _SHOWN_ERRORS} more"] if len(shown) > _SHOWN_ERRORS else []
            raise UserError("\n  ".join([f"plan {self.name!r}:", *shown[:_SHOWN_ERRORS], *more]))


@dataclass(frozen=True, slots=True)
class PlanSection:
    """A table of the file; `place` is which one of its name, from 1."""

    entries: Mapping[str, Any]
    faults: Faults
    table: str = ""
    place: int = 1

    def read(self, key: str, parse: Callable[[Any], T], default: T) -> T:
        """What `parse` makes of a key; the default where it is not there or wrong."""
        if key not in self.entries:
            return default
        try:
            return parse(self.entries[key])
        except UserError as error:
            self.fault(str(error), key)
            return default

    def allow(self, names: Sequence[str], shown: Sequence[str] | None = None, listed: str = "") -> None:
        """Note every key that is none of these; `shown`: what a message expects; `listed`: where many can be read."""
        strangers = [key for key in self.entries if key not in names]
        for number, key in enumerate(strangers):
            # The nearest name is looked for only as far as it is shown.
            said = (
                str(UnknownName("key", key, shown or names, listed))
                if number < _SHOWN_ERRORS
                else f"unknown key {key!r}"
            )
            self.fault(said, key)

    def fault(self, message: str, key: str) -> None:
        """Note what is wrong with a key."""
        self.faults.add(message, key, self.table, self.place)


def one(parameter: Parameter) -> Callable[[Any], Any]:
    """Reads a single value: a TOML number, boolean or string, as the parameter takes its text."""

    def parse(value: Any) -> Any:
        if isinstance(value, bool):
            return parameter.parse("true" if value else "false")
        if not isinstance(value, str | int | float):
            raise wrong_value(parameter.name, value, parameter.usage)
        try:
            text = str(value)
        except ValueError:  # an integer of thousands of digits
            raise wrong_value(parameter.name, value, parameter.usage) from None
        return parameter.parse(text)

    return parse


def many(parameter: Parameter) -> Callable[[Any], tuple[Any, ...]]:
    """Reads a single value or a list of them, each once."""

    def parse(value: Any) -> tuple[Any, ...]:
        items = value if isinstance(value, list) else [value]
        if not items:
            raise UserError(f"{parameter.name}: an empty list given; expected one value or more")
        values = tuple(one(parameter)(entry) for entry in items)
        twice = [text for text, count in Counter(map(parameter.show, values)).items() if count > 1]
        if twice:
            raise UserError(f"{parameter.name}: {twice[0]} is given twice; expected each value once")
        return values

    return parse


def unknown(kind: str, name: str, allowed: Sequence[str], file: str) -> UserError:
    """The error for a name that is none of the built-in ones and no file either."""
    said = str(UnknownName(kind, name, allowed))
    return UserError(f"{said}{'' if said.endswith('?') else '.'} A {file} file also works")

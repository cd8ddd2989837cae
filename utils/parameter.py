"""A parameter, declared once: parsing, limits, completion and help all come from here.

Values travel as plain Python objects in a dict `{name: value}`; text is parsed at the edge.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from utils.errors import UnknownName, UserError, nearest, wrong_value
from utils.text import quoted

Values = Mapping[str, Any]

LARGEST = 2**63 - 1
"""The largest integer that any setting takes."""

MOST_DRAFTS = 1024
"""Most drafts of a round: its masks are drafts by drafts, its logits drafts by vocabulary."""

MOST_TOKENS = 10_000_000
"""Most new tokens of a text: the context window of no model is longer."""

# As people write numbers: Python also takes 1_0, " 10", digits of other scripts, nan and inf.
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A named value with its limits.

    `parse` turns text into the value and raises `UserError`; `show` is its inverse, so that
    `parse(show(value)) == value`. `words` are what a completer offers, `usage` what help prints. least: the smallest
    value of a number that may be its own minimum, else None. between: what separates several values of it on one line.
    bounds_drafts: whether a round has as many drafts as it says, or more with it.
    """

    name: str
    default: Any
    help: str
    usage: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str
    words: tuple[str, ...] = ()
    least: float | None = None
    between: str = ","
    bounds_drafts: bool = False

    def checked(self, value: Any) -> Any:
        """An argument of a Python call, a list or an object as such, refused in the words of the command line."""
        try:
            if isinstance(value, dict):
                text = json.dumps(value)
            else:
                text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        except TypeError:  # no value of JSON
            raise wrong_value(self.name, value, self.usage) from None
        except ValueError:  # a number of too many digits
            raise UserError(f"{self.name}: a number of thousands of digits given; expected {self.usage}") from None
        return self.parse(text)


class Parametrised(Protocol):
    """A named thing with arguments, which a value may name."""

    @property
    def name(self) -> str: ...

    @property
    def parameters(self) -> tuple[Parameter, ...]: ...


@dataclass(frozen=True, slots=True)
class ChosenPart:
    """A part's name with its arguments, as typed in one value: `nucleus 0.8 0.9 min_p=0.1`.

    options: what any of the parts may have besides, by name.
    """

    name: str
    arguments: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        given = (shown_number(a) if isinstance(a, float) else str(a) for a in self.arguments)
        return " ".join([self.name, *given, *(f"{name}={value}" for name, value in self.options)])


def shown_number(value: float) -> str:
    """The number as text that reads back as the same number: 1, 0.1, 0.12345678."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def read_integer(text: str) -> int | None:
    """The integer that a text of ASCII digits stands for; None where it is none, or has thousands of digits."""
    try:
        return int(text) if _INTEGER.fullmatch(text) else None
    except ValueError:
        return None


def read_number(text: str) -> float | None:
    """The finite number that a text in decimal or scientific form stands for; None where it is none."""
    value = float(text) if _NUMBER.fullmatch(text) else float("inf")
    return None if abs(value) == float("inf") else value


def integer(name: str, default: int | None, help: str, *, minimum: int, maximum: int) -> Parameter:
    """An integer from `minimum` to `maximum`; a default of None means that it must be given.

    maximum: what a machine can bear where the number sizes something, else `LARGEST`.
    """
    bounded = maximum < LARGEST
    expected = f"an integer from {minimum} to {maximum}" if bounded else f"an integer of {minimum} or more"

    def parse(text: str) -> int:
        value = read_integer(text)
        if value is None or not minimum <= value <= maximum:
            raise wrong_value(name, text, expected)
        return value

    usage = f"{minimum} <= INT <= {maximum}" if bounded else f"INT >= {minimum}"
    return Parameter(name, default, help, usage, parse, least=minimum)


def drafts(name: str, default: int | None, help: str, *, minimum: int) -> Parameter:
    """How many drafts a round may have, or nearly so: an integer from `minimum` to `MOST_DRAFTS`."""
    return replace(integer(name, default, help, minimum=minimum, maximum=MOST_DRAFTS), bounds_drafts=True)


def number(
    name: str,
    default: float | None,
    help: str,
    *,
    above: float = float("-inf"),
    minimum: float = float("-inf"),
    below: float = float("inf"),
    maximum: float = float("inf"),
    unset: float | None = None,
) -> Parameter:
    """A finite number inside the bounds (`above` and `below` are exclusive), or `unset`, which stands for none."""
    usage = _range(above, minimum, below, maximum) + ("" if unset is None else f", or {unset:g}")

    def parse(text: str) -> float:
        value = read_number(text)
        if value is None or not (value == unset or (above < value < below and minimum <= value <= maximum)):
            raise wrong_value(name, text, usage)
        return value

    least = minimum if minimum > float("-inf") else None
    return Parameter(name, default, help, usage, parse, shown_number, least=least)


def numbers(name: str, default: tuple[float, ...], help: str, *, minimum: float, maximum: float) -> Parameter:
    """One number or more between commas, each inside the bounds: `0.8,0.6,0.4`. The value is a tuple.

    There is one for each draft of a round at most.
    """
    each = number(name, None, help, minimum=minimum, maximum=maximum)
    usage = f"{each.usage}, or several between commas"

    def parse(text: str) -> tuple[float, ...]:
        if text.count(",") >= MOST_DRAFTS:
            raise UserError(f"{name}: {text.count(',') + 1} numbers given; expected at most {MOST_DRAFTS}")
        try:
            return tuple(each.parse(part.strip()) for part in text.split(","))
        except UserError:
            raise wrong_value(name, text, usage) from None

    return Parameter(name, default, help, usage, parse, lambda values: ",".join(map(shown_number, values)), between=";")


def _range(above: float, minimum: float, below: float, maximum: float) -> str:
    """The bounds as help prints them: `NUMBER > 0`, `0 <= NUMBER < 1`."""
    low, at_least = (minimum, "=") if minimum > float("-inf") else (above, "")
    high, at_most = (maximum, "=") if maximum < float("inf") else (below, "")
    if high == float("inf"):
        return f"NUMBER >{at_least} {low:g}" if low > float("-inf") else "NUMBER"
    left = f"{low:g} <{at_least} " if low > float("-inf") else ""
    return f"{left}NUMBER <{at_most} {high:g}"


ON = ("on", "true", "yes", "1")
OFF = ("off", "false", "no", "0")


def toggle(name: str, default: bool, help: str) -> Parameter:
    """An on/off switch."""

    def parse(text: str) -> bool:
        if text.lower() in ON:
            return True
        if text.lower() in OFF:
            return False
        near = nearest(text, ("on", "off"))
        hint = f". Did you mean {near!r}?" if near else ""
        raise wrong_value(name, text, f"on or off{hint}")

    return Parameter(name, default, help, "[on|off]", parse, lambda value: "on" if value else "off", ("on", "off"))


def choice(name: str, default: str, help: str, allowed: tuple[str, ...]) -> Parameter:
    """One name of a few."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise UnknownName(name, text, allowed)
        return text

    return Parameter(name, default, help, "|".join(allowed), parse, str, allowed)


def choices(name: str, default: str, help: str, allowed: tuple[str, ...]) -> Parameter:
    """Several names of a few, each once, between spaces."""

    def parse(text: str) -> str:
        names = text.split()
        for word in names:
            if word not in allowed:
                raise UnknownName(name, word, allowed)
        if not names or len(set(names)) < len(names):
            raise wrong_value(name, text, f"names between spaces, each once, of {', '.join(allowed)}")
        return " ".join(names)

    return Parameter(name, default, help, "NAME NAME ...", parse, str, allowed)


def chosen(
    name: str,
    default: ChosenPart,
    help: str,
    parts: Mapping[str, Parametrised],
    options: Mapping[str, Parameter] | None = None,
) -> Parameter:
    """A line of a table with its arguments, by position or as `key=value`; shown without trailing defaults.

    options: what may follow the arguments of any line, as `key=value`.
    """
    options = options or {}

    def parse(text: str) -> ChosenPart:
        head, *rest = text.split() or [""]
        part = parts[head.lower()]
        given = _by_name(name, part, rest, options)
        besides = ((option, parameter.parse(given[option])) for option, parameter in options.items() if option in given)
        return ChosenPart(part.name, _arguments(name, part, given), tuple(besides))

    def show(value: ChosenPart) -> str:
        arguments = list(value.arguments)
        while arguments and arguments[-1] == parts[value.name].parameters[len(arguments) - 1].default:
            arguments.pop()
        shown = tuple((option, options[option].show(held)) for option, held in value.options)
        return str(ChosenPart(value.name, tuple(arguments), shown))

    usage = " | ".join(map(_usage, parts.values()))
    return Parameter(name, default, help, usage, parse, show, tuple(parts))


def _by_name(name: str, part: Parametrised, words: list[str], options: Mapping[str, Parameter]) -> dict[str, str]:
    """Words matched to the part's parameters, by position or by name, and to options, by name."""
    values_by_name: dict[str, str] = {}
    order, position = [p.name for p in part.parameters], 0
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key not in (*order, *options):
            raise UnknownName(f"argument of {part.name}", key, [*order, *options])
        if not equals:
            if position >= len(order):
                given = quoted(" ".join([part.name, *words]))
                raise UserError(f"{name}: too many arguments in {given}; expected {_usage(part)}")
            key, value = order[position], word
        if key in values_by_name:
            raise UserError(f"{name}: {key} is given twice in {quoted(' '.join([part.name, *words]))}; expected once")
        values_by_name[key] = value
        position += key in order
    return values_by_name


def _arguments(name: str, part: Parametrised, given: Mapping[str, str]) -> tuple[Any, ...]:
    """The values of the part's parameters; a missing one takes its default or is an error."""
    values = []
    for parameter in part.parameters:
        if parameter.name in given:
            values.append(parameter.parse(given[parameter.name]))
        elif parameter.default is None:
            raise UserError(f"{name}: {part.name} needs {parameter.name}; expected {_usage(part)}")
        else:
            values.append(parameter.default)
    return tuple(values)


def _usage(part: Parametrised) -> str:
    return " ".join([part.name, *(p.name for p in part.parameters)])

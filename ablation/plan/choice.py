"""Which methods a text names, and with which values; and a plan of them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ablation.plan.grid import Configuration, EngineSide, Plan
from ablation.plan.methods_table import check_values, foreign, lister
from ablation.plan.prompts.file import Prompt
from ablation.plan.slo import Slo
from sampling.methods.settings import PARAMETERS, Settings
from sampling.methods.tables import METHODS
from utils.errors import UnknownName, UserError, one_of
from utils.parameter import Values
from utils.text import quoted

# A text that is longer names no method; the expressions below would read it for minutes.
_LONGEST = 2000
_QUOTED = re.compile(r"""\"[^"]*"|'[^']*'""")
_PIECE = re.compile(r"""(?:"[^"]*"|'[^']*'|[^,"'])+""")
# A value ends where the next name= begins, so that it may hold spaces; in quotes it may hold anything.
_VALUE = re.compile(r"""(\w+)\s*=\s*("[^"]*"|'[^']*'|[^"']*?)\s*(?=\s\w+\s*=|$)""")
_BEGINS = re.compile(r"\s*\w+\s*=")
_NUMBER = re.compile(r"\s*[.\d]")


def choose_methods(text: str | None, settings: Settings) -> tuple[Configuration, ...]:
    """The named methods, each with its values; else those that are on. Raises `UserError`."""
    chosen = tuple(map(Configuration, settings.enabled())) if text is None else choose_runs(text, settings)
    if not chosen:
        raise UserError(f"no method to run; expected {one_of(METHODS)}")
    return chosen


def choose_names(text: str) -> tuple[str, ...]:
    """Names of methods between commas, in the given order. Raises `UserError` for a name that is there twice."""
    names = [METHODS[name.strip()].name for name in text.split(",") if name.strip()]
    for name in names:
        if names.count(name) > 1:
            raise _twice(name)
    return tuple(names)


def choose_runs(text: str, values: Values) -> tuple[Configuration, ...]:
    """Methods between commas, each with values of its own.

    `values` holds every setting. What tables print is understood as well, values between commas included.
    Raises `UserError` for what a method does not have, values that do not go together, and a run given twice.

    Example: 'mtp, mtp gamma=1, ngram set_ngramstorage="onelevel 4" top_k_filler=1' -> three runs.
    """
    if len(text) > _LONGEST:
        raise UserError(f"methods: {quoted(text)} given; expected at most {_LONGEST:,} characters")
    if re.search("[\"']", _QUOTED.sub("", text)):
        raise UserError(f"{quoted(text)} given: a quote is not closed")
    runs: list[Configuration] = []
    for item in _items(text):
        run = _read(item)
        check_values(run, values)
        if run in runs:
            raise _twice(run.name)
        runs.append(run)
    return tuple(runs)


def _twice(name: str) -> UserError:
    return UserError(f"{quoted(name)} is given twice; expected each run once")


def _items(text: str) -> Iterator[str]:
    """What stands for one run: a piece between commas that begins with name= or is a number continues the last one."""
    item = ""
    for piece in _PIECE.findall(text):
        if item and (number := _NUMBER.match(piece) or _BEGINS.match(piece)):
            item = f"{item}{',' if number.re is _NUMBER else ' '}{piece.strip()}"
            continue
        if item:
            yield item
        item = piece.strip()
    if item:
        yield item


def _read(item: str) -> Configuration:
    """A method and its values in the order of the method's parameters."""
    name, _, rest = item.partition(" ")
    method = METHODS[name]
    parameters = {parameter.name: parameter for parameter in method.parameters}
    values: dict[str, Any] = {}
    for key, text in _assignments(method.name, rest.strip(), list(parameters)):
        if key not in parameters:
            kind = f"parameter of {name}"
            raise (
                UserError(foreign(key, name)) if key in PARAMETERS else UnknownName(kind, key, parameters, lister(name))
            )
        if key in values:
            raise UserError(f"{quoted(item)}: {key} is given twice; expected one value")
        values[key] = parameters[key].parse(text.strip("\"'"))
    return Configuration(method.name, tuple((key, values[key]) for key in parameters if key in values))


def _assignments(method: str, text: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The pairs of `a=1 b=two words c="x=y"`."""
    place = 0
    while place < len(text):
        match = _VALUE.match(text, place)
        if match is None:
            allowed = f"NAME=VALUE with {one_of(names, lister(method))}" if names else "no value"
            raise UserError(f"{method}: {quoted(text[place:])} given; expected {allowed}")
        yield match[1], match[2]
        place = match.end() + len(text[match.end() :]) - len(text[match.end() :].lstrip())


def plain_plan(
    prompts: tuple[Prompt, ...],
    configurations: tuple[Configuration, ...],
    values: Mapping[str, Any],
    repeats: int,
    formats: tuple[str, ...] = (),
    batches: tuple[int, ...] = (),
    rates: tuple[float, ...] = (),
    slo: Slo | None = None,
    sides: tuple[EngineSide, ...] = (),
) -> Plan:
    """Configurations under the processor and seed that are set."""
    return Plan(
        prompts,
        configurations,
        values,
        (values["processor"],),
        (values["seed"],),
        repeats,
        formats=formats,
        batches=batches,
        rates=rates,
        slo=slo,
        sides=sides,
    )

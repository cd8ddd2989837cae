"""The method that a request names: in our words, or in those of vLLM's `speculative_config`."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from ablation.plan.choice import choose_runs
from ablation.plan.grid import Configuration
from ablation.plan.methods_table import check_values, foreign, lister
from engines.speculative_config import parse_speculative_config
from sampling.methods.settings import PARAMETERS, Settings
from sampling.methods.tables import METHODS
from serve.errors import ApiError, refused_as, wrong_field
from utils.errors import UnknownName, UserError, one_of
from utils.parameter import Parameter
from utils.text import quoted

OURS, THEIRS = "speculative", "speculative_config"
SPECULATIVE = (OURS, THEIRS)


def requested_speculation(
    given: Mapping[str, Any], default: Configuration, refuse: Callable[[Configuration], None]
) -> Configuration:
    """The method of a body's fields, with its values; `default` where none is named.

    `speculative` takes our words first: `ngram` alone is ours. What they do not know is read as vLLM's. refuse: raises
    `UserError` for a method that cannot run here. Raises `ApiError`.
    """
    named = [name for name in SPECULATIVE if name in given]
    if not named:
        return default
    if len(named) > 1:
        raise ApiError(400, f"{' and '.join(named)} given; expected one of them", named[1])
    (name,) = named
    value = given[name]
    if not isinstance(value, dict) or not isinstance(value.get("method"), str):
        raise wrong_field(name, value, f'an object with "method", {one_of(METHODS)}, and its parameters')

    def read() -> Configuration:
        configuration = _ours_or_theirs(value) if name == OURS else _theirs(value)
        refuse(configuration)
        return configuration

    return refused_as(name, read)


def read_default(text: str) -> Configuration:
    """The method that answers requests which name none, such as `mtp gamma=2`. Raises `UserError`."""
    runs = choose_runs(text, Settings())
    if len(runs) != 1:
        raise UserError(f"--method {quoted(text)} given; expected one method")
    return runs[0]


def _ours_or_theirs(fields: Mapping[str, Any]) -> Configuration:
    """What a `speculative` object names: what our words do not know, or would not use, is read as vLLM's.

    The error is of our words, where vLLM's do not fit either.
    """
    wrong: UserError | None = None
    ours: Configuration | None = None
    try:
        ours = _ours(fields)
        if _all_used(ours):
            return ours
    except UserError as error:
        wrong = error
    try:
        return _theirs(fields)
    except UserError:
        if ours is None:
            raise wrong or UserError("") from None
        return ours


def _all_used(configuration: Configuration) -> bool:
    """Whether a method reads all the values that it is given."""
    values = {**Settings(), **dict(configuration.parameters)}
    used = {parameter.name for parameter in METHODS[configuration.method].relevant(values)}
    return used >= {name for name, _ in configuration.parameters}


def _ours(fields: Mapping[str, Any]) -> Configuration:
    method = METHODS[fields["method"]]
    parameters = {parameter.name: parameter for parameter in method.parameters}
    for name in fields:
        if name not in ("method", *parameters):
            if name in PARAMETERS:
                raise UserError(foreign(name, method.name))
            raise UnknownName(f"parameter of {method.name}", name, parameters, lister(method.name))
    values = tuple((name, _value(parameter, fields[name])) for name, parameter in parameters.items() if name in fields)
    return _checked(Configuration(method.name, values))


def _theirs(fields: Mapping[str, Any]) -> Configuration:
    try:
        read = parse_speculative_config(json.dumps(fields))
    except UserError as error:
        raise UserError(str(error).replace("--speculative-config", THEIRS)) from None
    if read.models:
        raise UserError(f"model: {quoted(fields['model'])} given; expected none, as a server's models are loaded")
    values = {name: PARAMETERS[name].parse(text) for name, text in read.assignments}
    names = [parameter.name for parameter in METHODS[read.methods[-1]].parameters if parameter.name in values]
    return _checked(Configuration(read.methods[-1], tuple((name, values[name]) for name in names)))


def _checked(configuration: Configuration) -> Configuration:
    check_values(configuration, Settings())
    return configuration


def _value(parameter: Parameter, value: Any) -> Any:
    if isinstance(value, bool):
        value = "on" if value else "off"
    if not isinstance(value, str | int | float | list):
        raise UserError(f"{parameter.name}: {quoted(value)} given; expected {parameter.usage}")
    return parameter.checked(value)

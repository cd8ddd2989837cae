"""The method of a request, and that of requests which name none."""

from collections.abc import Mapping
from typing import Any

from ablation.plan.choice import choose_runs
from ablation.plan.grid import Configuration
from ablation.plan.methods_table import check_values, foreign, lister
from sampling.methods.settings import PARAMETERS, Settings
from sampling.methods.tables import METHODS
from utils.errors import UnknownName, UserError
from utils.text import quoted


def requested_method(fields: Mapping[str, Any]) -> Configuration:
    """The method of a `speculative` object, with the values that it gives. Raises `UserError`."""
    method = METHODS[fields["method"]]
    parameters = {parameter.name: parameter for parameter in method.parameters}
    for name in fields:
        if name not in ("method", *parameters):
            if name in PARAMETERS:
                raise UserError(foreign(name, method.name))
            raise UnknownName(f"parameter of {method.name}", name, parameters, lister(method.name))
    values = tuple((name, _value(parameter, fields[name])) for name, parameter in parameters.items() if name in fields)
    configuration = Configuration(method.name, values)
    check_values(configuration, Settings())
    return configuration


def read_default(text: str) -> Configuration:
    """The method that answers requests which name none, such as `mtp gamma=2`. Raises `UserError`."""
    runs = choose_runs(text, Settings())
    if len(runs) != 1:
        raise UserError(f"--method {quoted(text)} given; expected one method")
    return runs[0]


def _value(parameter: Any, value: Any) -> Any:
    if isinstance(value, bool):
        value = "on" if value else "off"
    if not isinstance(value, str | int | float | list):
        raise UserError(f"{parameter.name}: {quoted(value)} given; expected {parameter.usage}")
    return parameter.checked(value)

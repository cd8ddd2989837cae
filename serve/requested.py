"""What a body asks for: the method that drafts, and how tokens are chosen, in the fields of OpenAI and vLLM."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

from ablation.plan.choice import choose_runs
from ablation.plan.grid import Configuration
from ablation.plan.methods_table import check_values, foreign, lister
from sampling.methods.choices import OPTIONS
from sampling.methods.settings import PARAMETERS, Settings
from sampling.methods.tables import METHODS
from serve.errors import refused_as, wrong_field
from utils.errors import UnknownName, UserError
from utils.parameter import ChosenPart, Parameter
from utils.sampling_parameters import MIN_TOKENS, TEMPERATURE, TOP_K, TOP_P
from utils.text import quoted

T = TypeVar("T")
_LARGEST = 1e6

# Fields, what our processors call them, and the value that asks for nothing.
_OPTIONS: Mapping[str, tuple[str, float]] = {
    "min_p": ("min_p", 0.0),
    "repetition_penalty": ("repetition", 1.0),
    "presence_penalty": ("presence", 0.0),
    "frequency_penalty": ("frequency", 0.0),
}
SAMPLING = ("temperature", "top_p", "top_k", *_OPTIONS, "min_tokens", "logit_bias")


class Fields(Protocol):
    """The fields of a body."""

    @property
    def given(self) -> Mapping[str, Any]: ...

    def get(self, name: str, kind: type[T], default: T) -> T:
        """A field of this type. Raises `ApiError`."""
        ...


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


def processor_of(fields: Fields, vocab_size: int) -> ChosenPart:
    """Greedy at temperature 0, else what its numbers ask for; OpenAI's temperature is 1 where none is given."""
    temperature = _number(fields, "temperature", 1.0, TEMPERATURE, 0.0)
    mass, most = _number(fields, "top_p", 1.0, TOP_P, 1.0), fields.get("top_k", int, -1)
    if most not in (-1, 0):
        refused_as("top_k", partial(TOP_K.checked, most))
    options = _options(fields, vocab_size)
    if temperature == 0:
        return _chosen(f"greedy{options}", "temperature")
    kept = "" if most in (-1, 0) else f" {most}"
    nucleus = "" if mass == 1 else f" {mass!r}"
    name = {(False, False): "multinomial", (True, False): "topk", (False, True): "nucleus"}.get(
        (bool(kept), bool(nucleus)), "topknucleus"
    )
    return _chosen(f"{name} {temperature!r}{kept}{nucleus}{options}", "temperature")


def _options(fields: Fields, vocab_size: int) -> str:
    """The options that the fields ask for, as a processor's text. Raises `ApiError`."""
    words = []
    for field, (name, nothing) in _OPTIONS.items():
        value = _number(fields, field, nothing, OPTIONS[name], nothing)
        if value != nothing:
            words.append(f" {name}={value!r}")
    if least := fields.get("min_tokens", int, 0):
        refused_as("min_tokens", partial(MIN_TOKENS.checked, least))
        words.append(f" min_tokens={least}")
    bias = fields.get("logit_bias", dict, {})
    if bias:
        text = "/".join(f"{token}:{value}" for token, value in bias.items())
        tokens = [token for token, _ in refused_as("logit_bias", partial(OPTIONS["logit_bias"].parse, text))]
        if max(tokens) >= vocab_size:
            raise wrong_field("logit_bias", max(tokens), f"ids from 0 to {vocab_size - 1}")
        words.append(f" logit_bias={text}")
    return "".join(words)


def _chosen(text: str, name: str) -> ChosenPart:
    chosen: ChosenPart = refused_as(name, lambda: PARAMETERS["processor"].parse(text))
    return chosen


def _number(fields: Fields, name: str, default: float, parameter: Parameter, other: float) -> float:
    """A field within a parameter's limits, or this other value. Raises `ApiError`."""
    value = fields.given.get(name, default)
    if type(value) not in (int, float) or not abs(value) <= _LARGEST:
        raise wrong_field(name, value, f"a number up to {_LARGEST:g}")
    if value != other:
        refused_as(name, partial(parameter.checked, float(value)))
    return float(value)

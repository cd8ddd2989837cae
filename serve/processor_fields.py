"""What a body asks of how tokens are chosen: fields of OpenAI and vLLM become a processor."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

from sampling.methods.choices import OPTIONS
from sampling.methods.settings import PARAMETERS
from serve.errors import refused_as, wrong_field
from utils.parameter import ChosenPart, Parameter
from utils.sampling_parameters import TEMPERATURE, TOP_K, TOP_P

T = TypeVar("T")
_LARGEST = 1e6

# Fields, what our processors call them, and the value that asks for nothing.
_OPTIONS: Mapping[str, tuple[str, float]] = {
    "min_p": ("min_p", 0.0),
    "repetition_penalty": ("repetition", 1.0),
    "presence_penalty": ("presence", 0.0),
    "frequency_penalty": ("frequency", 0.0),
    "min_tokens": ("min_tokens", 0),
}
SAMPLING = ("temperature", "top_p", "top_k", *_OPTIONS, "logit_bias")


class Fields(Protocol):
    """The fields of a body."""

    @property
    def given(self) -> Mapping[str, Any]: ...

    def get(self, name: str, kind: type[T], default: T) -> T:
        """A field of this type. Raises `ApiError`."""
        ...


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
        whole = type(nothing) is int
        value = fields.get(field, int, 0) if whole else _number(fields, field, nothing, OPTIONS[name], nothing)
        if value != nothing:
            refused_as(field, partial(OPTIONS[name].checked, value))
            words.append(f" {name}={value!r}")
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

"""How a body wants tokens to be chosen, and what the answer must be, in the fields of OpenAI and vLLM."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sampling.grammar.spelling import CHOICE, JSON_WORD, LARK, OFF_WORD, REGEX, SCHEMA, read_grammar, written
from sampling.methods.choices import OPTIONS
from sampling.methods.settings import PARAMETERS
from serve.errors import refused_as, wrong_field
from serve.requests.fields import Fields
from utils.errors import one_of
from utils.parameter import ChosenPart, Parameter
from utils.sampling_parameters import MIN_TOKENS, TEMPERATURE, TOP_K, TOP_P

_LARGEST = 1e6

# Fields, what our processors call them, and the value that asks for nothing.
_OPTIONS: Mapping[str, tuple[str, float]] = {
    "min_p": ("min_p", 0.0),
    "repetition_penalty": ("repetition", 1.0),
    "presence_penalty": ("presence", 0.0),
    "frequency_penalty": ("frequency", 0.0),
}
SAMPLING = ("temperature", "top_p", "top_k", *_OPTIONS, "min_tokens", "logit_bias")


# What an answer must be, in the words of OpenAI and of vLLM.
GRAMMARS = ("response_format", "structured_outputs")
_STRUCTURED: Mapping[str, tuple[str, tuple[type, ...], str]] = {
    "json": (SCHEMA, (dict, str), "a JSON Schema"),
    "regex": (REGEX, (str,), "a regular expression"),
    "grammar": (LARK, (str,), "a Lark grammar"),
    "choice": (CHOICE, (list,), "a list of texts"),
}
_FORMATS = '{"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "json_schema": {"schema": ...}}'


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


def requested_grammar(fields: Fields) -> str:
    """What the answer must be, as the setting `grammar` keeps it. No file is read. Raises `ApiError`."""
    asked = {name: fields.get(name, dict, {}) for name in GRAMMARS if name in fields.given}
    made = {name: _FORMS[name](fields_given) for name, fields_given in asked.items()}
    if len(made) > 1 and OFF_WORD not in made.values():
        raise wrong_field(GRAMMARS[1], asked[GRAMMARS[1]], f"{GRAMMARS[0]} or {GRAMMARS[1]}, not both")
    return next((grammar for grammar in made.values() if grammar != OFF_WORD), OFF_WORD)


def _response_format(given: Mapping[str, Any]) -> str:
    """OpenAI's field. The name, the description and `strict` of a schema change nothing: every schema is kept to."""
    kind, name = given.get("type"), GRAMMARS[0]
    if kind in ("text", "json_object") and len(given) == 1:
        return OFF_WORD if kind == "text" else JSON_WORD
    about = given.get("json_schema")
    if kind != "json_schema" or not isinstance(about, dict) or not isinstance(about.get("schema"), dict):
        raise wrong_field(name, dict(given), _FORMATS)
    return refused_as(name, partial(read_grammar, written(SCHEMA, about["schema"])))


def _structured_outputs(given: Mapping[str, Any]) -> str:
    """vLLM's field: an object with one of its keys."""
    name = GRAMMARS[1]
    if given == {"json_object": True}:
        return JSON_WORD
    key, value = next(iter(given.items())) if len(given) == 1 else ("", None)
    if key not in _STRUCTURED:
        raise wrong_field(name, dict(given), f"an object with {one_of((*_STRUCTURED, 'json_object'))}")
    kind, types, expected = _STRUCTURED[key]
    if not isinstance(value, types):
        raise wrong_field(name, value, f"{expected} as {key}")
    return refused_as(name, partial(read_grammar, written(kind, value)))


_FORMS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "response_format": _response_format,
    "structured_outputs": _structured_outputs,
}


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

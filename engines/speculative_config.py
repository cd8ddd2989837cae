"""`--speculative-config`: the JSON that inference servers take, as methods and settings of this tool."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sampling.methods.settings import PARAMETERS
from sampling.methods.tables import AR, HEADS, METHODS
from utils.errors import UnknownName, UserError, one_of, wrong_value
from utils.json_text import read_json
from utils.parameter import Values
from utils.text import quoted

_SUFFIX = ("max_tree_depth", "max_cached_requests", "max_spec_factor", "min_token_prob")
_JUDGING = {"verify_strategy": "verify_strategy", "accept_policy": "accept_policy"}


@dataclass(frozen=True, slots=True)
class ServerMethod:
    """What a server's method is here: our method, which of our settings its keys are, and what else it sets.

    model: what the key `model` names, `drafter` or `heads`; None = it has no meaning.
    """

    method: str
    keys: Mapping[str, str] = field(default_factory=dict)
    model: Literal["drafter", "heads"] | None = None
    fixed: tuple[tuple[str, str], ...] = ()


_LOOKUP = {
    "num_speculative_tokens": "num_speculative_tokens",
    "max_ngram_size": "max_ngram_size",
    "min_ngram_size": "min_ngram_size",
}
_GAMMA = {"num_speculative_tokens": "gamma", **_JUDGING}
_OURS = {
    "naive": ServerMethod(AR),
    "ngram": ServerMethod("prompt_lookup", {**_LOOKUP, **_JUDGING}),
    "suffix": ServerMethod(
        "suffix",
        {
            "num_speculative_tokens": "num_speculative_tokens",
            **{f"suffix_decoding_{name}": name for name in _SUFFIX},
            **_JUDGING,
        },
    ),
    "draft_model": ServerMethod("speculative", _GAMMA, "drafter"),
    **{kind: ServerMethod(kind, _GAMMA, "heads") for kind in HEADS},
    "eagle3": ServerMethod("eagle", _GAMMA, "heads"),  # what vLLM and SGLang call its third version
}
_EXTENDED_KEYS = {**_LOOKUP, "num_model_steps": "num_model_steps", **_JUDGING}
_EXTENDED = {
    "draft_model": ServerMethod("extended", _EXTENDED_KEYS, "drafter", (("hybrid_model", "model"),)),
    "mtp": ServerMethod("extended", _EXTENDED_KEYS, "heads", (("hybrid_model", "mtp"),)),
}
_VLLM_KEYS = {"prompt_lookup_max": "max_ngram_size", "prompt_lookup_min": "min_ngram_size"}
STRATEGIES = ("default", "with_ngram")
KEYS = (
    "method",
    "num_speculative_tokens",
    "num_model_steps",
    "mtp_strategy",
    "model",
    "max_ngram_size",
    "min_ngram_size",
    *(f"suffix_decoding_{name}" for name in _SUFFIX),
    *_JUDGING,
)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """What the JSON asks for: methods (the reference first), assignments to settings, a drafter model or a head.

    unnamed: settings that it could have set; on a server they have their defaults.
    """

    methods: tuple[str, ...]
    assignments: tuple[tuple[str, str], ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)

    @property
    def unnamed(self) -> tuple[str, ...]:
        assignments = dict(self.assignments)
        known = (name for ours in (*_OURS.values(), *_EXTENDED.values()) for name in ours.keys.values())
        return tuple(name for name in dict.fromkeys(known) if name not in assignments)


def parse_speculative_config(text: str) -> ServerConfig:
    """Read the JSON. Raises `UserError` for what is unknown, what does not go together, and what is not there yet."""
    entry = _read(text)
    name = entry.pop("method")
    strategy = entry.pop("mtp_strategy", "default")
    if strategy not in STRATEGIES:
        raise UnknownName("mtp_strategy", str(strategy), STRATEGIES)
    if strategy == "with_ngram" and name not in _EXTENDED:
        raise UserError(f"mtp_strategy 'with_ngram' given for method {name!r}; expected method {one_of(_EXTENDED)}")
    ours = _EXTENDED[name] if strategy == "with_ngram" else _OURS[name]
    models = _models(name, ours, entry.pop("model", None))
    if name == "naive":
        _check_count(entry.pop("num_speculative_tokens", None))  # a server ignores it: there is nothing to draft
    allowed = tuple(key for key in KEYS if key in ours.keys)
    for key in entry:
        if key not in ours.keys:
            raise UserError(
                f"{key} has no meaning for method {name!r}; expected {one_of(allowed or ('num_speculative_tokens',))}"
            )
    assignments = tuple((ours.keys[key], _text(key, value)) for key, value in entry.items())
    for key, (setting, value) in zip(entry, assignments, strict=True):
        _check(key, setting, value)
    _check_steps(entry)
    return ServerConfig(tuple(dict.fromkeys((AR, ours.method))), (*ours.fixed, *assignments), models)


def written_config(method: str, parameters: Values, models: Mapping[str, Any]) -> dict[str, Any] | None:
    """What `parse_speculative_config` reads as this method with these parameters; None where servers lack words.

    models: options of loading that were given, of which the drafter's becomes `model`.
    """
    for table, more in ((_OURS, {}), (_EXTENDED, {"mtp_strategy": "with_ngram"})):
        for name, theirs in table.items():
            keys = {setting: key for key, setting in theirs.keys.items()}
            settings = {setting: value for setting, value in parameters.items() if (setting, value) not in theirs.fixed}
            if (
                theirs.method == method
                and len(settings) + len(theirs.fixed) == len(parameters)
                and settings.keys() <= keys.keys()
            ):
                place = str(models.get(theirs.model or "") or "")
                model = {"model": place} if place and "," not in place else {}
                return {
                    "method": name,
                    **more,
                    **{keys[setting]: value for setting, value in settings.items()},
                    **model,
                }
    return None


def config_of(method: str, values: Values, known: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """A method as a server is told of it: all that it can be told, with these values.

    known: the methods that the server has, with the keys of each. Raises `UserError` for a method that it lacks, and
    for a value that is not the default and that it cannot be told.
    """
    names = [name for name, theirs in _OURS.items() if theirs.method == method]
    name = next((name for name in names if name in known), None)
    if name is None:
        here = [theirs.method for name, theirs in _OURS.items() if name in known]
        raise UserError(f"it has no method {method}; expected {one_of(dict.fromkeys(here))}")
    words = {setting: key for key, setting in _OURS[name].keys.items()}
    for parameter in METHODS[method].relevant(values):
        if words.get(parameter.name) not in known[name] and values[parameter.name] != parameter.default:
            shown = parameter.show(values[parameter.name])
            raise UserError(f"it cannot be told {parameter.name} {shown} for {method}; expected the default")
    return {"method": name, **{key: values[setting] for setting, key in words.items() if key in known[name]}}


def _models(name: str, ours: ServerMethod, place: object) -> dict[str, str]:
    """What the key `model` names, as an option of the loader."""
    if place is None:
        return {}
    if ours.model is None or not isinstance(place, str):
        heads = f"{', '.join([*HEADS][:-1])} or {[*HEADS][-1]}"
        expected = f"a drafter's id or path, with draft_model; a head's folder, with {heads}"
        raise UserError(f"model: {quoted(place)} given for method {name!r}; expected {expected}")
    return {ours.model: place}


def _read(text: str) -> dict[str, Any]:
    """The object, with a method and no unknown key."""
    try:
        entry = read_json(text)
    except UserError as error:
        raise UserError(f"--speculative-config: {error}") from None
    if not isinstance(entry, dict):
        raise UserError(f"--speculative-config: a {type(entry).__name__} given; expected a JSON object")
    entry = _in_our_keys(entry)
    for key in entry:
        if key not in KEYS:
            raise UnknownName("key of --speculative-config", key, (*KEYS, *_VLLM_KEYS))
    if "method" not in entry:
        raise UserError(f"--speculative-config has no method; expected {one_of(_OURS)}")
    if not isinstance(entry["method"], str) or entry["method"] not in _OURS:
        raise UnknownName("method of --speculative-config", str(entry["method"]), tuple(_OURS))
    return entry


def _in_our_keys(entry: dict[str, Any]) -> dict[str, Any]:
    """The same with vLLM's bounds of prompt lookup under their other names; one that is given alone is both, as there.

    Raises `UserError` for a bound that is given under both names.
    """
    for key, name in _VLLM_KEYS.items():
        if key in entry and name in entry:
            raise UserError(f"{key} and {name} given, which are the same; expected one of them")
    lookup = {name: entry[key] for key, name in _VLLM_KEYS.items() if key in entry}
    if len(lookup) == 1:
        lookup = dict.fromkeys(_VLLM_KEYS.values(), *lookup.values())
    return {**{key: value for key, value in entry.items() if key not in _VLLM_KEYS}, **lookup}


def _check(key: str, setting: str, value: str) -> None:
    """Raises `UserError`, which names the key that was given before the setting that it is here."""
    try:
        PARAMETERS[setting].parse(value)
    except UserError as error:
        raise (error if key == setting else UserError(f"{key}: as {error}")) from None


def _check_steps(entry: Mapping[str, Any]) -> None:
    """What the model drafts is part of the draft: more of it than of the whole cannot be meant."""
    steps = entry.get("num_model_steps", 0)
    most = entry.get("num_speculative_tokens", PARAMETERS["num_speculative_tokens"].default)
    if steps > most:
        raise UserError(f"num_model_steps: {steps} given; expected at most num_speculative_tokens, which is {most}")


def _text(key: str, value: Any) -> str:
    """A JSON value as the setting's text; a number or a text, never a number in quotes."""
    words = key in _JUDGING
    if words != isinstance(value, str) or isinstance(value, bool | list | dict) or value is None:
        raise wrong_value(key, value, "a text" if words else "a number")
    return str(value)


def _check_count(value: Any) -> None:
    if value is not None and (type(value) is not int or value < 0):
        raise wrong_value("num_speculative_tokens", value, "an integer of 0 or more")

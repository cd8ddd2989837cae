"""`--speculative-config`: the JSON that inference servers take, as methods and settings of this tool."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from utils.errors import UnknownName, UserError

METHOD_NAMES = ("naive", "ngram", "suffix", "mtp", "draft_model", "eagle", "medusa", "hydra")
KEYS = (
    "method",
    "num_speculative_tokens",
    "num_model_steps",
    "mtp_strategy",
    "model",
    "max_ngram_size",
    "min_ngram_size",
    "suffix_decoding_max_tree_depth",
    "suffix_decoding_max_cached_requests",
    "suffix_decoding_max_spec_factor",
    "suffix_decoding_min_token_prob",
    "verify_strategy",
    "accept_policy",
)
_OURS = {"naive": ("target",), "draft_model": ("target", "speculative")}
_OUR_KEYS = ("method", "num_speculative_tokens", "model")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """What the JSON asks for: methods (the reference first), assignments to settings, a drafter model."""

    methods: tuple[str, ...]
    assignments: tuple[tuple[str, str], ...] = ()
    drafter: str | None = None


def parse_speculative_config(text: str) -> ServerConfig:
    """Read the JSON. Raises `UserError` for what is unknown, and for what is known but not supported yet."""
    try:
        entry = json.loads(text)
    except ValueError as error:
        raise UserError(f"--speculative-config is not JSON: {error}") from None
    if not isinstance(entry, dict):
        raise UserError(f"--speculative-config: a {type(entry).__name__} given; allowed: a JSON object")
    for key in entry:
        _supported("key of --speculative-config", key, KEYS, _OUR_KEYS)
    if "method" not in entry:
        raise UserError(f"--speculative-config has no method; allowed: {', '.join(_OURS)}")
    _supported("method of --speculative-config", str(entry["method"]), METHOD_NAMES, tuple(_OURS))
    return _config(entry)


def _config(entry: Mapping[str, Any]) -> ServerConfig:
    count, model = entry.get("num_speculative_tokens"), entry.get("model")
    if count is not None and (type(count) is not int or count < 0):
        raise UserError(f"num_speculative_tokens: {count!r} given; allowed: an integer of 0 or more")
    if model is not None and not isinstance(model, str):
        raise UserError(f"model: {model!r} given; allowed: a string, the drafter's id or path")
    if entry["method"] == "naive":
        count, model = 0, None
    gamma = () if count is None else (("gamma", str(count)),)
    return ServerConfig(_OURS[entry["method"]], gamma, model)


def _supported(kind: str, given: str, known: tuple[str, ...], ours: tuple[str, ...]) -> None:
    if given not in known:
        raise UnknownName(kind, given, known)
    if given not in ours:
        raise UserError(f"{kind} {given!r} is known but not supported yet; supported: {', '.join(ours)}")

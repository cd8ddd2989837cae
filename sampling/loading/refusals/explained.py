"""Errors of loading in the user's words: what transformers raises for a checkpoint that cannot be had or is damaged."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from sampling.loading.gguf.cache import META
from sampling.loading.origin import ALLOWED, ModelOrigin, beside
from sampling.loading.refusals.contents import auto_class
from sampling.loading.refusals.damage import damaged
from utils.errors import UserError
from utils.text import first_line

_EXPECTED = {
    "it": "a causal or an encoder-decoder language model",
    "its config.json": "that of a causal or an encoder-decoder language model",
    "its tokenizer": "a folder with a tokenizer.json",
    "its weights": "those of its config.json",
}


@contextmanager
def explained(origin: ModelOrigin, trust_remote_code: bool) -> Iterator[None]:
    """Turn what is raised for a checkpoint that cannot be had or run into a `UserError`."""
    try:
        yield
    except UserError:
        raise
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise UserError(
            f"{origin.name}: out of memory ({first_line(error)}); try --dtype bfloat16, --target-weights int8, "
            "a smaller model or another --device"
        ) from error
    except ImportError as error:
        raise UserError(f"{origin.name}: a package it needs is missing: {first_line(error)}") from error
    except (OSError, ValueError, LookupError, RuntimeError) as error:
        raise _refusal(origin, "it", error, trust_remote_code) from error


@contextmanager
def reading(origin: ModelOrigin, what: str, trust_remote_code: bool) -> Iterator[None]:
    """The same while files are read, where damage may raise anything. what: a key of `_EXPECTED`."""
    try:
        yield
    except (UserError, MemoryError, torch.OutOfMemoryError, ImportError):
        raise
    except Exception as error:
        raise _refusal(origin, what, error, trust_remote_code) from error


@contextmanager
def within_memory(origin: ModelOrigin, config: Any, dtype: torch.dtype) -> Iterator[None]:
    """Turn running out of memory into a sentence that says how much the weights take."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise UserError(
            f"{origin.name}: out of memory; its weights take {_weights_gib(config, dtype):.1f} GiB in "
            f"{str(dtype).removeprefix('torch.')}, and the cache comes on top; "
            "try a smaller model, --dtype bfloat16 or another --device"
        ) from error


def _weights_gib(config: Any, dtype: torch.dtype) -> float:
    """Size of the weights, counted on a model without storage."""
    with torch.device("meta"):
        empty = auto_class(config).from_config(config)
    return float(sum(weight.numel() for weight in empty.parameters()) * dtype.itemsize / 2**30)


def folder_of(origin: ModelOrigin) -> Path | None:
    """Where the files of a checkpoint lie; None for one of the hub that is not in its cache."""
    if origin.local:
        return Path(origin.place)
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(origin.place, "config.json")
    return Path(cached).parent if isinstance(cached, str) else None


def _refusal(origin: ModelOrigin, what: str, error: Exception, trust_remote_code: bool) -> UserError:
    text = str(error)
    if "trust_remote_code" in text and not trust_remote_code:
        return UserError(f"{origin.name}: it runs code of its own; give --trust-remote-code if you trust its author")
    folder = folder_of(origin)
    if folder is not None and (damage := damaged(folder)):
        again = f"; delete {folder}, and it is converted again" if (folder / META).is_file() else ""
        return UserError(damage + again)
    if not origin.local and isinstance(error, OSError):
        return unfetched(origin.place, error, f"{ALLOWED}{beside(Path(origin.place))}")
    why = "they have other shapes than it says" if "ignore_mismatched_sizes" in text else first_line(error)
    return UserError(f"{origin.name}: transformers cannot load {what} ({why}); expected {_EXPECTED[what]}")


def unfetched(place: str, error: Exception, expected: str) -> UserError:
    """What to say of a hub id that could not be had."""
    why = _hub_reason(str(error))
    return UserError(f"{place}: hub id {place!r} could not be fetched: {why}; expected {expected}")


def _hub_reason(text: str) -> str:
    if "gated" in text:
        return "it is gated: log in with `hf auth login` once you have been granted access"
    if "not a valid model identifier" in text or "404" in text:
        return "the hub has no such model, or it is private"
    return "no network and not in the local cache"

"""One model from where it lies: the right loader, the refusals, and errors in the user's words."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch

from sampling.forward import lean
from sampling.forward.runner import CausalModel
from sampling.loading.checks import has_encoder, refuse_config
from sampling.loading.fast_load import lean_folder
from sampling.loading.gguf_cache import META
from sampling.loading.gguf_convert import quiet
from sampling.loading.origin import ALLOWED, Origin, beside, hub_answers
from sampling.loading.stop import neutral, stop_ids
from sampling.pair import ModelInfo
from utils.errors import UserError
from utils.text import first_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


# transformers patches its own classes while it loads. Two threads that do so at once leave them patched, and then
# no output matrix of the process is tied to its embedding again: it stays empty memory.
_ONE_AT_A_TIME = Lock()

# What an encoder-decoder model takes from its generation settings beside ids: see `Opening`.
_OBEYED = ("bad_words_ids",)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model with its tokenizer, the ids that end its answers, and what had to be mended.

    encoder: whether it is an encoder-decoder model.
    """

    model: CausalModel
    tokenizer: "PreTrainedTokenizerBase"
    stop: frozenset[int]
    info: ModelInfo
    notes: tuple[str, ...] = ()
    encoder: bool = False


def load_model(origin: Origin, device: torch.device, dtype: torch.dtype, trust_remote_code: bool = False) -> Loaded:
    """Load one language model. Raises `UserError` for one that cannot be had, is unfit or does not fit in memory."""
    with _ONE_AT_A_TIME, _explained(origin, trust_remote_code), quiet():
        if origin.local and (Path(origin.place) / META).is_file():
            converted = _converted(origin, device, dtype)
            if converted is not None:
                return converted
        return _checkpoint(origin, device, dtype, trust_remote_code)


def _converted(origin: Origin, device: torch.device, dtype: torch.dtype) -> Loaded | None:
    """A folder that this program converted; its tokenizer is read beside the weights, to save a third of a second."""
    from transformers import GenerationConfig, PreTrainedTokenizerFast

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(PreTrainedTokenizerFast.from_pretrained, origin.place)
        model = lean_folder(Path(origin.place), device, dtype)
        tokenizer = reading.result()
    if model is None:
        return None
    stop = stop_ids(tokenizer, GenerationConfig.from_pretrained(origin.place))
    return Loaded(model, tokenizer, stop, _info(origin, model, "lean forward"))


def _checkpoint(origin: Origin, device: torch.device, dtype: torch.dtype, trust: bool) -> Loaded:
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    shared = {"trust_remote_code": trust, "local_files_only": not (origin.local or hub_answers())}
    config = AutoConfig.from_pretrained(origin.place, **shared)
    refuse_config(origin.name, config, _stateful(config))
    tokenizer = AutoTokenizer.from_pretrained(origin.place, **shared)
    with _within_memory(origin, config, dtype):
        hf = (
            _auto_class(config)
            .from_pretrained(
                origin.place,
                dtype=dtype,
                device_map=None if device.type == "cpu" else {"": str(device)},
                **shared,
            )
            .eval()
        )
        refuse_config(origin.name, hf.config, getattr(hf, "_is_stateful", False))
        model, forward = _runnable(origin, hf)
        kept, ignored = neutral(hf.generation_config, obeyed=_OBEYED if has_encoder(config) else ())
        stop = stop_ids(tokenizer, hf.config, hf.generation_config)
        hf.generation_config = GenerationConfig(**kept)
    notes = (f"{origin.name}: {ignored}.",) if ignored else ()
    info = _info(origin, model, forward)
    return Loaded(model, tokenizer, stop, info, notes, encoder=has_encoder(config))


def _auto_class(config: Any) -> Any:
    """The transformers class that reads a checkpoint of this configuration."""
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    return AutoModelForSeq2SeqLM if has_encoder(config) else AutoModelForCausalLM


def _runnable(origin: Origin, hf: Any) -> tuple[CausalModel, str]:
    """The model behind the engine's forward, and what that forward is called."""
    if lean.fits(hf):
        return lean.from_transformers(hf, release=True), "lean forward"
    from sampling.loading.adapt import adapted

    forward = "encoder-decoder, transformers' layers" if has_encoder(hf.config) else "transformers' forward"
    return adapted(origin.name, hf), forward


def _stateful(config: Any) -> bool:
    """Whether transformers marks the class for this configuration as stateful; unknown classes are looked at later."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    known = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    return bool(getattr(known, "_is_stateful", False))


def _info(origin: Origin, model: CausalModel, forward: str) -> ModelInfo:
    detail = f"{origin.detail}; {model.num_layers} layers, {forward}"
    dtype = str(model.dtype).removeprefix("torch.")
    kernel = model.kernel if isinstance(model, lean.LeanModel) else None
    return ModelInfo(origin.name, str(model.device), dtype, detail, origin.place, kernel=kernel)


@contextmanager
def _within_memory(origin: Origin, config: Any, dtype: torch.dtype) -> Iterator[None]:
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
        empty = _auto_class(config).from_config(config)
    return float(sum(weight.numel() for weight in empty.parameters()) * dtype.itemsize / 2**30)


@contextmanager
def _explained(origin: Origin, trust_remote_code: bool) -> Iterator[None]:
    """Turn what transformers raises for a checkpoint that cannot be had into a `UserError`."""
    try:
        yield
    except UserError:
        raise
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise UserError(f"{origin.name}: out of memory; try a smaller model or another --device") from error
    except ImportError as error:
        raise UserError(f"{origin.name}: a package it needs is missing: {first_line(error)}") from error
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise UserError(_explanation(origin, error, trust_remote_code)) from error


def _explanation(origin: Origin, error: Exception, trust_remote_code: bool) -> str:
    text = str(error)
    if "trust_remote_code" in text and not trust_remote_code:
        return f"{origin.name}: it runs code of its own; give --trust-remote-code if you trust its author"
    if not origin.local and isinstance(error, OSError):
        why = _hub_reason(text)
        hint = beside(Path(origin.place))
        return f"{origin.name}: hub id {origin.place!r} could not be fetched: {why}; expected {ALLOWED}{hint}"
    expected = "a causal or an encoder-decoder language model"
    return f"{origin.name}: transformers cannot load it ({first_line(error)}); expected {expected}"


def _hub_reason(text: str) -> str:
    if "gated" in text:
        return "it is gated: log in with `hf auth login` once you have been granted access"
    if "not a valid model identifier" in text or "404" in text:
        return "the hub has no such model, or it is private"
    return "no network and not in the local cache"

"""One model from where it lies: the right loader, the refusals, and errors in the user's words."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import torch

from sampling.forward.causal_model import CausalModel
from sampling.forward.kernels.formats import FORMATS, FULL
from sampling.forward.kernels.shape_check import LayerSizes, refuse_indivisible
from sampling.forward.models import lean
from sampling.loading.fast_load import lean_folder
from sampling.loading.gguf.cache import META
from sampling.loading.gguf.convert import quiet
from sampling.loading.origin import ModelOrigin, hub_answers
from sampling.loading.quantized import refuse_quantized, stored_as
from sampling.loading.refusals.checks import has_encoder, refuse_config
from sampling.loading.refusals.contents import (
    auto_class,
    reads_more,
    refuse_no_tokens,
    refuse_sizes,
    refuse_untrained,
    unused_weights,
)
from sampling.loading.refusals.damage import read_object
from sampling.loading.refusals.explained import explained, folder_of, reading, within_memory
from sampling.loading.stop import neutral, refuse_broken_settings, stop_ids
from sampling.pair.model_info import ModelInfo
from sampling.tokenizer.contract import Tokenizer
from sampling.tokenizer.converted import converted_tokenizer
from utils.errors import UserError

# transformers patches its own classes while it loads. Two threads that do so at once leave them patched, and then
# no output matrix of the process is tied to its embedding again: it stays empty memory.
_ONE_AT_A_TIME = Lock()

Reader = Callable[[Path, torch.device, torch.dtype, str], lean.LeanModel | None]

# What an encoder-decoder model takes from its generation settings beside ids: see `AnswerOpening`.
_OBEYED = ("bad_words_ids", "min_length", "min_new_tokens")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a model is to be, its number format, the format of its weights (of `FORMATS`), over how many processes."""

    device: torch.device
    dtype: torch.dtype
    weights: str = FULL
    processes: int = 1


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with its tokenizer, the ids that end its answers, and what had to be mended.

    encoder: whether it is an encoder-decoder model.
    """

    model: CausalModel
    tokenizer: Tokenizer
    stop: frozenset[int]
    info: ModelInfo
    notes: tuple[str, ...] = ()
    encoder: bool = False


def load_model(origin: ModelOrigin, place: Placement, trust_remote_code: bool = False) -> LoadedModel:
    """Load one language model. Raises `UserError` for one that cannot be had, is unfit or does not fit in memory."""
    with undisturbed(origin, trust_remote_code):
        ours = converted(origin, place, lean_folder)
        if ours is not None:
            return ours
        with quiet():
            return _checkpoint(origin, place, trust_remote_code)


@contextmanager
def undisturbed(origin: ModelOrigin, trust: bool) -> Iterator[None]:
    """Around whatever reads a model: no other does meanwhile, and errors are `UserError`."""
    with _ONE_AT_A_TIME, explained(origin, trust):
        yield


def converted(origin: ModelOrigin, place: Placement, read: Reader) -> LoadedModel | None:
    """A folder that this program converted; its tokenizer is read beside the weights, to save a third of a second."""
    folder = Path(origin.place)
    if not origin.local or not (folder / META).is_file():
        return None
    with reading(origin, "it", False):
        with ThreadPoolExecutor(1) as pool:
            tokens = pool.submit(tokenizer_of, folder)
            model = read(folder, place.device, place.dtype, place.weights)
            tokenizer = tokens.result()
        settings = SimpleNamespace(**read_object(folder / "generation_config.json"))
    if model is None:
        return None
    stop, odd = stop_ids(origin.name, tokenizer, model.vocab_size, settings)
    return LoadedModel(model, tokenizer, stop, info_of(origin, model, "lean forward", place.weights), odd)


def tokenizer_of(folder: Path) -> Tokenizer:
    """The tokenizer of a converted folder: ours, or that of transformers where it would add something to the file."""
    ours = converted_tokenizer(folder)
    if ours is not None:
        return ours
    from transformers import PreTrainedTokenizerFast

    with quiet():
        theirs: Tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    return theirs


@dataclass(frozen=True, slots=True)
class UnreadCheckpoint:
    """A checkpoint whose weights nobody has read yet. shared: how transformers is to read all of its files."""

    config: Any
    tokenizer: Tokenizer
    shared: dict[str, Any]


def described(origin: ModelOrigin, place: Placement, trust: bool) -> UnreadCheckpoint:
    """What a checkpoint says of itself. Raises `UserError` for what is known not to run."""
    from transformers import AutoConfig, AutoTokenizer

    shared = {"trust_remote_code": trust, "local_files_only": not (origin.local or hub_answers())}
    with reading(origin, "its config.json", trust):
        config = AutoConfig.from_pretrained(origin.place, **shared)
    refuse_sizes(origin.name, config)
    refuse_config(origin.name, config)
    refuse_quantized(origin.name, config, place.device, place.weights)
    with reading(origin, "its config.json", trust):
        if any(lean.covers(name, config) for name in config.architectures or ()):
            refuse_indivisible(
                place.weights, origin.name, LayerSizes.of_config(config), f"target_weights {place.weights}"
            )
    with reading(origin, "its tokenizer", trust):
        tokenizer = AutoTokenizer.from_pretrained(origin.place, **shared)
    refuse_no_tokens(origin.name, tokenizer)
    return UnreadCheckpoint(config, tokenizer, shared)


def _checkpoint(origin: ModelOrigin, place: Placement, trust: bool) -> LoadedModel:
    about = described(origin, place, trust)
    with within_memory(origin, about.config, place.dtype):
        device_map = None if place.device.type == "cpu" else {"": str(place.device)}
        hf, unused = read_weights(origin, about, dtype=place.dtype, device_map=device_map)
        model, forward, limited = runnable(origin, hf, place.weights)
    return as_loaded(origin, about, model, hf, forward, stored_as(hf) or place.weights, (*limited,), unused)


def as_loaded(
    origin: ModelOrigin,
    about: UnreadCheckpoint,
    model: CausalModel,
    settings: Any,
    forward: str,
    weights: str,
    limited: tuple[str, ...] = (),
    unused: str | None = None,
) -> LoadedModel:
    """A model of a checkpoint with all that belongs to it.

    settings: what has its `config` and its `generation_config`, which is made neutral. limited: what to know of it, in
    parts of sentences. unused: a note on weights that it has no use for.
    """
    from transformers import GenerationConfig

    encoder = has_encoder(about.config)
    kept, ignored = neutral(settings.generation_config, obeyed=_OBEYED if encoder else ())
    stop, odd = stop_ids(origin.name, about.tokenizer, model.vocab_size, settings.config, settings.generation_config)
    settings.generation_config = GenerationConfig(**kept)
    notes = (*(f"{origin.name}: {said}." for said in (*limited, ignored) if said), unused, *odd)
    notes = (reads_more(origin.name, about.config), *notes)
    info = info_of(origin, model, forward, weights)
    return LoadedModel(model, about.tokenizer, stop, info, tuple(note for note in notes if note), encoder=encoder)


def read_weights(origin: ModelOrigin, about: UnreadCheckpoint, **how: Any) -> tuple[Any, str | None]:
    """The transformers model, and a note on weights that it has no use for. how: where it goes, and in which dtype."""
    refuse_broken_settings(folder_of(origin))
    with reading(origin, "its weights", about.shared["trust_remote_code"]):
        hf, loading_info = auto_class(about.config).from_pretrained(
            origin.place, output_loading_info=True, **how, **about.shared
        )
    refuse_untrained(origin.name, hf, loading_info)
    refuse_config(origin.name, hf.config)
    return hf.eval(), unused_weights(origin.name, about.config, loading_info)


def runnable(origin: ModelOrigin, hf: Any, weights: str) -> tuple[CausalModel, str, tuple[str, ...]]:
    """The model behind the engine's forward, what that forward is called, and what to know of it."""
    if lean.fits(hf) and not stored_as(hf):
        return lean.from_transformers(hf, release=True, format=FORMATS[weights]), "lean forward", ()
    if weights != FULL:
        raise UserError(
            f"target_weights {weights} given, and {origin.name} runs on transformers' own layers, whose weights are "
            "left as they are; expected full, or a model with a lean forward (docs/models.md)"
        )
    from sampling.loading.adapt import adapted, limits

    forward = "encoder-decoder, transformers' layers" if has_encoder(hf.config) else "transformers' forward"
    model = adapted(origin.name, hf)
    return model, forward, tuple(limits(model))


def info_of(origin: ModelOrigin, model: CausalModel, forward: str, weights: str) -> ModelInfo:
    """What was loaded; forward: what computes it, in words."""
    detail = f"{origin.detail}; {model.num_layers} layers, {forward}"
    dtype = str(model.dtype).removeprefix("torch.")
    return ModelInfo(
        origin.name,
        str(model.device),
        dtype,
        detail,
        origin.place,
        kernel=getattr(model, "kernel", None),
        stored=weights,
        rollback=getattr(getattr(model, "way", None), "name", None),
    )

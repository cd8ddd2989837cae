"""Loading a pair: the public entry of everything that reads weights."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from sampling.lean import LeanModel
from sampling.loading.checkpoint import Loaded, load
from sampling.loading.checks import common_vocabulary, compare_tokenizers
from sampling.loading.devices import choose_device, choose_dtype
from sampling.loading.heads import MODEL, heads_for, is_trained_model, load_trained_model
from sampling.loading.progress import Progress, silent
from sampling.loading.sources import EMBEDDED_NAME, resolve
from sampling.pair import ModelInfo, Pair
from sampling.runner import ModelRunner

__all__ = ["DRAFT_LAYERS", "LoadOptions", "Progress", "load_pair"]

# Chosen by `uv run scripts/choose_layers.py`: of the subsets that agree with all 30 layers on at least 0.6 of the
# tokens, the one with the best expected speed. Measured agreement (teacher-forced, 8 prompts, 32 tokens each):
# 29 layers 0.811, 28 0.713, 27 0.652, 26 0.590, 24 0.520, 20 0.361, 14 0.217. None is expected to beat 0.6 of
# plain autoregression: every layer of so small a model counts.
DRAFT_LAYERS = tuple(layer for layer in range(30) if layer != 3)
DRAFT_AGREEMENT = 0.81


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What to load and where, as a user writes it.

    target, drafter: hub id, folder or FILE.gguf; a drafter may also be a distilled one trained here. target
    None: the embedded default. drafter None: the distilled drafter in models/ for this target, else the
    embedded default's own layers when that is the target, else no drafter. drafter_device None: the target's.
    heads: folders of trained heads, with commas between, beside those in models/.
    """

    target: str | None = None
    drafter: str | None = None
    device: str = "auto"
    drafter_device: str | None = None
    dtype: str = "auto"
    trust_remote_code: bool = False
    heads: str | None = None


def load_pair(options: LoadOptions, progress: Progress = silent) -> Pair:
    """Load target and drafter, check that they fit each other, and say what was mended.

    Raises `UserError` for everything that a user can put right: a name that leads nowhere, an unfit model,
    tokenizers that differ, a device that is not there, too little memory.
    """
    device = choose_device(options.device)
    drafter_device = device if options.drafter_device is None else choose_device(options.drafter_device)
    dtype, drafter_dtype = choose_dtype(options.dtype, device), choose_dtype(options.dtype, drafter_device)
    target = _load(options.target, device, dtype, options, progress)
    heads = heads_for(target.info.name, options.heads)
    distilled = heads.pop(MODEL, None) if options.drafter is None else _distilled(options.drafter)
    if distilled is not None:
        drafter = load_trained_model(distilled, target)
    elif options.drafter is None and options.target is not None:
        return replace(_alone(target), heads=heads)
    elif options.drafter is None:
        drafter = _layers_of(target, drafter_device, drafter_dtype, options, progress)
    elif (options.drafter, drafter_device, drafter_dtype) == (options.target, device, dtype):
        drafter = replace(target, notes=())  # drafting for itself: one copy of the weights is enough
    else:
        drafter = _load(options.drafter, drafter_device, drafter_dtype, options, progress)
    progress("Checking the pair")
    return replace(_paired(target, drafter), heads=heads)


def _distilled(given: str) -> Path | None:
    return Path(given).expanduser() if is_trained_model(given) else None


def _load(
    given: str | None, device: torch.device, dtype: torch.dtype, options: LoadOptions, progress: Progress
) -> Loaded:
    source = resolve(given, progress)
    progress(f"Loading {source.name}")
    return load(source, device, dtype, options.trust_remote_code)


def _layers_of(
    target: Loaded, device: torch.device, dtype: torch.dtype, options: LoadOptions, progress: Progress
) -> Loaded:
    """The embedded default's drafter: some of the target's layers, on the very same weights where it can be."""
    same = (target.model.device, target.model.dtype) == (device, dtype)
    whole = target if same else _load(None, device, dtype, options, progress)
    assert isinstance(whole.model, LeanModel), "the embedded default is a Llama"
    detail = (
        f"layers {len(DRAFT_LAYERS)} of {whole.model.num_layers} of the target, {'shared' if same else 'own'} weights; "
        f"agrees on about {DRAFT_AGREEMENT:.2f} of tokens: no speedup is to be expected"
    )
    name = f"{EMBEDDED_NAME}, {len(DRAFT_LAYERS)} layers"
    info = ModelInfo(name, whole.info.device, whole.info.dtype, detail, whole.info.place)
    return replace(whole, model=whole.model.subset(DRAFT_LAYERS), info=info, notes=())


def _alone(target: Loaded) -> Pair:
    return Pair(ModelRunner(target.model), None, target.tokenizer, target.stop, target.info, None, target.notes)


def _paired(target: Loaded, drafter: Loaded) -> Pair:
    names = (target.info.name, drafter.info.name)
    sizes = (target.model.vocab_size, drafter.model.vocab_size)
    tokens = compare_tokenizers(names, target.tokenizer, drafter.tokenizer, max(sizes))
    rows, padded = common_vocabulary(names, sizes, tokens)
    notes = (*target.notes, *drafter.notes, padded, _shorter_window(target, drafter))
    return Pair(
        ModelRunner(target.model, rows),
        ModelRunner(drafter.model, rows),
        target.tokenizer,
        target.stop,
        target.info,
        drafter.info,
        tuple(note for note in notes if note),
    )


def _shorter_window(target: Loaded, drafter: Loaded) -> str | None:
    if drafter.model.window >= target.model.window:
        return None
    return (
        f"{drafter.info.name} sees {drafter.model.window} tokens, {target.info.name} {target.model.window}: "
        f"behind token {drafter.model.window} nothing is drafted."
    )

"""Loading a pair: the public entry of everything that reads weights."""

from dataclasses import replace
from pathlib import Path

import torch

from sampling.forward.formats import FORMATS, FULL, refuse_format
from sampling.forward.kernels import refuse_unpacked, use_packed
from sampling.forward.lean import LeanModel
from sampling.forward.runner import ModelRunner
from sampling.loading.checkpoint import Loaded, Placement, load_model
from sampling.loading.checks import common_vocabulary, compare_tokenizers, refuse_two_kinds
from sampling.loading.devices import choose_device, choose_dtype
from sampling.loading.heads import heads_for, is_trained_model, load_trained_model
from sampling.loading.options import KERNELS, SELF, WEIGHTS, LoadOptions
from sampling.loading.origin import resolve
from sampling.loading.stages import Progress, silent
from sampling.pair import MODEL, Pair
from utils.errors import UnknownName, UserError, wrong_value

__all__ = ["LoadOptions", "Progress", "load_pair"]


def load_pair(options: LoadOptions, progress: Progress = silent) -> Pair:
    """Load target and drafter, check that they fit each other, and say what was mended.

    Raises `UserError` for everything that a user can put right: a name that leads nowhere, an unfit model,
    tokenizers that differ, a device that is not there, too little memory.
    """
    device = choose_device(options.device)
    drafter_device = device if options.drafter_device is None else choose_device(options.drafter_device)
    _use_kernel(options.kernel)
    dtype, drafter_dtype = choose_dtype(options.dtype, device), choose_dtype(options.dtype, drafter_device)
    if options.kernel == "packed":
        refuse_unpacked({device: dtype, drafter_device: drafter_dtype})
    _refuse_weights(options.target_weights, device)
    place = Placement(device, _products(dtype, options), options.target_weights)
    target = _load(options.target, place, options, progress)
    if target.encoder and options.heads:
        raise UserError(
            f"--heads {options.heads} given, and {target.info.name} is an encoder-decoder model; "
            "heads need a decoder-only target"
        )
    heads = {} if target.encoder else heads_for(target.info.name, options.heads)
    own = heads.pop(MODEL, None)
    if options.drafter is None:
        return replace(_alone(target) if own is None else _with_own_drafter(target, own), heads=heads)
    if is_trained_model(options.drafter):
        drafter = load_trained_model(Path(options.drafter).expanduser(), target)
    elif options.drafter.startswith(SELF):
        drafter = _rounded_self(target, options.drafter)
    elif (options.drafter, Placement(drafter_device, drafter_dtype)) == (options.target, place):
        drafter = replace(target, notes=())  # drafting for itself: one copy of the weights is enough
    else:
        drafter = _load(options.drafter, Placement(drafter_device, drafter_dtype), options, progress)
    progress("Checking the pair")
    return replace(_paired(target, drafter), heads=heads)


def _use_kernel(name: str) -> None:
    if name not in KERNELS:
        raise UnknownName("kernel", name, KERNELS)
    use_packed(None if name == "auto" else name == "packed")


def _with_own_drafter(target: Loaded, folder: Path) -> Pair:
    """The target with the drafter that comes with the project, unless that one is for other weights of this name."""
    try:
        return _paired(target, load_trained_model(folder, target))
    except UserError as error:
        return replace(_alone(target), notes=(*target.notes, f"No drafter model: {error}."))


def _refuse_weights(name: str, device: torch.device) -> None:
    if name not in WEIGHTS:
        raise UnknownName("target_weights", name, WEIGHTS)
    refuse_format(name, device, f"target_weights {name}")


def _products(dtype: torch.dtype, options: LoadOptions) -> torch.dtype:
    """The number format of what is between the products: of rounded weights float32, unless another is asked for."""
    return torch.float32 if options.dtype == "auto" and options.target_weights != FULL else dtype


def _rounded_self(target: Loaded, given: str) -> Loaded:
    """The target as its own drafter, its weights in another format (ML-SpecQD, arXiv 2503.13565).

    It shares embedding and norms; its products and its cache are its own. Raises `UserError`.
    """
    name = given.removeprefix(SELF)
    if name not in WEIGHTS[1:]:
        raise wrong_value("--drafter", given, " or ".join(f"{SELF}{format}" for format in WEIGHTS[1:]))
    if not isinstance(target.model, LeanModel):
        raise UserError(
            f"--drafter {given} given, and {target.info.name} runs on transformers' own layers, whose weights are left "
            "as they are; expected another drafter, or a model with a lean forward (docs/models.md)"
        )
    refuse_format(name, target.model.device, f"--drafter {given}")
    model = target.model.with_format(replace(FORMATS[name], steady=False))
    info = replace(target.info, name=f"{target.info.name}, {name}", kernel=None, stored=name)
    return replace(target, model=model, info=info, notes=())


def _load(given: str | None, place: Placement, options: LoadOptions, progress: Progress) -> Loaded:
    origin = resolve(given, progress)
    progress(f"Loading {origin.name}")
    return load_model(origin, place, options.trust_remote_code)


def _alone(target: Loaded) -> Pair:
    return Pair(
        ModelRunner(target.model),
        None,
        target.tokenizer,
        target.stop,
        target.info,
        None,
        target.notes,
        encoder=target.encoder,
    )


def _paired(target: Loaded, drafter: Loaded) -> Pair:
    names = (target.info.name, drafter.info.name)
    refuse_two_kinds(names, (target.encoder, drafter.encoder))
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
        encoder=target.encoder,
    )


def _shorter_window(target: Loaded, drafter: Loaded) -> str | None:
    if drafter.model.window >= target.model.window:
        return None
    return (
        f"{drafter.info.name} sees {drafter.model.window} tokens, {target.info.name} {target.model.window}: "
        f"nothing is drafted after token {drafter.model.window}."
    )

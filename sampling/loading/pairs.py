"""Loading a pair: the public entry of everything that reads weights."""

from dataclasses import replace
from pathlib import Path

import torch

from sampling.forward.cpp.library import use_own_kernels
from sampling.forward.kernels.formats import FORMATS, FULL, refuse_format
from sampling.forward.kernels.probe import refuse_kernel, use_kernel
from sampling.forward.kernels.shape_check import LayerSizes, refuse_indivisible
from sampling.forward.models.lean import LeanModel
from sampling.forward.runner import ModelRunner
from sampling.loading.checkpoint import LoadedModel, Placement, load_model
from sampling.loading.devices import choose_device, choose_dtype, why_no_cuda
from sampling.loading.fixed_shapes import on_graphs
from sampling.loading.heads import heads_for, is_trained_model, load_trained_model, with_head_window
from sampling.loading.options import BATCH_INVARIANT, COMPILE, GRAPHS, KERNELS, RANDOM, SELF, WEIGHTS, LoadOptions
from sampling.loading.origin import resolve
from sampling.loading.random_weights import load_random
from sampling.loading.refusals.checks import common_vocabulary, compare_tokenizers, refuse_two_kinds, same_tokenizer
from sampling.loading.sharded import together
from sampling.loading.stages import Progress, silent
from sampling.pair.model_info import batch_invariant, compiled
from sampling.pair.pair import MODEL, Pair
from sampling.pair.profile_store import with_stored
from sampling.vocabularies.crossing import AUTO, TOLD, Crossing
from sampling.vocabularies.tokens import Vocabulary
from utils.device.torchrun import START, seat
from utils.errors import UnknownName, UserError, wrong_value

__all__ = ["LoadOptions", "Progress", "load_pair"]


def load_pair(options: LoadOptions, progress: Progress = silent) -> Pair:
    """Load target and drafter, check that they fit each other, and say what was mended; with the profile that is kept.

    Raises `UserError` for everything that a user can put right: a name that leads nowhere, an unfit model,
    tokenizers that differ, a device that is not there, too little memory.

    Under torchrun the target is cut over all processes. The first one returns with the pair; the others compute along
    and end when it does (`SystemExit`).
    """
    if here := seat():
        together.refuse_together(options, here.size)
        if not here.first:
            together.follow_first()
        together.leader()
    elif options.drafter_tp:
        raise UserError(f"--drafter-tp given, and this is one process; expected a start by torchrun, as in `{START}`")
    pair = with_stored(with_head_window(_loaded_pair(options, progress), options.head_window))
    why = why_no_cuda() if options.device == "auto" else None
    return pair if why is None else replace(pair, notes=(why, *pair.notes))


def _loaded_pair(options: LoadOptions, progress: Progress) -> Pair:
    here = seat()
    size = 1 if here is None else here.size
    device = choose_device(options.device)
    device = device if here is None else together.own_device(device, here)
    drafter_device = device if options.drafter_device is None else choose_device(options.drafter_device)
    _use_kernel(options.kernel)
    use_own_kernels(options.compile != "off")
    dtype, drafter_dtype = choose_dtype(options.dtype, device), choose_dtype(options.dtype, drafter_device)
    refuse_kernel(options.kernel, {device: dtype, drafter_device: drafter_dtype})
    _refuse_weights(options.target_weights, device)
    _refuse_self(options.drafter, device)
    graphs = options.graphs if here is None else "off"
    switches = {"compile": COMPILE, "graphs": GRAPHS, "batch_invariant": BATCH_INVARIANT}
    for name, known in switches.items():
        if (value := getattr(options, name)) not in known:
            raise UnknownName(name, value, known)
    place = Placement(device, _products(dtype, options, device), options.target_weights, size)
    drafter_place = Placement(drafter_device, drafter_dtype, processes=size if options.drafter_tp else 1)
    target = _compiled(_load(options.target, place, options, progress), options, progress)
    target, why = _batch_invariant(target, options, progress)
    if target.encoder and options.heads:
        raise UserError(
            f"--heads {options.heads} given, and {target.info.name} is an encoder-decoder model; "
            "heads need a decoder-only target"
        )
    heads = {} if target.encoder else heads_for(target.info.name, options.heads)
    model_head = heads.pop(MODEL, None)
    if options.drafter is None:
        pair = _alone(target) if model_head is None else _with_own_drafter(target, model_head)
        pair = replace(pair, heads=heads, compile=options.compile, batch_invariant=options.batch_invariant)
        return on_graphs(pair, graphs, why)
    drafter = _drafter(options.drafter, drafter_place, target, place, options, progress)
    progress("Checking the pair")
    itself = drafter.info.place == target.info.place != ""
    drafter_heads = heads if itself else heads_for(drafter.info.name, None)
    pair = replace(_paired(target, drafter), heads=heads, drafter_heads=drafter_heads)
    return on_graphs(replace(pair, compile=options.compile, batch_invariant=options.batch_invariant), graphs, why)


def _drafter(
    drafter: str,
    place: Placement,
    target: LoadedModel,
    target_place: Placement,
    options: LoadOptions,
    progress: Progress,
) -> LoadedModel:
    """The drafter model that is asked for: one trained for the target, the target itself, or one of its own."""
    if is_trained_model(drafter):
        return load_trained_model(Path(drafter).expanduser(), target)
    if drafter.startswith(SELF):
        return _compiled(_rounded_self(target, drafter), options, progress)
    if (drafter, place) == (options.target, target_place):
        return replace(target, notes=())  # drafting for itself: one copy of the weights is enough
    return _load(drafter, place, options, progress)


def _compiled(loaded: LoadedModel, options: LoadOptions, progress: Progress) -> LoadedModel:
    """The same model with compiled steps, where they are wanted and can be had. Raises `UserError`."""
    model, info, note = compiled(
        loaded.model,
        loaded.info,
        options.compile,
        lambda done: progress(f"Compiling {loaded.info.name} in {loaded.info.stored}, once", done),
    )
    return replace(loaded, model=model, info=info, notes=(*loaded.notes, *([note] if note else [])))


def _batch_invariant(loaded: LoadedModel, options: LoadOptions, progress: Progress) -> tuple[LoadedModel, str | None]:
    """The same model with rows that do not depend on each other, where that is wanted, or why it cannot have them."""
    progress(f"Comparing rows of {loaded.info.name}")
    fixed = options.graphs == "on" and loaded.info.stored == FULL and options.batch_invariant == "auto"
    wanted = "off" if fixed else options.batch_invariant
    model, info, why = batch_invariant(loaded.model, loaded.info, wanted, loaded.tokenizer)
    notes = loaded.notes if why is None or wanted == "on" else (*loaded.notes, f"{info.name} {why}.")
    return replace(loaded, model=model, info=info, notes=notes), why


def _use_kernel(name: str) -> None:
    if name not in KERNELS:
        raise UnknownName("kernel", name, KERNELS)
    use_kernel(name)


def _with_own_drafter(target: LoadedModel, folder: Path) -> Pair:
    """The target with the drafter that comes with the project, unless that one is for other weights of this name."""
    try:
        return _paired(target, load_trained_model(folder, target))
    except UserError as error:
        return replace(_alone(target), notes=(*target.notes, f"No drafter model: {error}."))


def _refuse_weights(name: str, device: torch.device) -> None:
    if name not in WEIGHTS:
        raise UnknownName("target_weights", name, WEIGHTS)
    refuse_format(name, device, f"target_weights {name}")


def _products(dtype: torch.dtype, options: LoadOptions, device: torch.device) -> torch.dtype:
    """The number format between the products: of weights rounded on a CPU float32, unless another is asked for."""
    rounded = options.target_weights != FULL and device.type == "cpu"
    return torch.float32 if options.dtype == "auto" and rounded else dtype


def _refuse_self(drafter: str | None, device: torch.device) -> None:
    """Raise `UserError` for a rounded self that this machine cannot have, before anything is loaded."""
    if drafter is None or not drafter.startswith(SELF):
        return
    name = drafter.removeprefix(SELF)
    if name not in WEIGHTS[1:]:
        raise wrong_value("--drafter", drafter, " or ".join(f"{SELF}{format}" for format in WEIGHTS[1:]))
    refuse_format(name, device, f"--drafter {drafter}")


def _rounded_self(target: LoadedModel, drafter: str) -> LoadedModel:
    """The target as its own drafter, its weights in another format (ML-SpecQD, arXiv 2503.13565).

    It shares embedding and norms; its products and its cache are its own. Raises `UserError`.
    """
    name = drafter.removeprefix(SELF)
    if not isinstance(target.model, LeanModel):
        raise UserError(
            f"--drafter {drafter} given, and {target.info.name} runs on transformers' own layers, whose weights are "
            "left as they are; expected another drafter, or a model with a lean forward (docs/models.md)"
        )
    refuse_indivisible(name, target.info.name, LayerSizes.of_model(target.model), f"--drafter {drafter}")
    if name == target.info.stored:
        return replace(target, notes=())  # its own weights, which rounding again would change
    model = target.model.with_format(replace(FORMATS[name], batch_invariant=False))
    info = replace(target.info, name=f"{target.info.name}, {name}", kernel=None, stored=name, compiled=False)
    return replace(target, model=model, info=info, notes=())


def _load(model: str | None, place: Placement, options: LoadOptions, progress: Progress) -> LoadedModel:
    if place.processes > 1:
        return together.load_together(model, place, options.trust_remote_code, progress)
    if model is not None and model.startswith(RANDOM):
        return load_random(model, place, progress)
    origin = resolve(model, progress)
    progress(f"Loading {origin.name}")
    return load_model(origin, place, options.trust_remote_code)


def _alone(target: LoadedModel) -> Pair:
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


def _paired(target: LoadedModel, drafter: LoadedModel) -> Pair:
    names = (target.info.name, drafter.info.name)
    refuse_two_kinds(names, (target.encoder, drafter.encoder))
    sizes = (target.model.vocab_size, drafter.model.vocab_size)
    if not target.encoder and not same_tokenizer(target.tokenizer, drafter.tokenizer, max(sizes)):
        return _crossed(target, drafter)
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


def _crossed(target: LoadedModel, drafter: LoadedModel) -> Pair:
    """A pair of two tokenizers. Raises `UserError` for one whose tokens are not understood."""
    crossing = Crossing(
        Vocabulary(target.info.name, target.tokenizer, target.model.vocab_size),
        Vocabulary(drafter.info.name, drafter.tokenizer, drafter.model.vocab_size),
    )
    chosen = crossing.chosen(AUTO)
    message = (
        f"{drafter.info.name} has another tokenizer than {target.info.name}. Tokens of both are {crossing}: "
        f"under vocabulary auto it drafts {TOLD[chosen]} ({chosen})."
    )
    share = f"{crossing.coverage.vocabulary:.1%} of the target's vocabulary shared"
    notes = (*target.notes, *drafter.notes, message, _shorter_window(target, drafter))
    return replace(
        _alone(target),
        drafter=ModelRunner(drafter.model),
        drafter_info=replace(drafter.info, detail=f"{drafter.info.detail}; another tokenizer, {share}, {chosen}"),
        notes=tuple(note for note in notes if note),
        crossing=crossing,
    )


def _shorter_window(target: LoadedModel, drafter: LoadedModel) -> str | None:
    if drafter.model.window >= target.model.window:
        return None
    return (
        f"{drafter.info.name} sees {drafter.model.window} tokens, {target.info.name} {target.model.window}: "
        f"nothing is drafted after token {drafter.model.window}."
    )

"""A transformers model behind the engine's forward, tried before it is trusted."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import get_layer_types_and_kwargs

from sampling.forward.caches.transformers_cache import has_state
from sampling.forward.causal_model import CausalModel
from sampling.forward.chains_only import COUNTS_ROWS
from sampling.forward.kernels.probe import CALLED, kernel
from sampling.forward.models.adapter import TransformersModel, takes_cache
from sampling.forward.models.chains import ChainModel, RecomputingModel
from sampling.forward.models.encoder_decoder.families import RECOMPUTED
from sampling.forward.models.encoder_decoder.model import AnswerOpening, EncoderDecoderModel
from sampling.forward.models.encoder_decoder.recomputing import RecomputingDecoderModel
from sampling.forward.models.longrope import LongRopeModel, border_of
from sampling.forward.models.packed_modules import pack_modules
from sampling.forward.models.recurrent import OwnStateModel, RecurrentModel
from sampling.forward.models.windows import windows_of
from sampling.forward.numerics_check import probe_tokens
from sampling.forward.rollback_choice import fastest_way
from sampling.loading.refusals.checks import has_encoder
from sampling.loading.refusals.contents import is_tower
from sampling.loading.refusals.probe import (
    narrow_windows,
    own_logits,
    refuse_no_rollback,
    rows_aside,
    runs_trees,
    takes_mask_by_type,
)
from utils.errors import UserError


def adapted(name: str, model: PreTrainedModel) -> CausalModel:
    """The model as a runner runs it; `refuse_config` has passed its configuration.

    name: what errors call it. Raises `UserError` for one that cannot take tokens back, for one that says something
    else than by itself, and for an encoder-decoder model that does not say how answers begin or which token comes next.
    """
    tokens = probe_tokens(model.config)
    if has_encoder(model.config):
        causal: CausalModel = _with_encoder(name, model)
        refuse_no_rollback(name, causal, tokens)
        return causal
    text = model.config.get_text_config(decoder=True)
    with narrow_windows(text):
        logits = own_logits(name, model.eval(), tokens)
        let_towers_go(name, model, tokens, logits)
        packed = pack_modules(model, model.dtype)
        decoder = _first_that_agrees(name, model, tokens, logits)
    decoder.windows = windows_of(text)
    if isinstance(decoder, RecurrentModel):
        decoder.way = fastest_way(decoder)
    decoder.kernel = (CALLED[kernel("cpu", model.dtype)] if packed else "plain") if model.device.type == "cpu" else None
    return decoder


def let_towers_go(name: str, model: PreTrainedModel, tokens: Sequence[int], logits: Tensor) -> None:
    """Free the weights that read images or sound, where texts do without: the same logits without them prove it.

    logits: `own_logits` of these tokens. Where they would differ, or could not be had, every weight stays.
    """
    if model.config.get_text_config(decoder=True) is model.config:
        return
    towers = [
        (parent, key, child)
        for parent in (model, *model.children())
        for key, child in parent.named_children()
        if is_tower(key)
    ]
    for parent, key, _ in towers:
        setattr(parent, key, None)
    try:
        if not towers or torch.equal(own_logits(name, model, tokens), logits):
            return
    except UserError:
        pass
    for parent, key, child in towers:
        setattr(parent, key, child)


def _first_that_agrees(name: str, model: PreTrainedModel, tokens: Sequence[int], logits: Tensor) -> TransformersModel:
    """The first of `_kinds` that says the same behind our cache as the model by itself, `logits`.

    Raises the `UserError` of the first where none does.
    """
    refusals = []
    for kind in _kinds(model):
        decoder = kind(model)
        decoder.mask_by_type = bool(decoder.windows) and takes_mask_by_type(decoder, tokens, logits)
        try:
            refuse_no_rollback(name, decoder, tokens, logits)
        except UserError as error:
            refusals.append(error)
            continue
        decoder.trees = decoder.trees and runs_trees(decoder, tokens, logits, rows_aside(model.config))
        return decoder
    raise refusals[0]


def _kinds(model: PreTrainedModel) -> Iterator[Callable[[PreTrainedModel], TransformersModel]]:
    """How it might run, the first way that says what the model says by itself is taken."""
    types, _ = get_layer_types_and_kwargs(model.config.get_text_config(decoder=True))
    border = border_of(model.config)
    if any(map(has_state, types)):
        yield RecurrentModel
    if getattr(model, "_is_stateful", False) or any(map(has_state, types)):
        yield OwnStateModel
    elif not takes_cache(model):
        yield RecomputingModel
    elif border is not None:
        yield partial(LongRopeModel, border=border)
    else:
        yield from (TransformersModel, ChainModel)


def limits(model: CausalModel) -> Iterator[str]:
    """What to know of an adapted model before it is used, in parts of sentences."""
    if not isinstance(model, TransformersModel):
        return
    if not model.trees:
        because = getattr(model, "chains_because", COUNTS_ROWS)
        yield (
            f"{because}, so it runs chains of drafts only; recycling, logitspec, beam search, draft_tree and "
            "use_tree_spec are refused"
        )
    if isinstance(model, LongRopeModel):
        yield f"a text is read anew where it grows beyond {model.border} tokens (longrope)"
    rope = getattr(model.hf.config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "dynamic":
        yield f"texts end at {model.window} tokens, where its rotary embedding would begin to change (dynamic)"


def _with_encoder(name: str, model: PreTrainedModel) -> CausalModel:
    if model.get_output_embeddings() is None:
        raise UserError(f"{name}: it has no output over tokens; expected a model for conditional generation")
    kind = RecomputingDecoderModel if model.config.model_type in RECOMPUTED else EncoderDecoderModel
    return kind(model, AnswerOpening.of(name, model))

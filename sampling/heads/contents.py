"""What the weights of a head must be: of the shapes that its configuration gives, finite, and drafting known tokens."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from sampling.heads.block import frequencies
from sampling.heads.config import HeadConfig
from sampling.heads.one_pass import OnePassHead
from sampling.heads.parallel import HydraHead, MedusaHead
from sampling.heads.recurrent import ParallelEagleHead, RecurrentHead
from sampling.heads.small import SmallModel
from utils.errors import UserError, one_of
from utils.text import first_line

_MODULES: Mapping[str, Callable[[HeadConfig], nn.Module]] = {
    "medusa": MedusaHead,
    "hydra": HydraHead,
    "eagle": RecurrentHead,
    "mtp": RecurrentHead,
    "parallel_eagle": ParallelEagleHead,
    "dspark": OnePassHead,
    "model": SmallModel,
}
TURNS = ("eagle", "mtp", "parallel_eagle", "dspark", "model")
"""Methods whose heads have a rotary embedding."""


def check_weights(place: str, config: HeadConfig, weights: Mapping[str, Tensor]) -> None:
    """Raise `UserError` for weights that are not those of the module that was trained, by name and shape."""
    if config.method not in _MODULES:
        raise UserError(f"{place}: config.json: method {config.method!r} given; expected {one_of(_MODULES)}")
    if config.own_output:
        raise UserError(f"{place}: config.json: own_output true given; expected false, the target's output matrix")
    if _MODULES[config.method] in (RecurrentHead, ParallelEagleHead, OnePassHead) and not config.features:
        raise UserError(f"{place}: config.json: features [] given; expected one state of the target or more")
    if config.attention_windows and _MODULES[config.method] not in (RecurrentHead, ParallelEagleHead):
        raise UserError(f"{place}: config.json: attention_windows given for a {config.method} head; expected none")
    with torch.device("meta"):
        expected = {name: tuple(weight.shape) for name, weight in _MODULES[config.method](config).state_dict().items()}
    missing, strange = sorted(expected.keys() - weights.keys()), sorted(weights.keys() - expected.keys())
    if missing:
        raise UserError(
            f"{place}: its weights lack {missing[0]}, which its config.json asks for; expected a whole head"
        )
    if strange:
        raise UserError(f"{place}: {strange[0]} is among its weights; expected only what its config.json asks for")
    for name, shape in expected.items():
        if tuple(weights[name].shape) != shape:
            raise UserError(
                f"{place}: {name} is {list(weights[name].shape)}; expected {list(shape)}, as its config.json says"
            )


def check_numbers(place: str, config: HeadConfig, weights: Mapping[str, Tensor]) -> None:
    """Raise `UserError` for weights, or rotary frequencies, that are no finite floating-point numbers."""
    for name, weight in weights.items():
        if not weight.is_floating_point():
            raise UserError(f"{place}: {name} holds {weight.dtype}; expected floating-point numbers")
        if not bool(torch.isfinite(weight).all()):
            raise UserError(f"{place}: {name} holds NaN or infinity; expected finite numbers")
    if config.method in TURNS:
        try:
            turns, scale = frequencies(config)
        except (TypeError, ValueError, LookupError, ArithmeticError) as error:
            why = first_line(error)
            raise UserError(
                f"{place}: its rotary embedding cannot be computed ({why}); expected one of Llama"
            ) from error
        if not bool(torch.isfinite(turns * scale).all()):
            raise UserError(f"{place}: its rotary embedding is not finite; expected one of Llama")


def check_draft_ids(place: str, config: HeadConfig, ids: Tensor) -> None:
    """Raise `UserError` unless `ids` are `draft_vocab` different ids of the vocabulary."""
    if ids.is_floating_point() or ids.is_complex() or tuple(ids.shape) != (config.draft_vocab,):
        raise UserError(
            f"{place}: draft_ids are {list(ids.shape)} of {ids.dtype}; expected {config.draft_vocab} integers, its "
            "draft_vocab"
        )
    if int(ids.min()) < 0 or int(ids.max()) >= config.vocab_size or len(ids.unique()) < len(ids):
        raise UserError(f"{place}: draft_ids are given twice or unknown; expected some of 0 to {config.vocab_size - 1}")

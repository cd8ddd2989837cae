"""A transformers model tried on a few tokens before it is trusted: what no configuration tells.

The measure is the model's own forward with its own attention and mask, as `generate` calls it. All in all a
decoder-only model is asked eight times for a handful of rows; one of the eight, a tree, is as wide as the attention
window that a configuration names, where it names one.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from sampling.forward.caches.cache import row_shapes
from sampling.forward.causal_model import CausalModel
from sampling.forward.models.adapter import TransformersModel
from sampling.forward.models.steps import BlockShape
from sampling.forward.models.windows import context_length, windows_of
from sampling.forward.numerics_check import FORWARD_ERRORS, LENGTH, all_close
from sampling.forward.runner import ModelRunner
from sampling.loading.refusals.checks import ROLLS_BACK
from utils.errors import UserError
from utils.text import first_line

_SIZES = ("sliding_window", "attention_chunk_size")
NARROW = 3
"""Tokens of a window or of a chunk while a model is tried."""
_WINDOWS = ("window_size", "attention_window", "local_attention")


@contextmanager
def narrow_windows(config: Any) -> Iterator[None]:
    """Around a trial: the windows and chunks of a text model's configuration hold a few tokens, so that they count."""
    before = {name: value for name in _SIZES if isinstance(value := getattr(config, name, None), int)}
    for name in before if windows_of(config) else ():
        setattr(config, name, NARROW)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


@torch.inference_mode()
def takes_mask_by_type(model: TransformersModel, tokens: Sequence[int], logits: Tensor) -> bool:
    """Whether its forward takes a mask for each type of layer; logits: `own_logits`, with which they must agree."""
    model.mask_by_type = True
    try:
        return all_close(ModelRunner(model).forward(tokens).logits, logits)
    except FORWARD_ERRORS:
        return False
    finally:
        model.mask_by_type = False


@torch.inference_mode()
def own_logits(name: str, model: PreTrainedModel, tokens: Sequence[int]) -> Tensor:
    """What the model says by itself, `[n, V]`.

    Raises `UserError` where a later token changes an earlier row, and where it does not say numbers.
    """

    placed = "position_ids" in signature(model.forward).parameters

    def said(count: int) -> Tensor:
        ids = torch.tensor([list(tokens[:count])], device=model.device)
        places = {"position_ids": torch.arange(count, device=model.device).unsqueeze(0)} if placed else {}
        logits: Tensor = model(input_ids=ids, use_cache=False, **places).logits
        return logits[0]

    with _explained(name):
        whole, half = said(len(tokens)), said(len(tokens) // 2)
    if whole.isnan().any():
        dtype = str(whole.dtype).removeprefix("torch.")
        raise UserError(f"{name}: its logits in {dtype} are not numbers (NaN); expected a --dtype with a wider range")
    if not all_close(whole[: len(half)], half):
        raise UserError(
            f"{name}: a later token changes what it says after an earlier one, so it reads in both directions, as an "
            "encoder does; expected a causal model (configurations of BERT's kind: with is_decoder)"
        )
    return whole


def refuse_no_rollback(name: str, model: CausalModel, tokens: Sequence[int], logits: Tensor | None = None) -> None:
    """Feed a few tokens, roll back, feed them again: raise `UserError` unless the logits agree.

    This finds a forward that ignores our cache, positions or mask. logits: `own_logits`, with which they must agree.
    """
    runner = ModelRunner(model)
    with _explained(name):
        runner.read(tokens)
        first = runner.forward(tokens).logits
        runner.crop(2)
        again = runner.forward(tokens[2:]).logits
        last = len(tokens) - 1
        runner.crop(last)
        alone = runner.forward(tokens[last:]).logits
    if logits is not None and not all_close(logits, first):
        raise UserError(
            f"{name}: behind our cache, positions and mask it says something else than by itself; {ROLLS_BACK}"
        )
    if not (all_close(first[2:], again) and all_close(first[last:], alone)):
        raise UserError(f"{name}: its logits change after a rollback, its cache holds more than rows; {ROLLS_BACK}")


def runs_trees(model: CausalModel, tokens: Sequence[int], own_logits: Tensor, aside: int) -> bool:
    """Whether a branch of a tree says what it says alone, and the text behind it too.

    own_logits: of the tokens by the model itself. aside: how many drafts lie between the text and the branch in the
    cache; an attention that counts rows of the cache and not positions loses sight of the text behind so many.
    """
    runner = ModelRunner(model)
    root, *branch, behind = tokens[1:]
    others = [tokens[0]] * aside
    parents = [*[-1] * (aside + 1), *range(aside, aside + len(branch) - 1)]
    try:
        runner.forward(tokens[:1])
        logits = runner.forward([root, *others, *branch], parents).logits
        runner.keep(1, range(aside, aside + len(branch)))
        after = runner.forward([behind]).logits
    except torch.OutOfMemoryError:
        raise
    except FORWARD_ERRORS:
        return False
    along = torch.cat([logits[:1], logits[1 + aside :], after])
    return all_close(own_logits[1:], along)


def why_not_fixed(model: TransformersModel, tokens: Sequence[int]) -> str | None:
    """Why forwards of fixed shapes cannot be had of a model, in words; None where they say what the others say.

    Two lengths of text are tried with one width, so that a graph that holds a length shows, and a tree where the
    model runs trees. What the rows of its layers are like is kept in `rows_shape`.
    """
    dynamic = ModelRunner(model)
    try:
        expected = [dynamic.forward(part).logits for part in (tokens[:2], tokens[2:4], tokens[4:])]
        shapes = row_shapes(dynamic.kept.rows())
        if len(shapes) != 1:
            return "its layers keep rows of several shapes"
        model.rows_shape = BlockShape(0, *shapes.pop())
        fixed = ModelRunner.with_graphs(model)
        for part, logits in zip((tokens[:2], tokens[2:4], tokens[4:]), expected, strict=True):
            if not all_close(logits, fixed.forward(part).logits):
                return "over fixed shapes it says something else"
        tree = (tokens[:3], (-1, -1))
        if model.trees and not all_close(dynamic.forward(*tree).logits, fixed.forward(*tree).logits):
            return "over fixed shapes its trees say something else"
        return next(iter(fixed.graphs.reasons), None) if fixed.graphs else None
    except torch.OutOfMemoryError:
        raise
    except FORWARD_ERRORS as error:
        return first_line(error)


def rows_aside(config: Any) -> int:
    """How many drafts to lay beside the branch of `runs_trees`: a window that the configuration names, or a few."""
    room = context_length(config.get_text_config(decoder=True)) - LENGTH
    named = (getattr(config, name, None) for name in _WINDOWS)
    windows = [window for window in named if isinstance(window, int) and window < room]
    return max(1, min(max([4, *windows]), room))


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn what a forward raises that cannot take a few tokens, or our cache, into a `UserError`."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except FORWARD_ERRORS as error:
        raise UserError(f"{name}: its forward does not work here ({first_line(error)}); {ROLLS_BACK}") from error

"""Which models many sequences can share, and why another one cannot be."""

from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from sampling.forward.caches.cache import row_shapes
from sampling.forward.models.lean import LeanModel
from sampling.forward.models.steps import BlockShape
from sampling.forward.numerics_check import FORWARD_ERRORS, all_close, probe_tokens
from sampling.forward.runner import ModelRunner, Runner, has_one_width
from sampling.forward.sharded.model import ShardedModel
from sampling.forward.sharing import SharedRunner
from sampling.forward.triton.checked import splits_keys
from utils.errors import UserError
from utils.text import first_line

if TYPE_CHECKING:
    from sampling.forward.models.adapter import TransformersModel


def shared_runner(runner: Runner, blocks: bool = False) -> SharedRunner:
    """The model of a runner for many sequences. Raises `UserError` for one that takes a sequence at a time.

    blocks: its rows lie in blocks where they can, see `BlockRows`.
    """
    model = runner.model
    name = type(getattr(model, "hf", model)).__name__
    shareable = model if isinstance(model, LeanModel) else _checked(model, name)
    if has_one_width(runner):
        raise UserError(
            f"{name} takes one sequence at a time: all its forwards have one width (batch_invariant on); "
            "expected no batch, or batch_invariant off"
        )
    if not isinstance(model, LeanModel) or model.batch_invariant or not isinstance(runner, ModelRunner):
        return SharedRunner(shareable, runner.vocab_size, blocks=blocks)
    fixed = runner.fixed_shapes
    in_place = fixed and splits_keys(model.device, model.dtype, model.blocks.shape)  # elsewhere blocks are gathered
    return SharedRunner(model, runner.vocab_size, fixed and not (blocks and not in_place), blocks or in_place)


def _checked(model: Any, name: str) -> "TransformersModel":
    """A model that is not lean. Raises `UserError` for one that sequences cannot share."""
    if isinstance(model, ShardedModel):
        raise UserError(f"a model over {model.processes} processes takes one sequence at a time; expected no batch")
    from sampling.forward.models.adapter import TransformersModel  # with transformers: a lean model needs none

    if not isinstance(model, TransformersModel):
        raise UserError(f"{name} takes one sequence at a time; expected no batch, or a decoder-only model")
    if why := why_not_shared(model):
        raise UserError(f"{name} takes one sequence at a time: {why}; expected no batch")
    return model


@torch.inference_mode()
def why_not_shared(model: "TransformersModel") -> str | None:
    """Why many sequences cannot share its forwards, in words; None where each says what it says alone.

    A long and a short text take turns and go side by side. What rows its layers keep stands in `rows_shape` then.
    """
    tokens = probe_tokens(model.hf.config)
    texts = tokens[:4], tokens[4:]
    try:
        singles = [ModelRunner(model) for _ in texts]
        expected = [
            (runner.forward(text[:-1]).logits, runner.forward(text[-1:]).logits)
            for runner, text in zip(singles, texts, strict=True)
        ]
        shapes = row_shapes(singles[0].kept.rows())
        if len(shapes) != 1:
            return "its layers keep rows of several shapes"
        model.rows_shape = BlockShape(0, *shapes.pop())
        many = SharedRunner(model)
        slots = [many.another() for _ in texts]
        first = [slot.forward(text[:-1]).logits for slot, text in zip(slots, texts, strict=True)]
        last = [
            output.logits
            for output in many.run([slot.feed(text[-1:]) for slot, text in zip(slots, texts, strict=True)])
        ]
        same = all(map(all_close, (row for rows in expected for row in rows), chain(*zip(first, last, strict=True))))
        return None if same else "among others a text says something else than alone"
    except torch.OutOfMemoryError:
        raise
    except FORWARD_ERRORS as error:
        return first_line(error)

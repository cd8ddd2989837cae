"""What was loaded, and how it computes: compiled steps and batch invariance, where they are wanted and can be had."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from torch import nn

from sampling.forward.causal_model import CausalModel
from sampling.forward.cpp.kernel import varlen_kernel
from sampling.forward.cpp.native import NativeLinear
from sampling.forward.invariance import Invariant, batch_invariant_here, within_its_price
from sampling.forward.kernels.formats import FULL
from sampling.forward.kernels.shape_check import LayerSizes
from sampling.forward.models.lean import LeanModel
from sampling.forward.runner import ModelRunner, WholeRunner
from sampling.forward.triton.steps import TritonSteps
from sampling.tokenizer.contract import Tokenizer
from utils.errors import UserError

_ASK = "infer.py invariance says where"
_TEXT = """The river was low that summer, and the children walked across it on the stones. On the other side
they found an old mill: its wheel was broken, but the door stood open. Inside, 12 sacks of flour (each of 25 kg) leaned
on a wall. "Who lives here?" asked the youngest. def answer(name): return f"Nobody, {name}." They stayed until dark.
"""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What was loaded, for people and for records: `detail` says what the name does not.

    place: the folder or hub id that the weights came from. trained: to draft for this target, here.
    kernel: what computes its products; None where there was no choice. stored: the format of its weights. compiled:
    whether what lies between the products is. graphs: whether its forwards have fixed shapes and addresses, and are
    captured where it is on CUDA. processes: over how many the model is cut (tensor parallel). batch_invariant: whether
    a row has the same bits whatever is fed with it. rollback: how its recurrent states take tokens back; None without.
    own_kernels: what those compute, in Triton or in C++; blocks are attention, steps and products. None where torch's
    operations do.
    """

    name: str
    device: str
    dtype: str
    detail: str = ""
    place: str = ""
    trained: bool = False
    kernel: str | None = None
    stored: str = "full"
    compiled: bool = False
    graphs: bool = False
    processes: int = 1
    batch_invariant: bool = False
    rollback: str | None = None
    own_kernels: str | None = None


def compiled(
    model: CausalModel, info: ModelInfo, wanted: str, tell: Callable[[float], None] = lambda done: None
) -> tuple[CausalModel, ModelInfo, str | None]:
    """The model with compiled steps, where `LoadOptions.compile` wants them, and a note where it cannot have them.

    Blocks in C++ of our own need none. tell: see `forward.compiled`. Raises `UserError` where they are asked for and
    cannot be had.
    """
    if isinstance(model, LeanModel) and model.blocks.native is not None:
        return model, info, None
    if wanted == "off" or (wanted == "auto" and (info.stored == FULL or model.device.type != "cpu")):
        return model, info, None
    try:
        if not isinstance(model, LeanModel):
            raise UserError(f"{info.name} runs on transformers' own layers (docs/models.md); expected compile off")
        return model.compiled(tell), replace(info, compiled=True), None
    except UserError as error:
        if wanted == "on":
            raise UserError(f"compile on given, and {error}") from error
        return model, info, f"{info.name} is not compiled: {error}."


def kernels_of_our_own(runner: WholeRunner) -> str | None:
    """See `ModelInfo.own_kernels`."""
    graphs, model = (runner.graphs if isinstance(runner, ModelRunner) else None), runner.model
    if isinstance(model, LeanModel) and model.blocks.native is not None:
        return "blocks"
    ours = {
        "attention": _attends(model) if graphs is None else graphs.cache.owner.split_keys,
        "steps": isinstance(model, LeanModel) and isinstance(model.blocks.steps, TritonSteps),
        "products": _multiplies(model),
    }
    return " and ".join(name for name, there in ours.items() if there) or None


def _attends(model: CausalModel) -> bool:
    """Whether its rows attend by our own kernel."""
    return isinstance(model, LeanModel) and varlen_kernel(model.device, model.dtype, model.blocks.shape) is not None


def _multiplies(model: CausalModel) -> bool:
    """Whether products of its blocks are ours."""
    layers = model.layers if isinstance(model, LeanModel) else ()
    return any(isinstance(product, NativeLinear) for layer in layers for product in layer.products().values())


def batch_invariant(
    model: CausalModel, info: ModelInfo, wanted: str, tokenizer: Tokenizer
) -> tuple[CausalModel, ModelInfo, str | None]:
    """The model with rows that do not depend on each other, where `LoadOptions.batch_invariant` wants them.

    Also why it cannot have them, where it should. tokenizer: the model's.
    """
    model = cast(Invariant, model)
    if model.device.type != "cpu":
        return model, info, f"is on {model.device}" if wanted == "on" else None
    if not hasattr(model, "with_batch_invariance"):
        return model, info, "keeps more than rows" if wanted == "on" else None
    if wanted == "off":
        return model.with_batch_invariance(False), info, None
    invariant, about, text = model.with_batch_invariance(True), _about(model, info), probe_ids(tokenizer)
    if not batch_invariant_here(ModelRunner(invariant), about, text):
        kernel = f" under kernel {info.kernel} in {info.dtype}" if info.kernel else ""
        why = f"is not batch-invariant: among others a row comes out with other bits{kernel} ({_ASK})"
    elif wanted == "auto" and info.stored == FULL and not within_its_price(invariant, about, text):
        why = "is not batch-invariant: it would cost more than 10 %"
    else:
        return invariant, replace(info, batch_invariant=True), None
    return model.with_batch_invariance(False), info, why


def checked_in_one_width(runner: ModelRunner, info: ModelInfo, tokenizer: Tokenizer) -> ModelInfo:
    """What is known of a model whose forwards all have one width. Raises `UserError` where rows differ even so."""
    if batch_invariant_here(runner, _about(cast(Invariant, runner.model), info), probe_ids(tokenizer)):
        return replace(info, graphs=True, batch_invariant=True)
    raise UserError(
        f"batch_invariant on given, and in forwards of one width, too, a row of {info.name} comes out with other bits "
        "among others; expected auto or off"
    )


def probe_ids(tokenizer: Tokenizer) -> list[int]:
    """Ids of a text on whose states rows are compared."""
    return list(tokenizer.encode(_TEXT))


def _about(model: Invariant, info: ModelInfo) -> str:
    """What the sums of a model depend on beside the machine."""
    how = f"{info.dtype}, {info.stored}, {info.kernel or 'own'} kernel{', compiled' * info.compiled}"
    how += ", own attention" * _attends(cast(CausalModel, model))
    if not isinstance(model, LeanModel):
        modules: nn.Module = model.hf  # type: ignore[attr-defined]
        return f"{how}, {type(modules).__name__}, {_sizes_of(modules)}"
    sizes = LayerSizes.of_model(model)
    heads = f"{sizes.heads}/{sizes.kv_heads} heads of {sizes.head_dim}"
    return f"{how}, {model.num_layers}x{sizes.hidden}x{sizes.inner}, {heads}, {model.vocab_size} tokens"


def _sizes_of(model: nn.Module) -> str:
    """Of all weights of a model."""
    sizes = [(name, tuple(weight.shape)) for name, weight in model.named_parameters()]
    return hashlib.sha256(repr(sizes).encode()).hexdigest()[:16]

"""Products in int8: rough ones to draft with, since the target judges what a drafter says, and fine ones for a target.

On a CPU a draft costs what it takes to read the drafter's weights. In int8 they are a quarter of float32, and a
head of a small target stays in the cache. Drafts change by the rounding, outputs do not; under sampling a draft is
drawn from the rounded distribution, which the rejection rule is told.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from sampling.forward.cpp.vnni import Grid, VnniLinear, vnni_kernel
from sampling.forward.kernels import autotune_cache
from sampling.forward.kernels.autotuning import KernelTrial, Times, TrialVerdict, autotune
from sampling.forward.kernels.linear import Arithmetic, Kernel, Prepared, Product, QuantisedLinear
from sampling.forward.kernels.probe import CALLED, kernel
from sampling.forward.kernels.quantisation_scales import SLICE, in_slices
from utils.errors import UserError

_ENGINE = "fbgemm"
_LOWEST = 1e-12
_MIDDLE = 64
_STEP = 1 / (_MIDDLE - 1)
_FINER = 2 / _STEP
_TOLERANCE = 0.05
_MARGIN = 1.2
_INT8 = "int8 drafts"


def _seven_bits(x: Tensor) -> Prepared:
    """Rows over their largest entry, which the product itself rounds to 7 bits, and that entry `[n, 1]`."""
    wide = x.float()
    size = _largest(wide)
    return wide / size, size


def _resized(raw: Tensor, rest: Prepared, bias: Tensor | None) -> Tensor:
    y = raw * rest[0]
    return y if bias is None else y + bias


def _fourteen_bits(x: Tensor) -> Prepared:
    """The same as two parts of 7 bits, `[2 n, in]`: the rows rounded, and what the rounding left of each, enlarged."""
    wide = x.float()
    size = _largest(wide)
    unit = wide / size
    coarse = torch.round(unit / _STEP) * _STEP
    return torch.cat([unit, (unit - coarse) * _FINER]), size


def _joined(raw: Tensor, rest: Prepared, bias: Tensor | None) -> Tensor:
    count = rest[0].shape[0]
    y = (raw[:count] + raw[count:] * (1 / _FINER)) * rest[0]
    return y if bias is None else y + bias


@cache
def _product() -> Callable[..., Any]:
    product: Callable[..., Any] = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default
    return product


def _largest(wide: Tensor) -> Tensor:
    return wide.abs().amax(dim=1, keepdim=True).clamp(min=_LOWEST)


class Int8Linear(QuantisedLinear):
    """Weights in 8 bits with one scale an output; inputs in 7 bits, which pairs of products in 16 bits cannot overflow.

    Each row of the input has its own scale, so that a row's result depends on no other row. Computes in float32,
    whatever the dtype.
    """

    arithmetic = Arithmetic("int8, 7 bits", _seven_bits, _resized)

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._packed = _packed(*in_slices(weight.detach(), rounded))
        self.added = None if bias is None else bias.detach().float()

    def product(self, x: Tensor) -> Tensor:
        """See `Product`; the inputs are rounded here."""
        y: Tensor = _product()(x, _STEP, _MIDDLE, self._packed)
        return y

    def with_kernel(self, kernel: Kernel) -> Product:
        weight, _ = torch.ops.quantized.linear_unpack(self._packed)
        return kernel(weight.dequantize(), self.added)


class FineInt8Linear(Int8Linear):
    """The same weights; inputs in 14 bits, as two parts of 7: a coarse one, and what it leaves.

    The parts are rows of one product, which reads the weights once. In 7 bits alone an outlier of a row takes the
    precision from all its other inputs.
    """

    arithmetic = Arithmetic("int8, 14 bits", _fourteen_bits, _joined)


def fine_int8(weight: Tensor, bias: Tensor | None = None) -> Product:
    """The products of a target: of bytes where the CPU has them, else fbgemm's with inputs in two parts."""
    return _of_bytes(FineInt8Linear, weight, bias)


def rough_int8(weight: Tensor, bias: Tensor | None = None) -> Product:
    """The products of a drafter: those of a target where they cost no more, else fbgemm's with inputs in 7 bits."""
    return _of_bytes(Int8Linear, weight, bias)


def _of_bytes(otherwise: Kernel, weight: Tensor, bias: Tensor | None) -> Product:
    own = vnni_kernel(8, False, weight)
    if own is None:
        return otherwise(weight, bias)
    return VnniLinear(own, (Grid.signed(*rounded(some)) for some in weight.detach().split(SLICE)), bias)


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weights `[out, in]` in int8, and the scale `[out]` of each output."""
    wide = weight.float()
    scale = wide.abs().amax(dim=1).clamp_(min=_LOWEST) / 127
    return (wide / scale.unsqueeze(1)).round_().to(torch.int8), scale


def in_int8(wanted: str, like: Tensor, trained: bool) -> bool:
    """Whether a drafter's products are computed in int8.

    wanted: `int8`; `full`; or `auto`, which is int8 for what was trained to draft for its target, where int8 is
    faster. like: a weight on the drafter's device. Raises `UserError` where int8 is asked for and cannot be had.
    """
    can = like.device.type == "cpu" and runs()
    if wanted == "int8" and not can:
        raise UserError(
            f"draft_weights int8: products in int8 run on x86 CPUs, and the drafter is on {like.device}; "
            "expected auto or full"
        )
    return wanted == "int8" or (wanted == "auto" and trained and can and pays(like.dtype))


@cache
def runs() -> bool:
    """Whether torch has the products for this CPU, and they are right to a few percent."""
    if _ENGINE not in torch.backends.quantized.supported_engines:
        return False
    chance = torch.Generator().manual_seed(0)
    weight, x = torch.randn(64, 32, generator=chance), torch.randn(3, 32, generator=chance)
    try:
        error = Int8Linear(weight)(x) - x @ weight.T
    except (RuntimeError, AttributeError):
        return False
    return bool(error.std() < _TOLERANCE * weight.shape[1] ** 0.5)


@contextmanager
def decided(answer: bool | None) -> Iterator[None]:
    """What `auto` comes to for trained drafters meanwhile, in place of a probe; None: let the probe answer."""
    autotune_cache.give(_INT8, answer)
    try:
        yield
    finally:
        autotune_cache.give(_INT8, None)


def pays(dtype: torch.dtype) -> bool:
    """Whether int8 is clearly faster than this dtype's kernel, for one token and a few together."""
    full, own = kernel("cpu", dtype), vnni_kernel(8, False, torch.empty(1, 1))
    case = f"{str(dtype).removeprefix('torch.')} {CALLED[full]}{' beside ours' if own else ''}"
    return autotune_cache.choose(_INT8, case, lambda: _rough_or_full(full, dtype))


def _rough_or_full(full: Kernel, dtype: torch.dtype) -> TrialVerdict:
    race = KernelTrial([(rough_int8, dtype), (full, dtype)])
    return autotune(race.turn, lambda fastest: rough_wins(*fastest), otherwise=True)


def rough_wins(rough: Times, full: Times) -> bool:
    """Seconds of a pass of each, for a few numbers of rows -> whether to draft in int8."""
    return _MARGIN * sum(rough) < sum(full)


def _packed(weight: Tensor, scale: Tensor) -> Tensor:
    """The int8 weight in the layout of its products, which are fbgemm's whatever engine is the process's."""
    zero, engine = torch.zeros(len(scale), dtype=torch.long), torch.backends.quantized.engine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch's announcement that these tensors move to another package
        quantized = torch._make_per_channel_quantized_tensor(weight, scale.double(), zero, 0)
    torch.backends.quantized.engine = _ENGINE
    try:
        packed: Tensor = torch.ops.quantized.linear_prepack(quantized, None)
    finally:
        torch.backends.quantized.engine = engine
    return packed

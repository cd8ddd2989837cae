"""Our kernels, once they have given on this device what the plain operations give. Elsewhere those stay."""

import logging
from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace

import torch
from torch import Tensor

from sampling.forward.kernels.attention import folded_mask
from sampling.forward.kernels.linear import DenseLinear
from sampling.forward.kernels.quantisation_scales import FP8
from sampling.forward.kernels.scores import Scores, explicit_attention
from sampling.forward.models.steps import BlockShape, Destination, Norm, Steps
from sampling.forward.triton.attention import SplitKeys, columns_of_a_part
from sampling.forward.triton.byte_products import product_of_bytes
from sampling.forward.triton.choice import may_use
from sampling.forward.triton.steps import TritonSteps
from utils.text import first_line

WIDEST = 256
_ROWS = 5
_TOLERANCE = 0.02
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_PLAIN = DenseLinear(torch.zeros(0, 0))
_FP8 = SimpleNamespace(arithmetic=FP8, added=None)
_log = logging.getLogger(__name__)

Trial = Callable[[], tuple[Tensor, Tensor]]
"""What a kernel gives and what is expected of it."""


def splits_keys(device: torch.device, dtype: torch.dtype, shape: BlockShape) -> bool:
    """Whether captured forwards of these heads attend by `SplitKeys`."""
    if not may_use(device) or dtype not in _DTYPES or not 0 < shape.head_dim <= WIDEST:
        return False
    return _attends(device, dtype, (shape.heads, shape.kv_heads, shape.head_dim))


def fuses_steps(device: torch.device, dtype: torch.dtype, shape: BlockShape) -> bool:
    """Whether the steps of blocks of this shape are `TritonSteps`."""
    return may_use(device) and dtype in _DTYPES and shape.head_dim % 2 == 0 and _fuses(device, dtype, shape)


@cache
def multiplies_bytes(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether products of weights in 8 bits are `product_of_bytes`."""
    return may_use(device) and dtype in _DTYPES and right("the product in 8 bits", lambda: _by_bytes(device, dtype))


def step_trials(device: torch.device, dtype: torch.dtype, shape: BlockShape) -> dict[str, Trial]:
    """Each kernel of `TritonSteps` on a few rows, by its name."""
    return {
        "the fused step of norms": partial(_joined, device, dtype, shape),
        "the fused step of heads": partial(_turned, device, dtype, shape),
        "the fused gate": partial(_gated, device, dtype, shape),
    }


@cache
def rounds_to_fp8(device: torch.device, dtype: torch.dtype, shape: BlockShape) -> bool:
    """Whether the fused steps round rows for products in fp8; they are there."""
    return right("the fused rounding to fp8", lambda: _rounded(device, dtype, shape))


@cache
def _fuses(device: torch.device, dtype: torch.dtype, shape: BlockShape) -> bool:
    return all(right(name, trial) for name, trial in step_trials(device, dtype, shape).items())


@cache
def _attends(device: torch.device, dtype: torch.dtype, heads: tuple[int, int, int]) -> bool:
    return right("attention with split keys", lambda: _trial(device, dtype, *heads))


def right(name: str, trial: Trial) -> bool:
    """Whether a kernel gives what is expected, to rounding; a line says why where it does not."""
    try:
        with torch.inference_mode():
            found, expected = trial()
            error = (found.float() - expected.float()).norm() / expected.float().norm()
        if error <= _TOLERANCE:
            return True
        reason = f"it is off by {float(error):.1%}"
    except Exception as exception:  # compilers raise anything
        reason = first_line(exception) or type(exception).__name__
    _log.warning("%s in Triton is not used: %s", name, reason)
    return False


def _trial(device: torch.device, dtype: torch.dtype, heads: int, kv_heads: int, dim: int) -> tuple[Tensor, Tensor]:
    """What the kernel and the plain operations give for a few rows that see two parts of the keys."""
    drawn = _drawn(device, dtype)
    known = columns_of_a_part(_ROWS) + 1

    query, keys, values = (
        drawn(_ROWS, heads, dim),
        drawn(1, kv_heads, 2 * known, dim),
        drawn(1, kv_heads, 2 * known, dim),
    )
    seen = torch.ones(_ROWS, _ROWS, dtype=torch.bool, device=device).tril()
    found = SplitKeys.of(torch.tensor([known], device=device), seen.unsqueeze(0)).attend(query, keys, values)
    columns, group = known + _ROWS, heads // kv_heads
    blocked = torch.zeros(_ROWS, columns, device=device)
    blocked[:, known:].masked_fill_(~seen, torch.finfo(torch.float32).min)
    known_keys, known_values = (stored[:, :, :columns].float() for stored in (keys, values))
    folded = query.float().unflatten(1, (kv_heads, group)).permute(1, 2, 0, 3).reshape(1, kv_heads, -1, dim)
    out = explicit_attention(folded, known_keys, known_values, folded_mask(blocked, group), Scores())
    return found, out.view(heads, _ROWS, dim).transpose(0, 1).reshape(_ROWS, -1)


def _drawn(device: torch.device, dtype: torch.dtype) -> Callable[..., Tensor]:
    """Normal numbers of a size, the same ones each time."""
    chance = torch.Generator().manual_seed(0)
    return lambda *size: torch.randn(*size, generator=chance).to(device, dtype)


def _joined(device: torch.device, dtype: torch.dtype, shape: BlockShape) -> tuple[Tensor, Tensor]:
    """A residual and its norm, one beside the other."""
    drawn, width = _drawn(device, dtype), shape.heads * shape.head_dim
    x, more, after, norm = drawn(_ROWS, width), drawn(_ROWS, width), Norm(drawn(width), 1e-5), Norm(drawn(width), 1e-6)
    found, expected = list[Tensor](), list[Tensor]()
    for first in (after, None):
        joined, normed = torch.empty_like(x), torch.empty_like(x)
        TritonSteps(shape).adding(x, more, (first, norm), joined, normed).run()
        plain = Steps(shape).leave(x, more, (), _PLAIN, first)
        found, expected = [*found, joined, normed], [*expected, plain, norm(plain)]
    return torch.cat(found), torch.cat(expected)


def _rounded(device: torch.device, dtype: torch.dtype, shape: BlockShape) -> tuple[Tensor, Tensor]:
    """A norm of a sum, and a gate, in fp8 with their scales."""
    drawn, width = _drawn(device, dtype), shape.heads * shape.head_dim
    x, more, norm, both = drawn(_ROWS, width), drawn(_ROWS, width), Norm(drawn(width), 1e-6), drawn(_ROWS, 2 * width)
    found, expected = list[Tensor](), list[Tensor]()
    for steps, rows in ((TritonSteps(shape, fp8=True), found), (Steps(shape), expected)):
        _, joined = steps.join(x, more, (), _PLAIN, (None, norm), _FP8)
        rows += [short.float() * scale for short, scale in (joined, steps.gate(both, (), _PLAIN, _FP8))]
    return torch.cat(found), torch.cat(expected)


def _turned(device: torch.device, dtype: torch.dtype, shape: BlockShape) -> tuple[Tensor, Tensor]:
    """Queries, keys and values, one behind the other; keys and values as they are stored."""
    drawn, (heads, kv_heads, dim) = _drawn(device, dtype), (shape.heads, shape.kv_heads, shape.head_dim)
    mixed, cos, sin = drawn(_ROWS, (heads + 2 * kv_heads) * dim), drawn(_ROWS, 1, dim), drawn(_ROWS, 1, dim)
    found, expected = list[Tensor](), list[Tensor]()
    for norms in ((Norm(drawn(dim), 1e-5), Norm(drawn(dim), 1e-6)), (None, None)):
        keys, values = (mixed.new_zeros(1, kv_heads, 2 * _ROWS, dim) for _ in range(2))
        query, places = mixed.new_empty(_ROWS, heads, dim), torch.arange(_ROWS, device=device) + 3
        to = Destination(keys, values, places, 1, 0, 2 * _ROWS)
        TritonSteps(shape).turning(mixed, norms, cos, sin, query, to).run()
        stored = (part[0, :, 3 : 3 + _ROWS].transpose(0, 1) for part in (keys, values))
        found += [query, *stored]
        expected += Steps(shape).turn(mixed, (), _PLAIN, norms, cos, sin)
    return torch.cat(found, 1), torch.cat(expected, 1)


def _by_bytes(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Rows by a matrix whose sizes no tile divides."""
    drawn = _drawn(device, dtype)
    x, levels, scale = drawn(_ROWS, 200), (50 * drawn(72, 200)).clamp(-127, 127).to(torch.int8), drawn(72).float()
    return product_of_bytes(x, levels, scale), x.float() @ (levels.float() * scale.unsqueeze(1)).T


def _gated(device: torch.device, dtype: torch.dtype, shape: BlockShape) -> tuple[Tensor, Tensor]:
    both = _drawn(device, dtype)(_ROWS, 2 * 1040)
    return TritonSteps(shape).gated(both), Steps(shape).gated(both)

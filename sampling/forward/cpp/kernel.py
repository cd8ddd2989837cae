"""Attention in C++, for a width of heads and a number format: see `varlen.cpp`.

It is used once it has given on this machine what the plain operations give, and every row alone what it gives among
others.
"""

from ctypes import c_void_p
from functools import cache
from types import SimpleNamespace

import torch
from torch import Tensor

from sampling.forward.cpp.library import compiler, library, own_kernels, usable
from sampling.forward.cpp.varlen import Attend, VarlenAttention
from sampling.forward.kernels.scores import PLAIN_SCORES, explicit_attention
from sampling.forward.models.steps import BlockShape

NUMBERS = {torch.float32: "float", torch.bfloat16: "bfloat16"}
LANES, _WIDEST = 16, 256
_ROWS, _COLUMNS = 5, 300
_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.02}


def varlen_kernel(device: torch.device, dtype: torch.dtype, shape: BlockShape) -> Attend | None:
    """What `VarlenAttention` calls; None where it cannot be had."""
    if not own_kernels() or device.type != "cpu" or dtype not in NUMBERS:
        return None
    fits = shape.head_dim % LANES == 0 and 0 < shape.head_dim <= _WIDEST and shape.heads % shape.kv_heads == 0
    return _checked(dtype, shape.head_dim) if fits and compiler() is not None else None


@cache
@torch.inference_mode()
def _checked(dtype: torch.dtype, dim: int) -> Attend | None:
    """The kernel for heads of this width; None where it is not right, and a line says why."""
    return usable("attention", lambda: _made(NUMBERS[dtype], dim), lambda kernel: _fault(kernel, dtype, dim))


def _fault(kernel: Attend, dtype: torch.dtype, dim: int) -> str | None:
    """What is wrong with it on a few rows that see two parts of the keys; None where nothing is."""
    chance = torch.Generator().manual_seed(0)
    query = torch.randn(_ROWS, 6, dim, generator=chance).to(dtype)
    keys, values = torch.randn(2, 1, 2, _COLUMNS, dim, generator=chance).to(dtype)
    seen = torch.ones(_ROWS, _COLUMNS, dtype=torch.bool).tril(_COLUMNS - _ROWS)
    seen[1:, _COLUMNS - _ROWS] = False  # a tree: the others hang beside the first
    fed = SimpleNamespace(start=_COLUMNS - _ROWS, count=_ROWS, seen=seen)
    table = torch.zeros(1, 1, dtype=torch.long)
    found = VarlenAttention(kernel, [fed], table).attend(query, keys, values)
    for row in range(_ROWS):
        mine = query[row : row + 1]
        one = VarlenAttention(kernel, [SimpleNamespace(start=0, count=1, seen=seen[row : row + 1])], table)
        if not torch.equal(one.attend(mine, keys, values)[0], found[row]):
            return "a row has other bits among others"
        meant = _expected(mine, keys[:, :, seen[row]], values[:, :, seen[row]])
        error = float((found[row].float() - meant).norm() / meant.norm())
        if not error <= _TOLERANCE[dtype]:
            return f"it is off by {error:.1%}"
    return None


def _expected(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    folded = query.float().view(1, keys.shape[1], -1, query.shape[2])
    return explicit_attention(folded, keys.float(), values.float(), None, PLAIN_SCORES).flatten()


def _made(number: str, dim: int) -> Attend:
    attend = library("varlen", NUMBER=number, DIM=str(dim)).attend
    attend.argtypes, attend.restype = [c_void_p] * 5, None
    return attend

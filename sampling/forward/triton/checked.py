"""Our kernels, once they have given on this device what the plain operations give. Elsewhere those stay."""

import logging
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from sampling.forward.kernels.attention import folded_mask
from sampling.forward.kernels.scores import Scores, explicit_attention
from sampling.forward.models.steps import BlockShape
from sampling.forward.triton.attention import SplitKeys, columns_of_a_part
from sampling.forward.triton.choice import may_use
from utils.text import first_line

WIDEST = 256
_ROWS = 5
_TOLERANCE = 0.02
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_log = logging.getLogger(__name__)


def splits_keys(device: torch.device, dtype: torch.dtype, shape: BlockShape) -> bool:
    """Whether captured forwards of these heads attend by `SplitKeys`."""
    if not may_use(device) or dtype not in _DTYPES or not 0 < shape.head_dim <= WIDEST:
        return False
    return _attends(device, dtype, (shape.heads, shape.kv_heads, shape.head_dim))


@cache
def _attends(device: torch.device, dtype: torch.dtype, heads: tuple[int, int, int]) -> bool:
    return right("attention with split keys", lambda: _trial(device, dtype, *heads))


def right(name: str, trial: Callable[[], tuple[Tensor, Tensor]]) -> bool:
    """Whether a kernel gives what is expected, to rounding, and says so where it does not; trial: both."""
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
    chance = torch.Generator().manual_seed(0)
    known = columns_of_a_part(_ROWS) + 1

    def drawn(*size: int) -> Tensor:
        return torch.randn(*size, generator=chance).to(device, dtype)

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

"""Whether blocks in C++ give what their steps give, on a few rows by the first of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from sampling.forward.caches.rows import RowsCache
from sampling.forward.caches.rows_slot import RowsSlot
from sampling.forward.cpp.block import NativeBlocks
from sampling.forward.models.blocks import Blocks, places_of

_ROWS = 5
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.02}

Run = Callable[[Tensor, Tensor, RowsCache, Tensor | None], Tensor]


@torch.inference_mode()
def fault(blocks: Blocks, native: NativeBlocks) -> str | None:
    """What is wrong with them; None where nothing is."""
    first, one = native.first, replace(blocks, layers=blocks.layers[:1], compiled=None)
    chance, like = torch.Generator().manual_seed(0), blocks.tables[0][0]
    x, read = (torch.randn(_ROWS, width, generator=chance).to(like) for width in (first.width, first.inputs))
    entering = x, None if first.inputs == first.width else read

    def in_native(x: Tensor, positions: Tensor, cache: RowsCache, read: Tensor | None) -> Tensor:
        return first.run(x, positions, places_of(cache) or [], read, ())[1]

    def in_steps(x: Tensor, positions: Tensor, cache: RowsCache, read: Tensor | None) -> Tensor:
        (state,) = one.run_stepwise(x, positions, None, cache, read)
        return state

    found, expected = (_fed(one, run, *entering, [_ROWS]) for run in (in_native, in_steps))
    error = float((found - expected).float().norm() / expected.float().norm())
    if not error <= _TOLERANCE[like.dtype]:
        return f"it is off by {error:.1%}"
    alike = torch.equal(_fed(one, in_native, *entering, [1] * _ROWS), found)
    return None if alike else "a row has other bits among others"


def _fed(blocks: Blocks, run: Run, x: Tensor, read: Tensor | None, sizes: Sequence[int]) -> Tensor:
    """The states of rows of one text that are fed so many at a time."""
    cache = RowsCache(1, blocks.shape, x.device, x.dtype)
    slot, states = RowsSlot(cache), list[Tensor]()
    reads = [None] * len(sizes) if read is None else read.split(list(sizes))
    for rows, entering in zip(x.split(list(sizes)), reads, strict=True):
        positions, _ = slot.lay_out(len(rows))
        states.append(run(rows, positions, cache, entering))
        slot.advance(len(rows))
    return torch.cat(states)

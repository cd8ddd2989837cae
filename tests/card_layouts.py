"""Attention that returns what a card's kernels return: the same numbers in another order of memory.

With a mask a card takes the memory-efficient kernel, whose output lies row by row, `[B, n, heads, D]`. Without one it
takes flash, which lays its output out as it lays out the query. Where heads lie one behind the other, as they do for
us, that is the CPU's order. A mask of another dtype than the query's is refused there. Products lie as they do here.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

own = F.scaled_dot_product_attention


def as_on_a_card(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **named: Any) -> Tensor:
    """`scaled_dot_product_attention`, whose output lies as a card lays it out."""
    if attn_mask is None or torch.cuda.is_available():  # a card lays out its own
        return own(query, key, value, attn_mask=attn_mask, **named)
    if attn_mask.dtype not in (torch.bool, query.dtype):
        raise RuntimeError(f"invalid dtype for bias: {attn_mask.dtype} beside a query in {query.dtype}")
    if query.device.type == "cuda":
        return _efficient(query, key, value, attn_mask, named.get("scale"))
    out = own(query, key, value, attn_mask=attn_mask, **named)
    return out.transpose(1, 2).contiguous().transpose(1, 2) if out.dim() == 4 else out


def _efficient(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float | None) -> Tensor:
    """The kernel by its name: without a card torch chooses another one."""
    bias = mask.expand(*query.shape[:3], key.shape[2])
    out: Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, bias, False, 0.0, False, scale=scale
    )[0]
    return out


@pytest.fixture(autouse=True)
def card_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test of a folder whose conftest has this meets the layouts of a card."""
    monkeypatch.setattr(F, "scaled_dot_product_attention", as_on_a_card)

"""How queries score keys: a scale, a window, a cap on scores, sinks."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one layer's attention.

    scale: factor on the products, 1 / sqrt(D) where none is given. window: a token sees the last so many of the rows
    that its mask leaves, itself included. cap: a score s becomes cap * tanh(s / cap) (Gemma 2, arXiv 2408.00118).
    sinks: `[heads]`, a score for each head that takes part in the softmax and brings no value (gpt-oss).
    """

    scale: float | None = None
    window: int | None = None
    cap: float | None = None
    sinks: Tensor | None = None

    @property
    def fused(self) -> bool:
        """Whether torch's fused attention computes them."""
        return self.cap is None and self.sinks is None

    def first(self, columns: int) -> int:
        """The first column that a token sees which sees `columns` of them but for the window."""
        return 0 if self.window is None else max(0, columns - self.window)


PLAIN_SCORES = Scores()


class Masks:
    """The additive mask `[.., n, L]` of a forward, and what each window leaves of it.

    On every path through a text the rows lie in the order of their positions. So a window is the last rows of those
    that a token sees: for chains, for trees and for the branches of a beam.
    """

    def __init__(self, mask: Tensor) -> None:
        self._made: dict[int | None, Tensor] = {None: mask}

    def within(self, window: int | None) -> Tensor:
        """The mask behind a window; each is made once."""
        if window is None or window in self._made:
            return self._made[window]
        mask = self._made[None]
        seen = mask == 0
        before = seen.cumsum(-1) <= seen.sum(-1, keepdim=True) - window
        self._made[window] = mask.masked_fill(before, torch.finfo(mask.dtype).min)
        return self._made[window]


def explicit_attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scores: Scores) -> Tensor:
    """Attention step by step, for scores that no fused kernel has.

    `[B, kv_heads, group * n, D]` on `[B, kv_heads, L, D]` -> `[B, kv_heads, group * n, E]`. mask: see `folded_mask`.
    """
    scale = query.shape[-1] ** -0.5 if scores.scale is None else scores.scale
    weights = query @ keys.transpose(-1, -2) * scale
    if scores.cap is not None:
        weights = torch.tanh(weights / scores.cap) * scores.cap
    if mask is not None:
        weights = weights + mask
    if scores.sinks is not None:
        kv_heads, rows = weights.shape[1:3]
        sinks = scores.sinks.view(kv_heads, -1, 1).expand(-1, -1, rows * kv_heads // len(scores.sinks))
        sunk = sinks.reshape(1, kv_heads, rows, 1).expand(len(weights), -1, -1, -1)
        weights = torch.cat([weights, sunk.to(weights.dtype)], dim=-1)
    shares = torch.softmax(weights.float(), dim=-1).to(values.dtype)
    return shares[..., : keys.shape[2]] @ values

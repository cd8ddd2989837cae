"""Attention that never repeats the key/value heads: the query heads of a group become query rows."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sampling.forward.kernels.batch_invariant import AttentionPattern, CausalRows, attention_pattern, columns_for
from sampling.forward.kernels.scores import PLAIN_SCORES, Masks, Scores, explicit_attention

FOLDED = "folded_sdpa"

# What a model may hand its attention without asking for other scores: our mask says what is seen.
_NO_CHANGE = frozenset(
    {"is_causal", "sliding_window", "position_ids", "past_key_values", "use_cache"}
    | {f"output_{name}" for name in ("attentions", "hidden_states", "router_logits")}
)


def grouped_attention(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scores: Scores = PLAIN_SCORES
) -> Tensor:
    """`[B * n, heads, D]` queries on `[B, kv_heads, L, D]` keys, `[B, kv_heads, L, E]` values -> `[B * n, heads * E]`.

    Head h reads key/value head h // group. mask: additive, see `folded_mask`; None = all rows are seen. scores:
    their window is the mask's to hide. What the kernel returns is laid out as the kernel likes, on a card otherwise
    than on a CPU.
    """
    batch, kv_heads = keys.shape[:2]
    heads, dim = query.shape[1:]
    group, count = heads // kv_heads, query.shape[0] // batch
    by_head = query.reshape(batch, count, heads, dim).transpose(1, 2)
    folded = by_head.reshape(batch, kv_heads, group * count, dim)
    if scores.fused:
        out = F.scaled_dot_product_attention(folded, keys, values, attn_mask=mask, scale=scores.scale)
    else:
        out = explicit_attention(folded, keys, values, mask, scores)
    width = values.shape[-1]
    by_row = out.reshape(batch, kv_heads, group, count, width).permute(0, 3, 1, 2, 4)
    return by_row.reshape(batch * count, heads * width)


def folded_mask(mask: Tensor, group: int) -> Tensor:
    """A mask `[.., n, L]` for the rows of a group's heads, which lie below each other: `[.., group * n, L]`."""
    return mask.repeat(*[1] * (mask.dim() - 2), group, 1) if group > 1 else mask


def attend_on(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    columns: int,
    mask: Masks | None,
    sees: AttentionPattern | None,
    scores: Scores,
) -> Tensor:
    """`[n, heads, D]` on the first columns of buffers -> `[n, heads * D]`; see `AttentionPattern.attend`.

    Without mask and pattern, one token sees all columns that its window leaves.
    """
    if sees is not None:
        return sees.attend(query, keys, values, scores)
    start = scores.first(columns) if mask is None else 0
    keys, values = keys.narrow(2, start, columns - start), values.narrow(2, start, columns - start)
    return grouped_attention(query, keys, values, None if mask is None else mask.within(scores.window), scores)


class _Patterns:
    """The patterns of the masks of one forward, which all layers share."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Tensor, Sequence[AttentionPattern]]] = {}

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scores: Scores) -> Tensor:
        """`[S * n, heads, D]` on `[S, kv_heads, L, D]`, which may be the beginning of a buffer.

        mask: `[S, 1, n, L]`, additive or bool.
        """
        if id(mask) not in self._made:
            self._made[id(mask)] = mask, _patterns_of(_seen(mask[:, 0]), keys.dtype)
        _, patterns = self._made[id(mask)]
        columns = columns_for(keys.shape[2], keys.dtype, keys.shape[3])
        keys, values = _with_room(keys, columns), _with_room(values, columns)
        if len(patterns) == 1:
            return patterns[0].attend(query, keys, values, scores)
        parts = zip(patterns, query.chunk(len(patterns)), keys.split(1), values.split(1), strict=True)
        return torch.cat([pattern.attend(rows, known, meant, scores) for pattern, rows, known, meant in parts])


def _seen(mask: Tensor) -> Tensor:
    return mask if mask.dtype == torch.bool else mask == 0


def _patterns_of(seen: Tensor, dtype: torch.dtype) -> Sequence[AttentionPattern]:
    """One for all sequences where all their rows see their first columns, else one for each; seen: `[S, n, L]`."""
    counts = seen.sum(2)
    if torch.equal(seen, torch.arange(seen.shape[2], device=seen.device) < counts.unsqueeze(2)):
        return [CausalRows(counts, dtype)]
    return [attention_pattern(some, dtype) for some in seen]


def _with_room(buffer: Tensor, columns: int) -> Tensor:
    """`[S, kv_heads, L, D]` with what lies behind it in its buffer, or zeros: `[S, kv_heads, columns, D]`."""
    sequences, heads, length, dim = buffer.shape
    step = buffer.stride(1)
    end = buffer.storage_offset() + (sequences - 1) * buffer.stride(0) + heads * step
    inside = buffer.stride()[2:] == (dim, 1) and columns * dim <= step
    if inside and end * buffer.element_size() <= buffer.untyped_storage().nbytes():
        return buffer.as_strided((sequences, heads, columns, dim), buffer.stride())
    return F.pad(buffer, (0, 0, 0, columns - length))


_patterns: ContextVar[_Patterns | None] = ContextVar("patterns", default=None)


@contextmanager
def batch_invariant(on: bool) -> Iterator[None]:
    """Whether transformers' modules attend so that a row has the same bits whatever is fed with it: one forward."""
    before = _patterns.set(_Patterns() if on else None)
    try:
        yield
    finally:
        _patterns.reset(before)


def _folded_for_transformers(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """`grouped_attention` with the signature that transformers' attention modules call.

    A module that asks for more (scores that are capped, sinks, a bias of positions) gets its family's own function.
    """
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        blocked = torch.finfo(query.dtype).min
        attention_mask = torch.zeros_like(attention_mask, dtype=query.dtype).masked_fill(~attention_mask, blocked)
    if any(value is not None for name, value in kwargs.items() if name not in _NO_CHANGE):
        namespace: Any = sys.modules[type(module).__module__]
        return namespace.eager_attention_forward(  # type: ignore[no-any-return]
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    batch, heads, count, dim = query.shape
    if (patterns := _patterns.get()) is not None and attention_mask is not None and attention_mask.shape[1] == 1:
        rows = query.transpose(1, 2).reshape(batch * count, heads, dim)
        out = patterns.attend(rows, key, value, attention_mask, Scores(scaling))
        return out.reshape(batch, count, heads, value.shape[-1]), None
    if attention_mask is not None and attention_mask.shape[1] == heads > 1:  # a mask a head
        attention_mask = attention_mask.reshape(batch, key.shape[1], -1, attention_mask.shape[-1])
    elif attention_mask is not None:
        attention_mask = folded_mask(attention_mask, heads // key.shape[1])
    rows = query.transpose(1, 2).reshape(batch * count, heads, dim)
    out = grouped_attention(rows, key, value, attention_mask, Scores(scaling))
    return out.reshape(batch, count, heads, value.shape[-1]), None


def register() -> None:
    """Make `attn_implementation="folded_sdpa"` known to transformers, whose model code is imported only here."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    def mask(*args: Any, **kwargs: Any) -> Any:
        """Always there: a model that is called by itself leaves it out where its own attention would be causal."""
        return sdpa_mask(*args, **{**kwargs, "allow_is_causal_skip": False})

    AttentionInterface.register(FOLDED, _folded_for_transformers)
    AttentionMaskInterface.register(FOLDED, mask)

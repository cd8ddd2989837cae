"""A head's draft on a CPU in one call of C++: what it joins, its blocks, and its output. See `draft` of `block.cpp`."""

from collections.abc import Callable, Sequence
from ctypes import Structure, addressof, byref, c_float, c_int64, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sampling.forward.cpp.block import (
    ROWS,
    NativeBlocks,
    NativeNorm,
    NativeProduct,
    Run,
    fault,
    function_of,
    is_native,
    native_norm,
    native_product,
    places_of,
)
from sampling.forward.cpp.kernel import NUMBERS
from sampling.forward.cpp.library import usable
from sampling.forward.kernels.linear import Linear, ReducedOutput
from sampling.forward.models.steps import Destination, Norm

if TYPE_CHECKING:
    from sampling.forward.models.blocks import Blocks

Stepwise = Callable[[Tensor, Tensor, Tensor, Any, int], tuple[Tensor, Tensor]]
"""Of tokens, what they continue, positions, a cache, and of how many rows logits are wanted: states and logits."""


@dataclass(frozen=True, slots=True)
class HeadEnds:
    """What a head computes in front of its blocks and behind them: see `RecurrentForward`."""

    embedding: Tensor
    masks: tuple[Tensor, Tensor] | None
    embed_norm: Norm | None
    state_norm: Norm | None
    joining: Linear | None
    norm: Norm | None
    output: Linear
    normed_residual: bool
    normed_feedback: bool


class _Ends(Structure):
    """`Ends` of `block.cpp`."""

    _fields_ = (
        *((name, c_void_p) for name in ("embedding", "mask_embedding", "mask_state", "ids")),
        *((name, NativeProduct) for name in ("joining", "output")),
        *((name, NativeNorm) for name in ("embed_norm", "state_norm", "norm")),
        *((name, c_int64) for name in ("vocabulary", "normed_residual", "normed_feedback")),
        ("lowest", c_float),
    )


class _Fed(Structure):
    """`Fed` of `block.cpp`."""

    _fields_ = (
        *((name, c_void_p) for name in ("tokens", "asked", "above")),
        ("wanted", c_int64),
        *((name, c_void_p) for name in ("states", "logits")),
    )


class NativeHead:
    """A head that drafts; a row comes out alike, bit for bit, whatever is fed with it."""

    def __init__(self, draft: Run, blocks: NativeBlocks, ends: HeadEnds) -> None:
        """ends: whose products C++ can call."""
        self._draft, self._blocks, output = draft, blocks, ends.output
        assert isinstance(output, ReducedOutput)
        whole = len(output.ids) == output.vocab_size
        self._vocab_size, self._dtype = output.vocab_size, ends.embedding.dtype
        tensors = {"embedding": ends.embedding.contiguous()}
        if ends.masks is not None:
            tensors["mask_embedding"], tensors["mask_state"] = (one.contiguous() for one in ends.masks)
        if not whole:
            tensors["ids"] = output.ids.contiguous()
        norms = {name: getattr(ends, name) for name in ("embed_norm", "state_norm", "norm")}
        weights = {name: norm.weight.float().contiguous() for name, norm in norms.items() if norm is not None}
        joining: Any = ends.joining
        self._ends = _Ends(
            **{name: tensor.data_ptr() for name, tensor in tensors.items()},
            **{name: native_norm(norm, weights.get(name)) for name, norm in norms.items()},
            **({} if joining is None else {"joining": native_product(joining)}),
            output=native_product(output.linear),  # type: ignore[arg-type]
            vocabulary=output.vocab_size,
            normed_residual=ends.normed_residual,
            normed_feedback=ends.normed_feedback,
            lowest=torch.finfo(ends.embedding.dtype).min,
        )
        self._held = tensors, weights, ends

    def run(
        self, tokens: Tensor, above: Tensor, positions: Tensor, places: Sequence[Destination], which: int | Tensor
    ) -> tuple[Tensor, Tensor]:
        """States `[n, H]` and raw logits `[m, V]`: see `RecurrentForward.rows`. places: see `NativeBlocks.run`."""
        count = len(tokens)
        asked = torch.arange(count - which, count) if isinstance(which, int) else which.contiguous()
        tokens, above = tokens.contiguous(), above.to(self._dtype).contiguous()
        states, logits = torch.empty_like(above), above.new_empty(len(asked), self._vocab_size)
        calls = self._blocks.calls(positions, places, {})
        numbers = tokens, asked, above
        fed = _Fed(*(one.data_ptr() for one in numbers), len(asked), states.data_ptr(), logits.data_ptr())
        self._draft(calls.each, len(calls.each), addressof(self._ends), byref(fed))
        return states, logits


def native_head(blocks: "Blocks", ends: HeadEnds, stepwise: Stepwise) -> NativeHead | None:
    """The head in C++; None where a part of it is of another kind, or it is not right, and a line says why."""
    output, inner = ends.output, blocks.native
    if inner is None or not isinstance(output, ReducedOutput) or not is_native(output.linear):
        return None
    like, norms = ends.embedding, (ends.embed_norm, ends.state_norm, ends.norm)
    wide = 2 * inner.width if ends.joining is None else inner.width
    joins = ends.joining is None or is_native(ends.joining)
    fits = joins and inner.inputs == wide and like.shape[1] == inner.width
    draft = function_of("draft", NUMBERS[like.dtype])
    if not fits or draft is None or any(norm is not None and norm.centred for norm in norms):
        return None
    return usable("a head", lambda: NativeHead(draft, inner, ends), lambda made: _fault(made, blocks, ends, stepwise))


def _fault(head: NativeHead, blocks: "Blocks", ends: HeadEnds, stepwise: Stepwise) -> str | None:
    """What is wrong with a few rows, the last without a token where the head has such; None where nothing is."""
    chance, output = torch.Generator().manual_seed(0), ends.output
    assert isinstance(output, ReducedOutput)
    tokens = torch.randint(len(ends.embedding), (ROWS,), generator=chance)
    if ends.masks is not None:
        tokens[-1] = -1
    above = torch.randn(ROWS, ends.embedding.shape[1], generator=chance).to(ends.embedding)

    def in_native(positions: Tensor, cache: Any, tokens: Tensor, above: Tensor) -> Tensor:
        return told(*head.run(tokens, above, positions, places_of(cache) or [], len(tokens)))

    def in_steps(positions: Tensor, cache: Any, tokens: Tensor, above: Tensor) -> Tensor:
        return told(*stepwise(tokens, above, positions, cache, len(tokens)))

    def told(states: Tensor, logits: Tensor) -> Tensor:
        return torch.cat([states, logits.index_select(1, output.ids)], dim=1)

    return fault(blocks, in_native, in_steps, [tokens, above])

"""A whole forward on a CPU in one call of C++, of a model or of a head: what enters, the blocks, and the output."""

from collections.abc import Callable, Mapping, Sequence
from ctypes import Structure, addressof, byref, c_float, c_int64, c_void_p
from dataclasses import dataclass, replace
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

_Forward = Callable[[Tensor, Tensor | None, Tensor, Any, int], tuple[Tensor, Tensor]]
"""Of tokens, what they continue, positions, a cache, and of how many rows logits are wanted: states and logits."""
Stepwise = Callable[["Blocks"], _Forward]
"""Of the blocks between the ends."""


@dataclass(frozen=True, slots=True)
class Joins:
    """How a head joins embeddings and states in front of its blocks: see `RecurrentForward`."""

    masks: tuple[Tensor, Tensor] | None
    embed_norm: Norm | None
    state_norm: Norm | None
    joining: Linear | None
    normed_residual: bool


@dataclass(frozen=True, slots=True)
class Ends:
    """What is computed in front of the blocks and behind them.

    normed_feedback: whether the states that it gives are those behind the norm. joins: a head's.
    """

    embedding: Tensor
    norm: Norm | None
    output: Linear
    normed_feedback: bool
    joins: Joins | None = None

    @property
    def product(self) -> Any:
        """What the output multiplies by."""
        return self.output.linear if isinstance(self.output, ReducedOutput) else self.output

    @property
    def ids(self) -> Tensor | None:
        """The tokens that the output has logits of, in its order; None: all."""
        return None if not isinstance(self.output, ReducedOutput) or self.output.whole else self.output.ids

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Those that there are, by their names in C++."""
        masks = None if self.joins is None else self.joins.masks
        masked = {} if masks is None else {"mask_embedding": masks[0], "mask_state": masks[1]}
        return {"embedding": self.embedding} | masked | ({} if self.ids is None else {"ids": self.ids})

    @property
    def norms(self) -> dict[str, Norm]:
        """Those that there are, by their names in C++."""
        norms = {"norm": self.norm}
        if self.joins is not None:
            norms |= {"embed_norm": self.joins.embed_norm, "state_norm": self.joins.state_norm}
        return {name: norm for name, norm in norms.items() if norm is not None}

    def fit(self, blocks: NativeBlocks) -> bool:
        """Whether C++ computes all of it."""
        joining = None if self.joins is None else self.joins.joining
        read = blocks.width if self.joins is None or joining is not None else 2 * blocks.width
        products = [self.product] if joining is None else [self.product, joining]
        return (
            all(is_native(product) for product in products)
            and blocks.inputs == read
            and self.embedding.shape[1] == blocks.width
            and not any(norm.centred for norm in self.norms.values())
        )


class _Ends(Structure):
    """`Ends` of `block.cpp`."""

    _fields_ = (
        *((name, c_void_p) for name in ("embedding", "mask_embedding", "mask_state", "ids")),
        *((name, NativeProduct) for name in ("joining", "output")),
        *((name, NativeNorm) for name in ("embed_norm", "state_norm", "norm")),
        *((name, c_int64) for name in ("embedded", "vocabulary", "normed_residual", "normed_feedback")),
        ("lowest", c_float),
    )


class _Fed(Structure):
    """`Fed` of `block.cpp`."""

    _fields_ = (
        *((name, c_void_p) for name in ("tokens", "asked", "above")),
        ("wanted", c_int64),
        *((name, c_void_p) for name in ("states", "logits")),
    )


class NativeForward:
    """A row comes out alike, bit for bit, whatever is fed with it."""

    def __init__(self, whole: Run, blocks: NativeBlocks, ends: Ends) -> None:
        """ends: that `fit`."""
        self._whole, self._blocks, self._given, joins = whole, blocks, ends, ends.joins
        output, ids = ends.product, ends.ids
        self._vocab_size = output.outputs if ids is None else ends.output.vocab_size  # type: ignore[attr-defined]
        self._like = ends.embedding
        tensors = {name: tensor.contiguous() for name, tensor in ends.tensors.items()}
        weights = {name: norm.weight.float().contiguous() for name, norm in ends.norms.items()}
        joining: Any = None if joins is None else joins.joining
        self._ends = _Ends(
            **{name: tensor.data_ptr() for name, tensor in tensors.items()},
            **{name: native_norm(norm, weights[name]) for name, norm in ends.norms.items()},
            **({} if joining is None else {"joining": native_product(joining)}),
            output=native_product(output),
            embedded=len(ends.embedding),
            vocabulary=self._vocab_size,
            normed_residual=joins is not None and joins.normed_residual,
            normed_feedback=ends.normed_feedback,
            lowest=torch.finfo(ends.embedding.dtype).min,
        )
        self._held = tensors, weights

    @property
    def first(self) -> "NativeForward":
        """The first block alone between the same ends."""
        return NativeForward(self._whole, self._blocks.first, self._given)

    def run(
        self,
        tokens: Tensor,
        above: Tensor | None,
        positions: Tensor,
        places: Sequence[Destination],
        which: int | Tensor,
        between: Mapping[int, Tensor],
    ) -> tuple[Tensor, Tensor]:
        """States `[n, H]` of the tokens, and raw logits `[m, V]` behind the last so many, or behind which `[m]`.

        above: `[n, H]`, what each row of a head continues. places: see `NativeBlocks.run`. between: states `[n, H]` to
        fill, by the number of the block that they stand behind. Raises `IndexError` for a token without an embedding.
        """
        count, like = len(tokens), self._like
        asked = torch.arange(count - which, count) if isinstance(which, int) else which.contiguous()
        tokens, above = tokens.contiguous(), None if above is None else above.to(like.dtype).contiguous()
        states, logits = like.new_empty(count, like.shape[1]), like.new_empty(len(asked), self._vocab_size)
        calls = self._blocks.calls(positions, places, between)
        fed = _Fed(
            tokens.data_ptr(),
            asked.data_ptr(),
            None if above is None else above.data_ptr(),
            len(asked),
            states.data_ptr(),
            logits.data_ptr(),
        )
        if not self._whole(calls.each, len(calls.each), addressof(self._ends), byref(fed)):
            raise IndexError(f"a token of {tokens.tolist()} has no embedding; there are {len(like)}")
        return states, logits


def native_forward(blocks: "Blocks", ends: Ends, stepwise: Stepwise) -> NativeForward | None:
    """The forward in C++; None where a part of it is of another kind, or it is not right, and a line says why."""
    inner = blocks.native
    if inner is None or not ends.fit(inner):
        return None
    whole = function_of("whole", NUMBERS[ends.embedding.dtype])
    if whole is None:
        return None
    one = replace(blocks, layers=blocks.layers[:1], compiled=None)
    return usable(
        "a whole forward",
        lambda: NativeForward(whole, inner, ends),
        lambda made: _fault(made.first, one, ends, stepwise(one)),
    )


def _fault(native: NativeForward, blocks: "Blocks", ends: Ends, stepwise: _Forward) -> str | None:
    """What is wrong with a few rows, the last without a token where the head has such; None where nothing is."""
    chance, ids = torch.Generator().manual_seed(0), ends.ids
    tokens = torch.randint(len(ends.embedding), (ROWS,), generator=chance)
    fed = [tokens]
    if ends.joins is not None:
        fed.append(torch.randn(ROWS, ends.embedding.shape[1], generator=chance).to(ends.embedding))
        if ends.joins.masks is not None:
            tokens[-1] = -1

    def in_native(positions: Tensor, cache: Any, tokens: Tensor, above: Tensor | None = None) -> Tensor:
        return told(*native.run(tokens, above, positions, places_of(cache) or [], len(tokens), {}))

    def in_steps(positions: Tensor, cache: Any, tokens: Tensor, above: Tensor | None = None) -> Tensor:
        return told(*stepwise(tokens, above, positions, cache, len(tokens)))

    def told(states: Tensor, logits: Tensor) -> Tensor:
        return torch.cat([states, logits if ids is None else logits.index_select(1, ids)], dim=1)

    return fault(blocks, in_native, in_steps, fed)

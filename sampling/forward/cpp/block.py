"""Blocks of a decoder on a CPU, each in one call of C++: see `block.cpp`. Products and attention are other kernels."""

from collections.abc import Callable, Collection, Mapping, Sequence
from ctypes import Structure, addressof, c_bool, c_float, c_int64, c_void_p, cast
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from sampling.forward.caches.rows import RowsCache
from sampling.forward.caches.rows_slot import RowsSlot
from sampling.forward.cpp.kernel import LANES, NUMBERS, varlen_kernel
from sampling.forward.cpp.library import library, usable
from sampling.forward.cpp.native import NativeLinear
from sampling.forward.kernels.scores import Scores
from sampling.forward.models.steps import GELU_TANH, BlockShape, Destination, Norm

if TYPE_CHECKING:
    from sampling.forward.models.blocks import Attending, Blocks, Layer, RotaryTable

ROWS = 5
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.02}

Run = Callable[[Any, int, Any, Any], bool]
"""Of the calls and how many they are, and of the addresses of what enters; whether it could be computed."""
_Fed = Callable[..., Tensor]
"""Of positions, the cache, and what is fed."""


class NativeProduct(Structure):
    """`Product` of `block.cpp`."""

    _fields_ = (("multiply", c_void_p), ("matrix", c_void_p), ("bias", c_void_p), ("outputs", c_int64))


class NativeNorm(Structure):
    """`Norm` of `block.cpp`."""

    _fields_ = (("weight", c_void_p), ("eps", c_float))


_PRODUCTS = ("qkv", "out", "gate_up", "down")
_NORMS = ("attention_norm", "q_norm", "k_norm", "attention_after", "mlp_norm", "mlp_after")
_SIZES = ("width", "inputs", "heads", "kv_heads", "dim", "gelu")


class _Block(Structure):
    """`Block` of `block.cpp`."""

    _fields_ = (
        *((name, NativeProduct) for name in _PRODUCTS),
        *((name, NativeNorm) for name in _NORMS),
        *((name, c_void_p) for name in ("attend", "cos", "sin")),
        *((name, c_int64) for name in _SIZES),
        ("residual_scale", c_float),
    )


class _Rows(Structure):
    """`Rows` of `block.cpp`."""

    _fields_ = (
        *((name, c_void_p) for name in ("positions", "places")),
        *((name, c_int64) for name in ("count", "row_step", "head_step", "head_rows", "threads")),
    )


class _Call(Structure):
    """`Call` of `block.cpp`."""

    _fields_ = tuple((name, c_void_p) for name in ("block", "rows", "layout", "keys", "values", "state"))


class NativeLayer(NamedTuple):
    """A block as C++ takes it. held: what it points to."""

    block: _Block
    scores: Scores
    held: tuple[Any, ...]


class NativeBlocks:
    """Blocks one after the other; a row comes out alike, bit for bit, whatever is fed with it.

    width: of a state. inputs: of what the first product reads.
    """

    def __init__(self, run: Run, layers: Sequence[NativeLayer], heads: int) -> None:
        self._run, self._layers, self._heads = run, layers, heads
        self.width, self.inputs = int(layers[0].block.width), int(layers[0].block.inputs)

    @property
    def first(self) -> "NativeBlocks":
        """The first block alone."""
        return NativeBlocks(self._run, self._layers[:1], self._heads)

    def run(
        self, x: Tensor, positions: Tensor, places: Sequence[Destination], read: Tensor | None, hidden: Collection[int]
    ) -> dict[int, Tensor]:
        """The states `[n, H]` behind the last block and those asked for: see `Blocks.run`.

        places: where the rows of each layer go, and by what they attend.
        """
        x = x.contiguous()
        read = None if read is None else read.to(x.dtype).contiguous()
        last = len(self._layers)
        states = {number: torch.empty_like(x) for number in range(1, last + 1) if number == last or number in hidden}
        calls = self.calls(positions, places, states)
        self._run(calls.each, last, x.data_ptr(), None if read is None else read.data_ptr())
        return states

    def calls(self, positions: Tensor, places: Sequence[Destination], states: Mapping[int, Tensor]) -> "Calls":
        """What the blocks are told of rows; states: to fill, by the number of the block that they stand behind."""
        rows, calls = dict[int, _Rows](), (_Call * len(self._layers))()
        for number, (layer, to) in enumerate(zip(self._layers, places, strict=True), start=1):
            assert to.varlen is not None, "rows of native blocks attend by our kernel"
            if id(to.places) not in rows:
                rows[id(to.places)] = _rows(positions, to)
            calls[number - 1] = _Call(
                addressof(layer.block),
                addressof(rows[id(to.places)]),
                to.varlen.layout(self._heads, self._heads * layer.block.dim, to.keys, layer.scores),
                to.keys.data_ptr(),
                to.values.data_ptr(),
                states[number].data_ptr() if number in states else None,
            )
        return Calls(calls, rows)


class Calls(NamedTuple):
    """A `_Call` for each block. held: what they point to."""

    each: Any
    held: Any


def _rows(positions: Tensor, to: Destination) -> _Rows:
    """Layers that store by the same places lie alike in their buffers."""
    steps = to.row_step, to.head_step, to.head_rows
    return _Rows(positions.data_ptr(), to.places.data_ptr(), len(positions), *steps, torch.get_num_threads())


def native_blocks(blocks: "Blocks") -> NativeBlocks | None:
    """The same blocks in C++; None where one is of another kind, or they cannot be had here, or a line says why not."""
    layers, tables, shape = blocks.layers, blocks.tables, blocks.shape
    cos, _ = tables[0]
    attend = varlen_kernel(cos.device, cos.dtype, shape)
    fits = not shape.parallel and shape.head_dim % (2 * LANES) == 0 and all(_covers(layer, shape) for layer in layers)
    if attend is None or not fits or (run := function_of("run", NUMBERS[cos.dtype])) is None:
        return None
    address = cast(attend, c_void_p).value  # type: ignore[arg-type]
    laid_out = [_laid_out(layer, tables[layer.table], shape, address) for layer in layers]
    return usable("a block", lambda: NativeBlocks(run, laid_out, shape.heads), lambda made: _fault(made, blocks))


def places_of(cache: "Attending") -> list[Destination] | None:
    """Where the rows of each layer go; None unless all attend by our kernel on a CPU."""
    places = []
    for rows in cache.layers:
        to = rows.destination()
        if to is None or to.varlen is None:
            return None
        places.append(to)
    return places


def _covers(layer: "Layer", shape: BlockShape) -> bool:
    """Whether C++ computes all of it: four products of ours, and norms that take no mean off."""
    products = [layer.qkv, layer.out, layer.gate_up, layer.down]
    if layer.experts or not all(is_native(product) for product in products):
        return False
    by_head = layer.q_norm, layer.k_norm
    return not any(norm.centred for _, norm in layer.norms()) and all(
        norm is None or len(norm.weight) == shape.head_dim for norm in by_head
    )


def is_native(product: Any) -> bool:
    """Whether C++ can call it."""
    return isinstance(product, NativeLinear) and product.outputs % (2 * LANES) == product.inputs % LANES == 0


def _laid_out(layer: "Layer", table: "RotaryTable", shape: BlockShape, attend: int | None) -> NativeLayer:
    cos, sin = (part.contiguous() for part in table)
    norms = {name: norm.weight.float().contiguous() for name, norm in layer.norms()}
    products: dict[str, Any] = {name: getattr(layer, name) for name in _PRODUCTS}
    block = _Block(
        **{name: native_product(product) for name, product in products.items()},
        **{name: native_norm(getattr(layer, name), norms.get(name)) for name in _NORMS},
        attend=attend,
        cos=cos.data_ptr(),
        sin=sin.data_ptr(),
        width=products["out"].outputs,
        inputs=products["qkv"].inputs,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        dim=shape.head_dim,
        gelu=shape.gate == GELU_TANH,
        residual_scale=shape.residual_scale,
    )
    return NativeLayer(block, layer.scores, (cos, sin, norms, layer))


def native_product(layer: NativeLinear) -> NativeProduct:
    """As C++ takes it, who keeps the layer."""
    bias = None if layer.added is None else layer.added.data_ptr()
    return NativeProduct(*layer.native, bias, layer.outputs)


def native_norm(norm: Norm | None, weight: Tensor | None) -> NativeNorm:
    """As C++ takes it; weight: in float32, which the caller keeps."""
    return NativeNorm(None, 0.0) if norm is None or weight is None else NativeNorm(weight.data_ptr(), norm.eps)


@cache
def function_of(name: str, number: str) -> Run | None:
    """A function of `block.cpp` for rows of this kind of number; None where it cannot be had, and a line says why."""
    return usable("a block", lambda: _loaded(name, number), lambda made: None)


def _loaded(name: str, number: str) -> Run:
    made: Run = getattr(library("block", NUMBER=number), name)
    made.argtypes, made.restype = [c_void_p, c_int64, c_void_p, c_void_p], c_bool  # type: ignore[attr-defined]
    return made


def _fault(native: NativeBlocks, blocks: "Blocks") -> str | None:
    """What is wrong with the first of them on a few rows; None where nothing is."""
    first, one = native.first, replace(blocks, layers=blocks.layers[:1], compiled=None)
    chance, like = torch.Generator().manual_seed(0), blocks.tables[0][0]
    x, read = (torch.randn(ROWS, width, generator=chance).to(like) for width in (first.width, first.inputs))

    def in_native(positions: Tensor, cache: RowsCache, x: Tensor, read: Tensor | None = None) -> Tensor:
        return first.run(x, positions, places_of(cache) or [], read, ())[1]

    def in_steps(positions: Tensor, cache: RowsCache, x: Tensor, read: Tensor | None = None) -> Tensor:
        (state,) = one.run_stepwise(x, positions, None, cache, read)
        return state

    return fault(one, in_native, in_steps, [x] if first.inputs == first.width else [x, read])


@torch.inference_mode()
def fault(blocks: "Blocks", native: _Fed, steps: _Fed, fed: Sequence[Tensor]) -> str | None:
    """What is wrong with the rows that C++ gives of `ROWS` fed ones; None where nothing is.

    It shall give what the steps give, and a row the same bits alone.
    """
    found, expected = (_rows_of(blocks, run, fed, [ROWS]) for run in (native, steps))
    error = float((found - expected).float().norm() / expected.float().norm())
    if not error <= _TOLERANCE[found.dtype]:
        return f"it is off by {error:.1%}"
    alike = torch.equal(_rows_of(blocks, native, fed, [1] * ROWS), found)
    return None if alike else "a row has other bits among others"


def _rows_of(blocks: "Blocks", run: _Fed, fed: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """What comes of rows of one text that are fed so many at a time."""
    cos, _ = blocks.tables[0]
    cache = RowsCache(len(blocks.layers), blocks.shape, cos.device, cos.dtype)
    slot, given = RowsSlot(cache), list[Tensor]()
    for parts in zip(*(one.split(list(sizes)) for one in fed), strict=True):
        positions, _ = slot.lay_out(len(parts[0]))
        given.append(run(positions, cache, *parts))
        slot.advance(len(parts[0]))
    return torch.cat(given)

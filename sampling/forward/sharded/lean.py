"""A process's part of a lean model: the same forward over fewer heads, with a sum behind each half of a block."""

from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from sampling.forward.kernels.linear import Kernel, Linear, PlainLinear, Product
from sampling.forward.models import lean
from sampling.forward.models.blocks import Layer, Weights
from sampling.forward.sharded.cut import TensorCut
from sampling.forward.sharded.group import ProcessGroup


class SummedLinear(PlainLinear):
    """A product whose inputs are cut: what each process gives is a part of the sum."""

    def __init__(self, part: Product, group: ProcessGroup) -> None:
        self._part, self._group = part, group

    def product(self, x: Tensor) -> Tensor:
        """See `Product`."""
        return self._group.summed(self._part.product(x))

    def with_kernel(self, kernel: Kernel) -> Product:
        return SummedLinear(self._part.with_kernel(kernel), self._group)


class SideBySide:
    """An output matrix whose rows are cut: each process computes the logits of its tokens, and all get all.

    width: logits that each gives; those with fewer tokens fill up, and the end is cut off.
    """

    def __init__(self, part: Linear, group: ProcessGroup, width: int, vocab_size: int) -> None:
        self._part, self._group = part, group
        self._width, self._vocab_size = width, vocab_size

    def __call__(self, x: Tensor) -> Tensor:
        y = self._part(x)
        return self._group.side_by_side(F.pad(y, (0, self._width - y.shape[1])))[:, : self._vocab_size]

    def with_kernel(self, kernel: Kernel) -> Linear:
        return SideBySide(self._part.with_kernel(kernel), self._group, self._width, self._vocab_size)


def part_of(config: Any, weights: Weights, group: ProcessGroup) -> lean.LeanModel:
    """This process's part of a model that `lean.divides`; see `lean.from_weights`. weights: cut already."""
    size = group.seat.size
    model = lean.from_weights(config, weights)
    whole = model.blocks.shape
    shape = replace(whole, heads=whole.heads // size, kv_heads=whole.kv_heads // size)
    layers = tuple(_summed(layer, group) for layer in model.layers)
    width = TensorCut(group.seat.rank, size).width(config.vocab_size)
    head = SideBySide(model.head, group, width, config.vocab_size)
    return replace(model, blocks=replace(model.blocks, layers=layers, shape=shape), head=head)


def _summed(layer: Layer, group: ProcessGroup) -> Layer:
    assert layer.down is not None, "experts are not cut"
    return replace(layer, out=SummedLinear(layer.out, group), down=SummedLinear(layer.down, group))

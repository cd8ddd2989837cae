"""Tensors that graphs read where they lie: no copy goes before a replay."""

from weakref import WeakValueDictionary

from torch import Tensor

_LASTING: "WeakValueDictionary[int, Tensor]" = WeakValueDictionary()


def lasting(tensor: Tensor) -> Tensor:
    """The same tensor. Its memory is its own as long as it lives, and a graph may know the address.

    For what a graph writes, and for what nobody changes: numbers that are written later are those that are read.
    """
    if tensor.numel():
        _LASTING[tensor.untyped_storage().data_ptr()] = tensor
    return tensor


def address(tensor: Tensor) -> tuple[int, ...] | None:
    """Where a lasting tensor, or a view of one, lies: its address and its strides. None for any other."""
    if tensor.untyped_storage().data_ptr() not in _LASTING:
        return None
    return tensor.data_ptr(), *tensor.stride()

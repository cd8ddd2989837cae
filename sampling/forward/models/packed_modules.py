"""Linear layers of transformers' modules, computed by the products that are in use on a CPU."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sampling.forward.kernels.linear import DenseLinear
from sampling.forward.kernels.probe import copies_weights, kernel
from sampling.forward.models.swiglu import ONE_THREAD

# Layers of transformers that compute what `nn.Linear` does, and whether their weight is stored as `[in, out]`.
_LINEAR = {"Linear": False, "FalconLinear": False, "Conv1D": True}


_ACTIVATIONS = ("transformers.activations", "torch.nn.modules.activation")
_AT_ONCE = 32


class PackedModule(nn.Module):
    """A linear layer on a packed weight, which replaces the plain one: `[..., in]` -> `[..., out]`."""

    def __init__(self, weight: Tensor, bias: Tensor | None, turned: bool) -> None:
        super().__init__()
        self.bias, self._turned = bias, turned
        self._product = kernel("cpu", weight.dtype)((weight.T if turned else weight).contiguous(), bias)
        self.in_features, self.out_features = weight.shape if turned else reversed(weight.shape)

    @property
    def weight(self) -> Tensor:
        """As it was stored; unpacked anew each time."""
        dense = self._product.with_kernel(DenseLinear)
        assert isinstance(dense, DenseLinear)
        return dense.weight.T if self._turned else dense.weight

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.in_features)
        return self._product(rows).view(*x.shape[:-1], self.out_features)


class RowwiseActivation(nn.Module):
    """An activation whose rows do not depend on where torch cuts its work: see `silu_and_mul`.

    What is left over of 32 numbers is computed one by one, and so in other bits: rows are filled up.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        width = x.shape[-1]
        rows, filled = max(1, ONE_THREAD // width), -width % _AT_ONCE
        if not filled and x.numel() <= rows * width:
            return self.inner(x)  # type: ignore[no-any-return]
        parts = F.pad(x, (0, filled)).flatten(0, -2).split(rows)
        return torch.cat([self.inner(part) for part in parts])[:, :width].reshape(x.shape)


@torch.inference_mode()
def pack_modules(model: nn.Module, dtype: torch.dtype) -> bool:
    """Replace the linear layers and activations of a model on a CPU, one after the other; whether there was a layer.

    Where the plain kernel is in use nothing is done. Other classes, such as layers of quantised weights, are left.
    """
    children: list[tuple[nn.Module, str, Any]] = [
        (parent, name, child) for parent in model.modules() for name, child in parent.named_children()
    ]
    places = [place for place in children if type(place[2]).__name__ in _LINEAR and _is_plain(place[2].weight, dtype)]
    if not places or not copies_weights("cpu", dtype):
        return False
    for parent, name, layer in places:
        bias = None if layer.bias is None else layer.bias.detach()
        setattr(parent, name, PackedModule(layer.weight.detach(), bias, _LINEAR[type(layer).__name__]))
    for parent, name, child in children:
        if type(child).__module__ in _ACTIVATIONS:
            setattr(parent, name, RowwiseActivation(child))
    return True


def _is_plain(weight: Tensor, dtype: torch.dtype) -> bool:
    return type(weight.data) is Tensor and weight.device.type == "cpu" and weight.dtype == dtype

"""Products that are wrong on purpose: a row depends on those that are computed with it."""

from torch import Tensor

from sampling.forward.kernels.formats import Format
from sampling.forward.kernels.linear import Kernel, PlainLinear, Product
from sampling.forward.kernels.probe import make_linear

_LEVELS = 127
_LOWEST = 1e-12


class _Exact(PlainLinear):
    """The plain product in the dtype of its weights: those that were rounded come back in float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._full, self._dtype = make_linear(weight, bias), weight.dtype

    def product(self, x: Tensor) -> Tensor:
        """See `Product`."""
        return self._full(x.to(self._dtype)).to(x.dtype)

    def with_kernel(self, kernel: Kernel) -> Product:
        return self._full.with_kernel(kernel)


class _BatchWide(_Exact):
    """Inputs in 8 bits with one scale over all rows of a call, as torch's dynamic int8 layers have it."""

    def product(self, x: Tensor) -> Tensor:
        """See `Product`."""
        step = x.abs().amax().clamp(min=_LOWEST) / _LEVELS
        return super().product((x / step).round() * step)


def batch_wide(batch_invariant: bool) -> Format:
    """A format with such products."""
    return Format(_BatchWide, _Exact, batch_invariant)

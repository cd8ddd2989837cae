"""Products that are wrong on purpose: a row depends on those that are computed with it."""

from torch import Tensor

from sampling.forward.formats import Format
from sampling.forward.kernels import make_linear
from sampling.forward.linear import Kernel, Product, Whole

_LEVELS = 127
_LOWEST = 1e-12


class _BatchWide(Whole):
    """Inputs in 8 bits with one scale over all rows of a call, as torch's dynamic int8 layers have it."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._full = make_linear(weight, bias)

    def product(self, x: Tensor) -> Tensor:
        """See `Product`."""
        step = x.abs().amax().clamp(min=_LOWEST) / _LEVELS
        return self._full((x / step).round() * step)

    def with_kernel(self, kernel: Kernel) -> Product:
        return self._full.with_kernel(kernel)


def batch_wide(steady: bool) -> Format:
    """A format with such products."""
    return Format(_BatchWide, make_linear, steady)

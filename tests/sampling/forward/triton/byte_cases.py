"""Products of weights in 8 bits against plain ones: rows that lie apart, sizes that no tile divides, formats."""

from typing import Any

import torch
from torch import Tensor

from sampling.forward.kernels.cuda_formats import CudaInt8Linear
from sampling.forward.triton.byte_products import product_of_bytes

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_ROUNDING = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def _drawn(dtype: torch.dtype, rows: int, outputs: int = 72, inputs: int = 200) -> tuple[Tensor, Tensor, Tensor]:
    chance = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, inputs + 3, generator=chance).to(dtype)[:, :inputs]
    levels = torch.randint(-127, 128, (outputs, inputs), generator=chance, dtype=torch.int8)
    return x, levels, torch.rand(outputs, generator=chance) / 100


def _error(found: Tensor, x: Tensor, levels: Tensor, scale: Tensor) -> float:
    expected = x.double() @ (levels.double() * scale.double().unsqueeze(1)).T
    return float((found.double() - expected).norm() / expected.norm())


def check(dtype: torch.dtype) -> None:
    """One row, a few, more than a tile; the layer that has them, with a bias."""
    for rows in (1, 5, 17, 70):
        x, levels, scale = _drawn(dtype, rows)
        found = product_of_bytes(x, levels, scale)
        assert found.dtype == dtype and _error(found, x, levels, scale) < _ROUNDING[dtype]
    weight, bias = torch.randn(40, 96).to(dtype), torch.randn(40).to(dtype)
    layer, x = CudaInt8Linear(weight, bias), torch.randn(3, 96).to(dtype)
    assert layer._ours
    torch.testing.assert_close(layer(x).float(), x.float() @ weight.float().T + bias.float(), rtol=0.1, atol=0.5)


def check_bits() -> None:
    """A row comes out the same among any others of its tile."""
    x, levels, scale = _drawn(torch.bfloat16, 16)
    together = product_of_bytes(x, levels, scale)
    assert all(torch.equal(product_of_bytes(x[row : row + 1], levels, scale)[0], together[row]) for row in range(16))


def check_that_faults_show(_: Any = None) -> None:
    """A scale of the output beside, levels that were taken as numbers without a sign."""
    x, levels, scale = _drawn(torch.float32, 5)
    found = product_of_bytes(x, levels, scale)
    assert _error(found, x, levels, scale.roll(1)) > 0.1
    assert _error(found, x, levels.to(torch.int16) % 256, scale) > 0.1

"""The fused steps against the plain ones: every norm that there may be, formats, and where rows are stored."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from sampling.forward.kernels.linear import DenseLinear
from sampling.forward.models.steps import GELU_TANH, SILU, BlockShape, Destination, Norm, Steps
from sampling.forward.triton.steps import TritonSteps

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# A step of a format where numbers are of about 4.
ROUNDING = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3.2e-2}
_PLAIN = DenseLinear(torch.zeros(0, 0))
_ROWS = 3


@dataclass(frozen=True)
class Drawn:
    """Numbers of one format."""

    dtype: torch.dtype
    chance: torch.Generator

    def __call__(self, *size: int) -> Tensor:
        return torch.randn(*size, generator=self.chance).to(self.dtype)

    def norm(self, width: int, there: bool, wide: bool = False) -> Norm | None:
        """wide: its weight is in float32, as Gemma's is."""
        weight = 1.0 + self(width)
        return Norm(weight.float() if wide else weight, 1e-5) if there else None


def _drawn(dtype: torch.dtype) -> Drawn:
    return Drawn(dtype, torch.Generator().manual_seed(2))


def _alike(found: Tensor, expected: Tensor) -> None:
    assert found.dtype == expected.dtype and found.shape == expected.shape
    torch.testing.assert_close(found, expected, rtol=ROUNDING[found.dtype], atol=ROUNDING[found.dtype])


def check_join(dtype: torch.dtype) -> None:
    """Sums and norms, also of the sum alone and of what is added; rows that lie apart."""
    for after, norm, scale in product((False, True), (False, True), (1.0, 0.25)):
        drawn, shape = _drawn(dtype), BlockShape(2, 1, 24, residual_scale=scale)
        x, raw = drawn(_ROWS, 50)[:, :48], drawn(_ROWS, 48)
        norms = drawn.norm(48, after), drawn.norm(48, norm, wide=after)
        joined, (normed, *_) = TritonSteps(shape).join(x, raw, (), _PLAIN, norms, _PLAIN)
        expected, (expected_norm, *_) = Steps(shape).join(x, raw, (), _PLAIN, norms, _PLAIN)
        _alike(joined, expected)
        _alike(normed, expected_norm)


def check_turn(dtype: torch.dtype) -> None:
    """Queries, and keys and values where one sequence or several store them; no other row is written."""
    for normed, alone in product((False, True), repeat=2):
        drawn, shape = _drawn(dtype), BlockShape(4, 2, 24)
        mixed, cos, sin = drawn(_ROWS, 8 * 24), drawn(_ROWS, 1, 24), drawn(_ROWS, 1, 24)
        norms = drawn.norm(24, normed), drawn.norm(24, normed)
        keys, values = (torch.full((2, 2, 5, 24), 7.0, dtype=dtype) for _ in range(2))
        if alone:
            places, of = torch.tensor([4, 0, 2]), torch.tensor([1, 1, 1])
            to = Destination(keys[1:], values[1:], places, 1, 0, 5)
        else:
            places, of = torch.tensor([4, 0, 2]), torch.tensor([1, 0, 1])
            flat = ((of.unsqueeze(1) * 2 + torch.arange(2)) * 5 + places.unsqueeze(1)).flatten()
            to = Destination(keys, values, flat, 2, 1, 0)
        query = mixed.new_empty(_ROWS, 4, 24)
        TritonSteps(shape).turning(mixed, norms, cos, sin, query, to).run()
        expected, expected_keys, expected_values = Steps(shape).turn(mixed, (), _PLAIN, norms, cos, sin)
        _alike(query, expected)
        for buffer, rows in ((keys, expected_keys), (values, expected_values)):
            _alike(buffer[of, :, places], rows)
            assert int((buffer == 7.0).all(3).sum()) == 2 * (2 * 5 - _ROWS)


def check_gate(dtype: torch.dtype) -> None:
    """More than one tile, of which the last is not whole."""
    for gate in (SILU, GELU_TANH):
        drawn, shape = _drawn(dtype), BlockShape(2, 1, 24, gate=gate)
        both = drawn(_ROWS, 2 * 1100)
        _alike(TritonSteps(shape).gated(both), Steps(shape).gated(both))


def check_all(dtype: torch.dtype) -> None:
    """All of them in one format."""
    check_join(dtype)
    check_turn(dtype)
    check_gate(dtype)


def check_that_faults_show(_: Any = None) -> None:
    """A norm that is left out, one of other weights, the other activation."""
    drawn, shape = _drawn(torch.float32), BlockShape(2, 1, 24)
    x, raw, both = drawn(_ROWS, 48), drawn(_ROWS, 48), drawn(_ROWS, 20)
    after, norm, other = (drawn.norm(48, True) for _ in range(3))
    joined, (normed, *_) = TritonSteps(shape).join(x, raw, (), _PLAIN, (after, norm), _PLAIN)
    for norms in ((None, norm), (after, other)):
        _, (expected, *_) = Steps(shape).join(x, raw, (), _PLAIN, norms, _PLAIN)
        assert (normed - expected).abs().max() > 0.1
    assert (TritonSteps(shape).gated(both) - Steps(BlockShape(2, 1, 24, gate=GELU_TANH)).gated(both)).abs().max() > 0.01
    assert joined.isfinite().all()

"""The fused steps against the plain ones: every norm that there may be, formats, and where rows are stored."""

from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from sampling.forward.kernels.linear import DenseLinear, Prepared
from sampling.forward.kernels.quantisation_scales import FP8, FP8_TYPE
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


class _InFp8:
    """A product that takes rows in fp8."""

    arithmetic, added = FP8, None


def check_fp8(dtype: torch.dtype) -> None:
    """Rounded rows and their scales, of the sum, of its norm and of the gate; the very numbers where sums are the same.

    The interpreter rounds to bfloat16 in another way than torch, so those numbers are up to two steps apart.
    """
    for gate, norm in product((SILU, GELU_TANH), (False, True)):
        drawn, shape = _drawn(dtype), BlockShape(2, 1, 24, gate=gate)
        x, raw, both = drawn(_ROWS, 48), drawn(_ROWS, 48), drawn(_ROWS, 2 * 4200)
        both[0] = x[1] = raw[1] = 0.0
        ours, plain, norms = TritonSteps(shape, fp8=True), Steps(shape), (None, drawn.norm(48, norm))
        joined, entered = ours.join(x, raw, (), _PLAIN, norms, _InFp8)
        expected, expected_rows = plain.join(x, raw, (), _PLAIN, norms, _InFp8)
        _alike(joined, expected)
        steps = 2 if dtype == torch.bfloat16 else 1
        apart = _apart(entered, expected_rows, steps)
        assert apart < 0.1 and (norm or steps > 1 or not apart)
        gates = ours.gate(both, (), _PLAIN, _InFp8), plain.gate(both, (), _PLAIN, _InFp8)
        assert _apart(*gates, steps) < 0.1


def _apart(found: Prepared, expected: Prepared, steps: int) -> float:
    """The share of the numbers in e4m3 that differ, each by so many steps at most; scales are the same to rounding."""
    (rows, scales), (expected_rows, expected_scales) = found, expected
    assert rows.dtype == expected_rows.dtype == FP8_TYPE and rows.shape == expected_rows.shape
    torch.testing.assert_close(scales, expected_scales, rtol=ROUNDING[torch.bfloat16] / 2, atol=0.0)
    wide, right = rows.float(), expected_rows.float()
    allowed = steps * (torch.maximum(wide.abs(), right.abs()) / 8 + 2.0**-9)
    # Triton's interpreter loses the carry of a fraction that rounds up to the next power of two.
    carry = (wide.abs().log2().frac() == 0.0) & ((2.0 * wide - right).abs() <= allowed)
    wide = torch.where(carry, 2.0 * wide, wide)
    apart = (wide - right).abs()
    assert bool((apart <= allowed).all())
    return float((apart > 0.0).float().mean())


def check_all(dtype: torch.dtype) -> None:
    """All of them in one format."""
    check_join(dtype)
    check_turn(dtype)
    check_gate(dtype)
    check_fp8(dtype)


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
    _, (rows, scales) = TritonSteps(shape, fp8=True).join(x, raw, (), _PLAIN, (after, norm), _InFp8)
    _, (expected_rows, expected_scales) = Steps(shape).join(x, raw, (), _PLAIN, (after, other), _InFp8)
    assert (rows.float() * scales - expected_rows.float() * expected_scales).abs().max() > 0.1

"""Our kernels compiled for cards that are not there: they fit, nothing is spilled, and tensor cores multiply."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from sampling.forward.kernels.quantisation_scales import FP8_TYPE
from sampling.forward.kernels.scores import Scores
from sampling.forward.models.steps import GELU_TANH, SILU, BlockShape, Destination, Norm
from sampling.forward.triton.attention import SplitKeys
from sampling.forward.triton.byte_products import multiplying
from sampling.forward.triton.steps import TritonSteps
from tests.cubins import Code, compiled

pytestmark = [
    pytest.mark.triton,
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed"),
]
CARDS = (80, 90)  # A100, H100
FP8_CARDS = (89, 90)  # L40, H100
_SHARED = 99 << 10  # of a block on the smallest cards of capability 8
_REGISTERS = 65536


@pytest.fixture(autouse=True)
def _compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def fits(code: Code) -> None:
    assert code.spilled == 0
    assert code.registers * code.threads <= _REGISTERS
    assert code.shared <= _SHARED


@pytest.mark.parametrize("capability", CARDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("dim", [64, 96, 128, 256])
@pytest.mark.parametrize(("rows", "group"), [(1, 4), (5, 4), (64, 8)])
def test_attention_with_split_keys(
    capability: int, dtype: torch.dtype, dim: int, rows: int, group: int, tmp_path: Path
) -> None:
    query = torch.empty(rows, 2 * group, dim, dtype=dtype)
    keys = torch.empty(1, 2, 4096, dim, dtype=dtype)
    sees = SplitKeys.of(torch.tensor([5]), torch.ones(1, rows, rows, dtype=torch.bool))
    scores = Scores(cap=1.0, sinks=torch.empty(2 * group, dtype=dtype))
    attending, joining = sees.launches(query, keys, keys, scores, torch.empty_like(query))
    code = compiled(attending, capability, tmp_path)
    fits(code)
    assert ("mma" in code.ptx) is (dtype != torch.float32)
    fits(compiled(joining, capability, tmp_path))


@pytest.mark.parametrize("capability", CARDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize(("rows", "group"), [(1, 4), (5, 4), (64, 8), (512, 4)])
def test_attention_with_split_keys_in_blocks(
    capability: int, dtype: torch.dtype, dim: int, rows: int, group: int, tmp_path: Path
) -> None:
    query = torch.empty(2 * rows, 2 * group, dim, dtype=dtype)
    keys = torch.empty(9, 2, 256, dim, dtype=dtype)
    seen, table = torch.ones(2, rows, rows, dtype=torch.bool), torch.ones(2, 16, dtype=torch.long)
    sees = SplitKeys.of(torch.tensor([5, 9]), seen, table)
    scores = Scores(cap=1.0, sinks=torch.empty(2 * group, dtype=dtype))
    attending, joining = sees.launches(query, keys, keys, scores, torch.empty_like(query))
    assert attending.grid[0] == 4096 // attending.constants["PART"]
    assert 256 % attending.constants["STEP"] == 0
    code = compiled(attending, capability, tmp_path)
    fits(code)
    assert ("mma" in code.ptx) is (dtype != torch.float32)
    fits(compiled(joining, capability, tmp_path))


@pytest.mark.parametrize("capability", CARDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("width", [576, 4096, 8192])
def test_fused_norms(capability: int, dtype: torch.dtype, width: int, tmp_path: Path) -> None:
    x, norm = torch.empty(5, width, dtype=dtype), Norm(torch.ones(width, dtype=dtype), 1e-5)
    for after in (None, norm):
        launch = TritonSteps(BlockShape(8, 2, 128)).adding(x, x, (after, norm), x, x)
        fits(compiled(launch, capability, tmp_path))


@pytest.mark.parametrize("capability", CARDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("dim", [64, 96, 128, 256])
def test_fused_heads(capability: int, dtype: torch.dtype, dim: int, tmp_path: Path) -> None:
    shape, norm = BlockShape(8, 2, dim), Norm(torch.ones(dim, dtype=dtype), 1e-5)
    mixed, turn = torch.empty(5, 12 * dim, dtype=dtype), torch.empty(5, 1, dim, dtype=dtype)
    buffer, query = torch.empty(1, 2, 64, dim, dtype=dtype), torch.empty(5, 8, dim, dtype=dtype)
    for norms in ((None, None), (norm, norm)):
        to = Destination(buffer, buffer, torch.arange(5), 1, 0, 64)
        fits(compiled(TritonSteps(shape).turning(mixed, norms, turn, turn, query, to), capability, tmp_path))


@pytest.mark.parametrize("capability", CARDS)
@pytest.mark.parametrize("gate", [SILU, GELU_TANH])
def test_fused_gate(capability: int, gate: str, tmp_path: Path) -> None:
    both, out = (torch.empty(5, width, dtype=torch.bfloat16) for width in (2 * 14336, 14336))
    fits(compiled(TritonSteps(BlockShape(8, 2, 128, gate=gate)).gating(both, out), capability, tmp_path))


@pytest.mark.parametrize("capability", FP8_CARDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("width", [576, 4096, 8192])
def test_fused_rounding_to_fp8(capability: int, dtype: torch.dtype, width: int, tmp_path: Path) -> None:
    """Behind a norm, and behind a gate."""
    steps = TritonSteps(BlockShape(8, 2, 128), fp8=True)
    short, scales = torch.empty(5, width, dtype=FP8_TYPE), torch.empty(5, 1)
    x, norm = torch.empty(5, width, dtype=dtype), Norm(torch.ones(width, dtype=dtype), 1e-5)
    for norms in ((None, norm), (norm, None)):
        fits(compiled(steps.adding(x, x, norms, x, short, scales), capability, tmp_path))
    code = compiled(steps.rounding(torch.empty(5, 2 * width, dtype=dtype), short, scales), capability, tmp_path)
    fits(code)
    assert "cvt.rn.satfinite.e4m3x2.f32" in code.ptx, "to the nearest, in one instruction"


@pytest.mark.parametrize("capability", CARDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("rows", [1, 16, 200])
def test_products_of_bytes(capability: int, dtype: torch.dtype, rows: int, tmp_path: Path) -> None:
    x, out = torch.empty(rows, 4096, dtype=dtype), torch.empty(rows, 14336, dtype=dtype)
    levels, scale = torch.empty(14336, 4096, dtype=torch.int8), torch.empty(14336)
    code = compiled(multiplying(x, levels, scale, out), capability, tmp_path)
    fits(code)
    assert ("mma" in code.ptx) is (dtype != torch.float32)

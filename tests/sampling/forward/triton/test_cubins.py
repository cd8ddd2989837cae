"""Our kernels compiled for cards that are not there: they fit, nothing is spilled, and tensor cores multiply."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from sampling.forward.kernels.scores import Scores
from sampling.forward.triton.attention import SplitKeys
from tests.cubins import Code, compiled

pytestmark = [
    pytest.mark.triton,
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed"),
]
CARDS = (80, 90)  # A100, H100
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

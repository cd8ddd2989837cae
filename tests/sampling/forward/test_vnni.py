"""Products of bytes: on their grid, nearer to it than torch's, the same bits in any company, and who goes without.

Where the CPU has no such instructions only the last are run.
"""

from collections.abc import Callable, Iterator
from ctypes import c_float, memset
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sampling.forward.cpp import vnni
from sampling.forward.cpp.library import use_own_kernels
from sampling.forward.cpp.vnni import Grid, VnniLinear, vnni_kernel
from sampling.forward.kernels import int4, int8
from sampling.forward.kernels.int4 import Int4Linear, int4_product
from sampling.forward.kernels.int8 import FineInt8Linear, Int8Linear, fine_int8, rough_int8
from sampling.forward.kernels.linear import DenseLinear, Product
from sampling.forward.kernels.q8_0 import GroupedInt8Linear, grouped_or_fine
from sampling.forward.traffic import held_bytes
from tests.sampling.forward.found_compiler import found_compiler, needs_compiler

pytestmark = needs_compiler
ROWS = 51  # more than enter at once


@pytest.fixture(scope="module", autouse=True)
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with found_compiler(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    """As decoding runs."""
    with torch.inference_mode():
        yield


@pytest.fixture
def has_products() -> None:
    if vnni_kernel(8, False, torch.empty(16, 32)) is None:
        pytest.skip("this CPU has no dot products of bytes")


def drawn(outputs: int, inputs: int) -> Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(outputs + inputs))


def rows_for(weight: Tensor) -> Tensor:
    """Rows with an input that is far larger than the others."""
    x = torch.randn(ROWS, weight.shape[1], generator=torch.Generator().manual_seed(3))
    x[:, 5] *= 40
    return x


def on_int8_grid(weight: Tensor) -> Tensor:
    levels, scale = int8.rounded(weight)
    return levels.double() * scale.double().unsqueeze(1)


def on_int4_grid(weight: Tensor) -> Tensor:
    levels, steps, lowest = int4.on_grid(weight)
    return (levels.double() * steps.double().unsqueeze(-1) + lowest.double().unsqueeze(-1)).flatten(1)


def on_q8_0_grid(outputs: int, inputs: int) -> Tensor:
    chance = torch.Generator().manual_seed(0)
    levels = torch.randint(-127, 128, (outputs, inputs // 32, 32), generator=chance).float()
    levels[..., 0] = 127
    return (levels * torch.rand(outputs, inputs // 32, 1, generator=chance) * 1e-6).flatten(1)


CASES = [
    (fine_int8, on_int8_grid, drawn(72, 100), FineInt8Linear),
    (fine_int8, on_int8_grid, drawn(4131, 64), FineInt8Linear),
    (rough_int8, on_int8_grid, drawn(48, 2048), Int8Linear),
    (int4_product, on_int4_grid, 1e-7 * drawn(80, 96), Int4Linear),
    (int4_product, on_int4_grid, drawn(4112, 64), Int4Linear),
    (grouped_or_fine, Tensor.double, on_q8_0_grid(80, 96), GroupedInt8Linear),
]


@pytest.mark.parametrize(("make", "meant", "weight", "otherwise"), CASES)
@pytest.mark.usefixtures("has_products")
def test_products_are_those_of_the_grid_and_nearer_than_the_others(
    make: Callable[..., Product], meant: Callable[[Tensor], Tensor], weight: Tensor, otherwise: type[Any]
) -> None:
    x, bias, grid = rows_for(weight), drawn(1, len(weight))[0] * weight.abs().mean(), meant(weight)
    layer = make(weight, bias)
    assert type(layer) is VnniLinear
    use_own_kernels(False)
    try:
        other = make(weight, bias)
    finally:
        use_own_kernels(True)
    assert type(other) is otherwise
    right = x.double() @ grid.T + bias.double()
    mine, theirs = (float((one(x) - right).norm() / right.norm()) for one in (layer, other))
    assert mine < 1e-3 and mine < 0.5 * theirs
    torch.testing.assert_close(layer.dense().double(), grid, rtol=0, atol=1e-3 * float(grid.abs().max()))
    assert torch.equal(layer.with_kernel(DenseLinear)(x), DenseLinear(layer.dense(), bias)(x))


@pytest.mark.parametrize(("make", "meant", "weight", "otherwise"), CASES)
@pytest.mark.usefixtures("has_products")
def test_a_row_has_the_same_bits_beside_any_others_and_on_any_number_of_threads(
    make: Callable[..., Product], meant: Any, weight: Tensor, otherwise: Any
) -> None:
    x, layer, threads = rows_for(weight), make(weight), torch.get_num_threads()
    whole = layer(x)
    for size in (1, 2, 3, 4, 5, 6, 7, 13, 48):
        assert torch.equal(torch.cat([layer(part) for part in x.split(size)]), whole), size
    try:
        torch.set_num_threads(3)
        assert torch.equal(layer(x), whole)
    finally:
        torch.set_num_threads(threads)
    assert layer(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.usefixtures("has_products")
def test_a_number_that_is_none_stays_none_in_its_row_alone() -> None:
    for layer in (fine_int8(drawn(72, 96)), int4_product(drawn(80, 96))):
        for wrong in (float("nan"), float("inf"), -float("inf")):
            x = rows_for(torch.empty(1, 96))[:5]
            before = layer(x)
            x[2, 40] = wrong
            assert layer(x)[2].isnan().any() and torch.equal(layer(x)[[0, 1, 3, 4]], before[[0, 1, 3, 4]])
        assert torch.equal(layer(torch.zeros(2, 96)), torch.zeros(2, layer(x).shape[1]))


@pytest.mark.usefixtures("has_products")
def test_levels_are_stored_in_as_few_bits_as_they_have() -> None:
    assert held_bytes([fine_int8(drawn(64, 96))]) == 64 * 96 + 4 * 64
    assert held_bytes([int4_product(drawn(64, 96))]) == 64 * 96 // 2 + 2 * 2 * 64 * 3


def test_who_goes_without() -> None:
    weight = drawn(64, 96)
    assert vnni_kernel(4, True, drawn(64, 100)) is None, "groups of 32"
    assert vnni_kernel(8, False, torch.empty(16, 1 << 17, device="meta")) is None, "sums of 32 bits"
    assert vnni_kernel(8, False, weight.to("meta")) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", "no-such-compiler")
        assert vnni_kernel(8, False, weight) is None
        assert type(fine_int8(weight)) is FineInt8Linear and type(int4_product(weight)) is Int4Linear
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vnni, "_checked", lambda bits, grouped: vnni.VnniKernel(bits, grouped, 0, vnni._nothing))
        assert vnni_kernel(8, False, weight) is None, "no instructions"


@pytest.mark.parametrize(("fault", "said"), [(0.0, "they are off by 100"), (1e-6, "other bits among others")])
@pytest.mark.usefixtures("has_products")
def test_a_kernel_that_is_not_right_is_not_used(
    fault: float, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that gives nothing, and one whose result moves from call to call."""
    honest, calls = vnni._made, count()

    def faulty(bits: int, grouped: bool) -> vnni.VnniKernel:
        right = honest(bits, grouped)

        def multiply(matrix: int, x: int, out: int, rows: int, threads: int) -> None:
            right.multiply(matrix, x, out, rows, threads)
            first = c_float.from_address(out)
            first.value += fault * next(calls)
            if not fault:
                memset(out, 0, rows * vnni._OUTPUTS * 4)

        return right._replace(multiply=multiply)

    monkeypatch.setattr(vnni, "_made", faulty)
    vnni._checked.cache_clear()
    assert vnni_kernel(8, False, drawn(64, 96)) is None and said in caplog.text
    vnni._checked.cache_clear()


def test_the_narrower_instructions_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AVX-VNNI has eight outputs side by side; and a CPU with neither says so."""
    from sampling.forward.cpp import library

    kernels = {}
    for name in ("native", "alderlake", "haswell"):
        flags = tuple(f"-march={name}" if flag.startswith("-march") else flag for flag in library._FLAGS)
        monkeypatch.setattr(library, "_FLAGS", flags)
        kernels[name] = vnni._made(8, False)
    assert kernels["haswell"].lanes == 0 and kernels["alderlake"].lanes == 8
    if "avx_vnni" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this CPU has no AVX-VNNI")
    weight = drawn(72, 100)
    wide, narrow = (VnniLinear(kernels[name], [Grid.signed(*int8.rounded(weight))]) for name in ("native", "alderlake"))
    assert torch.equal(wide(rows_for(weight)), narrow(rows_for(weight)))

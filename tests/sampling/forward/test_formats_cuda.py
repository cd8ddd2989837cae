"""The products of rounded weights on CUDA, as far as a machine without a card can tell: arithmetic, shapes, choice."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from sampling.forward.kernels import autotuning, cuda_formats, formats, int4
from sampling.forward.kernels.cuda_formats import (
    CudaInt4Linear,
    CudaInt8Linear,
    Fp8Linear,
    agrees,
    inner_tiles,
    two_a_byte,
)
from sampling.forward.kernels.formats import FORMATS, refuse_format
from sampling.forward.kernels.int8 import FineInt8Linear
from sampling.forward.kernels.linear import DenseLinear
from sampling.forward.kernels.quantisation_scales import GROUP
from sampling.forward.models import lean
from tests.refusals import refused
from tests.tiny import llama, random_model

CPU, CARD = torch.device("cpu"), torch.device("cuda:0")
needs_fp8 = pytest.mark.skipif(not agrees(Fp8Linear, CPU), reason="this torch has no fp8 products on a CPU")


def test_two_levels_share_a_byte_the_first_in_its_upper_half() -> None:
    levels = torch.randint(0, 16, (8, 64), generator=torch.Generator().manual_seed(0))
    packed = two_a_byte(levels)
    assert packed.dtype == torch.uint8 and packed.shape == (8, 32)
    assert torch.equal(torch.stack([packed >> 4, packed & 15], dim=-1).flatten(1), levels.to(torch.uint8))
    assert two_a_byte(torch.tensor([[1, 2, 15, 0]])).tolist() == [[0x12, 0xF0]]


@pytest.mark.parametrize(("inputs", "tiles"), [(32, 2), (64, 4), (96, 2), (128, 8), (576, 4), (4096, 8)])
def test_the_layout_in_four_bits_has_the_shape_of_its_tiles(inputs: int, tiles: int) -> None:
    assert inner_tiles(inputs) == tiles
    weight = torch.empty(48, inputs // 2, dtype=torch.uint8, device="meta")
    packed = torch.ops.aten._convert_weight_to_int4pack(weight, tiles)
    assert packed.shape == (6, inputs // (16 * tiles), 32, tiles // 2)


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the card's layout and product: bytes as they are, and levels counted from -8 by the definition."""

    def product(x: torch.Tensor, packed: torch.Tensor, group: int, grid: torch.Tensor) -> torch.Tensor:
        assert x.dtype == grid.dtype == torch.bfloat16 and grid.shape == (packed.shape[1] * 2 // group, len(packed), 2)
        levels = torch.stack([packed >> 4, packed & 15], dim=-1).flatten(1).float() - 8
        step, middle = grid.float().transpose(0, 1).repeat_interleave(group, 1).unbind(-1)
        return (x.float() @ (levels * step + middle).T).to(torch.bfloat16)

    monkeypatch.setattr(torch.ops.aten, "_convert_weight_to_int4pack", lambda levels, tiles: levels)
    monkeypatch.setattr(torch.ops.aten, "_weight_int4pack_mm", product)


@pytest.mark.usefixtures("unpacked")
def test_products_in_four_bits_are_those_of_the_cpu() -> None:
    chance = torch.Generator().manual_seed(0)
    weight, bias, x = (torch.randn(shape, generator=chance) for shape in ((48, 96), (48,), (5, 96)))
    levels, steps, lowest = int4.on_grid(weight)
    expected = DenseLinear((levels * steps.unsqueeze(-1) + lowest.unsqueeze(-1)).flatten(1), bias)(x)
    layer = CudaInt4Linear(weight, bias)
    assert layer._packed.shape == (48, 48)
    assert (layer(x) - expected).norm() < 0.02 * expected.norm()
    assert (layer.with_kernel(DenseLinear)(x) - expected).norm() < 0.02 * expected.norm()
    assert agrees(CudaInt4Linear, torch.device("cpu", 0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kernel", [CudaInt8Linear, pytest.param(Fp8Linear, marks=needs_fp8)])
def test_products_in_eight_bits_are_right(
    kernel: Callable[..., CudaInt8Linear | Fp8Linear], dtype: torch.dtype
) -> None:
    """Through the same operators, which torch has for a CPU too."""
    chance = torch.Generator().manual_seed(0)
    weight, bias = (torch.randn(shape, generator=chance).to(dtype) for shape in ((48, 96), (48,)))
    x = (torch.randn(96, 5, generator=chance) * torch.logspace(-2, 2, 5)).T.to(dtype)
    assert not x.is_contiguous()
    layer, allowed = kernel(weight, bias), 0.01 if kernel is CudaInt8Linear else 0.06
    expected = x.float() @ weight.float().T + bias.float()
    assert layer(x).dtype == dtype
    for row, right in zip(layer(x).float(), expected, strict=True):
        assert (row - right).norm() < allowed * right.norm()
    again = layer.with_kernel(DenseLinear)
    assert isinstance(again, DenseLinear)
    assert (again.weight - weight.float()).norm() < allowed * weight.float().norm()


@needs_fp8
def test_zeros_and_outliers_are_numbers_in_fp8() -> None:
    x = torch.zeros(2, 32)
    x[1, 0] = 1e30
    weight = torch.eye(32)
    found = Fp8Linear(weight)(x)
    assert torch.equal(found[0], torch.zeros(32)) and found[1, 0] == pytest.approx(1e30, rel=0.01)


def pretended(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], kernels: set[object]) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    monkeypatch.setattr(formats, "agrees", lambda kernel, device: kernel in kernels)


ALL = {CudaInt8Linear, CudaInt4Linear, Fp8Linear}


def test_a_card_takes_the_formats_whose_products_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    pretended(monkeypatch, (9, 0), ALL)
    raced = list[str]()
    monkeypatch.setattr(formats, "warn_where_slower", lambda name, device: raced.append(name))
    for name in FORMATS:
        refuse_format(name, CARD, "it")
    assert raced == [name for name in FORMATS if name != "full"], "each is timed against full weights"
    pretended(monkeypatch, (8, 0), {CudaInt8Linear, CudaInt4Linear})
    with refused("target_weights fp8", 8.9, CARD, 8.0, "full, int8, int4"):
        refuse_format("fp8", CARD, "target_weights fp8")
    pretended(monkeypatch, (7, 5), {CudaInt8Linear})
    with refused("target_weights int4", CARD, 7.5, "full, int8"):
        refuse_format("int4", CARD, "target_weights int4")


def test_fp8_is_refused_on_a_cpu_and_on_older_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    with refused("target_weights fp8", 8.9, CPU):
        refuse_format("fp8", CPU, "target_weights fp8")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 6))
    assert not agrees(Fp8Linear, torch.device("cuda:7"))


def test_a_kernel_that_fails_or_is_wrong_is_not_used() -> None:
    def wrong(weight: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: 1.2 * (x @ weight.T)

    def fails(weight: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        raise RuntimeError("no kernel image")

    assert agrees(DenseLinear, CPU) and agrees(CudaInt8Linear, CPU)
    assert not agrees(wrong, CPU) and not agrees(fails, CPU)  # type: ignore[arg-type]


def test_a_format_chooses_its_products_by_device_and_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    class Weight(torch.Tensor):
        device = CARD

    assert type(FORMATS["int8"].output(torch.randn(32, 64))) is FineInt8Linear
    for name in ("CudaInt4Linear", "CudaInt8Linear"):
        monkeypatch.setattr(getattr(cuda_formats, name), "__init__", lambda self, weight, bias=None: None)
    weight, odd = (torch.zeros(shape).as_subclass(Weight) for shape in ((32, 64), (30, GROUP)))
    assert type(FORMATS["int4"].blocks(weight)) is CudaInt4Linear
    assert type(FORMATS["int8"].blocks(weight)) is type(FORMATS["int8"].output(weight)) is CudaInt8Linear
    whole = [FORMATS["int4"].output(weight), FORMATS["fp8"].output(odd)]
    assert all(type(product) is DenseLinear for product in whole), "in 8 bits they are slower there than in bfloat16"


def test_a_format_that_is_slower_than_full_weights_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By a clock of the test, which products in `Late` move."""
    now = [0.0]

    def clock() -> float:
        now[0] += 1e-6
        return now[0]

    class Late(DenseLinear):
        def product(self, x: torch.Tensor) -> torch.Tensor:
            now[0] += 0.002
            return super().product(x)

    monkeypatch.setattr(autotuning, "time", SimpleNamespace(perf_counter=clock))
    for name, kernel, told in (("fast", DenseLinear, []), ("late", Late, ["products in late take longer on cpu"])):
        monkeypatch.setattr(formats, "FORMATS", {name: formats.Format(kernel, kernel)})
        monkeypatch.setattr(formats, "make_linear", DenseLinear if name == "late" else Late)
        caplog.clear()
        formats.warn_where_slower(name, CPU, (16, 16))
        assert (
            [record.getMessage()[: len(told[0])] for record in caplog.records] == told if told else not caplog.records
        )


def test_rows_are_promised_to_be_steady_on_a_cpu_alone() -> None:
    assert FORMATS["int8"].batch_invariant_on(CPU) and not FORMATS["int8"].batch_invariant_on(CARD)
    assert not FORMATS["full"].batch_invariant_on(CPU)
    model = lean.from_transformers(random_model(llama(), 0), format=FORMATS["int8"])
    assert model.batch_invariant and model.with_format(FORMATS["int8"]).batch_invariant

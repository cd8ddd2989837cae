"""What a format makes of the blocks of a GGUF file: levels as the file has them, or rounded, type by type."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from torch import Tensor

from sampling.forward.kernels import int4, int8, q8_0
from sampling.forward.kernels.formats import FORMATS
from sampling.forward.kernels.int4 import Int4Linear
from sampling.forward.kernels.int8 import FineInt8Linear
from sampling.forward.kernels.linear import DenseLinear
from sampling.forward.kernels.q8_0 import GroupedInt8Linear, grouped_or_fine
from sampling.forward.kernels.quantisation_scales import GROUP

pytestmark = pytest.mark.skipif(not (int8.runs() and int4.runs()), reason="this CPU or torch lacks the products")
OUTPUTS, INPUTS = 32, 512
BYTES = {Type.Q4_K: 144, Type.Q6_K: 210}
SCALES = {Type.Q4_K: slice(0, 4), Type.Q6_K: slice(208, 210)}  # where a block has its half-precision numbers


def blocks(kind: Type) -> np.ndarray:
    """Blocks of a matrix `[32, 512]` as bytes: quantised by the package where it can, else random ones."""
    chance = np.random.default_rng(0)
    if kind not in BYTES:
        return gguf.quantize(chance.standard_normal((OUTPUTS, INPUTS), dtype=np.float32), kind)
    raw = chance.integers(0, 256, (OUTPUTS, INPUTS // 256, BYTES[kind]), dtype=np.uint8)
    halves = chance.uniform(0.01, 0.1, (*raw.shape[:2], (SCALES[kind].stop - SCALES[kind].start) // 2))
    raw[..., SCALES[kind]] = halves.astype("<f2").view(np.uint8)
    return raw.reshape(OUTPUTS, -1)


def through_a_file(path: Path, kind: Type) -> tuple[np.ndarray, Tensor]:
    """The blocks as a file gives them back, and the weights that they stand for."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("it", blocks(kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (tensor,) = gguf.GGUFReader(path).tensors
    assert tensor.tensor_type == kind
    return np.array(tensor.data), torch.from_numpy(gguf.dequantize(tensor.data, kind).copy())


def stored_levels(raw: np.ndarray, kind: Type) -> Tensor:
    """The whole numbers of the blocks `[32, groups, 32]`, read by the format's own description."""
    if kind == Type.Q8_0:
        return torch.from_numpy(raw.reshape(OUTPUTS, -1, 34)[..., 2:].view(np.int8).astype(np.int32))
    size, begin = {Type.Q4_0: (18, 2), Type.Q4_1: (20, 4), Type.Q4_K: (144, 16)}[kind]
    packed = raw.reshape(OUTPUTS, -1, size)[..., begin:]
    if kind == Type.Q4_K:  # 32 bytes hold two groups, one in the lower halves
        packed = packed.reshape(OUTPUTS, -1, GROUP)
        levels = np.stack([packed & 15, packed >> 4], axis=2).reshape(OUTPUTS, -1, GROUP)
    else:  # 16 bytes hold one group, its first half in the lower halves
        levels = np.concatenate([packed & 15, packed >> 4], axis=-1)
    return torch.from_numpy(levels.astype(np.int32))


@pytest.mark.parametrize("kind", [Type.Q4_0, Type.Q4_1, Type.Q4_K])
def test_int4_has_the_levels_of_a_file_in_four_bits(tmp_path: Path, kind: Type) -> None:
    """A group need not reach its lowest level nor all of them, so levels are equal up to their origin and a factor."""
    raw, weight = through_a_file(tmp_path / "it.gguf", kind)
    stored = stored_levels(raw, kind)
    levels, steps, lowest = int4.on_grid(weight)
    risen = stored - stored.amin(-1, keepdim=True)
    if kind == Type.Q4_0:  # a negative scale turns a group around
        turned = stored.amax(-1, keepdim=True) - stored
        flipped = weight.unflatten(1, (-1, GROUP)).argmax(-1, keepdim=True)
        risen = torch.where(turned.gather(-1, flipped) > 0, turned, risen)
    assert torch.equal(levels * risen.amax(-1, keepdim=True), risen * levels.amax(-1, keepdim=True))
    again = (levels * steps.unsqueeze(-1) + lowest.unsqueeze(-1)).flatten(1)
    assert (again - weight).abs().max() <= 2**-23 * weight.abs().max()


@pytest.mark.parametrize("kind", [Type.Q4_0, Type.Q4_1, Type.Q4_K])
def test_products_in_int4_are_those_of_the_file_but_for_steps_in_bfloat16(tmp_path: Path, kind: Type) -> None:
    _, weight = through_a_file(tmp_path / "it.gguf", kind)
    levels, steps, lowest = int4.on_grid(weight)
    step, middle = steps.bfloat16().float(), (lowest + 8 * steps).bfloat16().float()
    expected = ((levels - 8) * step.unsqueeze(-1) + middle.unsqueeze(-1)).flatten(1)
    found = Int4Linear(weight).with_kernel(DenseLinear)
    assert isinstance(found, DenseLinear)
    assert torch.equal(found.weight, expected.bfloat16().float())
    assert (found.weight - weight).abs().max() < 2**-7 * weight.abs().max()


def test_a_q8_0_matrix_is_found_again_bit_for_bit(tmp_path: Path) -> None:
    raw, weight = through_a_file(tmp_path / "it.gguf", Type.Q8_0)
    found = q8_0.on_grid(weight)
    assert found is not None
    levels, steps = found
    assert torch.equal(levels.unflatten(1, (-1, GROUP)).int(), stored_levels(raw, Type.Q8_0))
    halves = raw.reshape(OUTPUTS, -1, 34)[..., :2].copy().view("<f2")[..., 0]
    assert torch.equal(steps, torch.from_numpy(halves.astype(np.float32)))


def test_products_of_a_q8_0_matrix_are_exact_in_its_levels(tmp_path: Path) -> None:
    _, weight = through_a_file(tmp_path / "it.gguf", Type.Q8_0)
    levels, steps = q8_0.on_grid(weight) or pytest.fail("on no grid")
    bias = torch.randn(OUTPUTS, generator=torch.Generator().manual_seed(1))
    layer = GroupedInt8Linear(levels, steps, bias)
    rounded = levels.unflatten(1, (-1, GROUP)) * steps.bfloat16().float().unsqueeze(-1)
    back = layer.with_kernel(DenseLinear)
    assert isinstance(back, DenseLinear) and torch.equal(back.weight, rounded.flatten(1))
    x = torch.randn(19, INPUTS, generator=torch.Generator().manual_seed(2)).bfloat16().float()
    expected = (x.double() @ rounded.flatten(1).double().T).float()
    error = (GroupedInt8Linear(levels, steps)(x) - expected).abs()
    assert bool((error <= 1.01 * 2**-8 * expected.abs() + 1e-4).all()), "only the result is rounded"
    torch.testing.assert_close(layer(x), GroupedInt8Linear(levels, steps)(x) + bias)
    for count in (1, 2, 5, 8, 17):
        assert torch.equal(layer(x[:count]), layer(x)[:count])


@pytest.mark.parametrize("highest", [0, 1, 37, 63, 64, 126, 127])
def test_groups_that_reach_only_some_levels_of_q8_0_lie_on_its_grid(highest: int) -> None:
    chance = torch.Generator().manual_seed(highest)
    levels = torch.randint(-highest, highest + 1, (16, 4, GROUP), generator=chance)
    levels[..., 0] = -highest
    steps = torch.rand(16, 4, generator=chance).half().float()
    weight = (levels * steps.unsqueeze(-1)).flatten(1)
    found = q8_0.on_grid(weight)
    assert found is not None
    again = found[0].unflatten(1, (-1, GROUP)) * found[1].unsqueeze(-1)
    torch.testing.assert_close(again.flatten(1), weight, rtol=2**-22, atol=0)


@pytest.mark.parametrize("kind", [Type.Q6_K, Type.Q5_1, Type.Q4_1])
def test_other_files_lie_on_no_grid_of_eight_bits(tmp_path: Path, kind: Type) -> None:
    _, weight = through_a_file(tmp_path / "it.gguf", kind)
    one_off = torch.zeros(5000, 64)
    one_off[-1] = weight[0, :64]
    for matrix in (weight, one_off):
        assert q8_0.on_grid(matrix) is None
        assert type(grouped_or_fine(matrix)) is FineInt8Linear


@pytest.mark.parametrize("kind", [Type.Q6_K, Type.Q8_0])
def test_finer_files_are_rounded_to_the_nearest_level_of_int4(tmp_path: Path, kind: Type) -> None:
    _, weight = through_a_file(tmp_path / "it.gguf", kind)
    levels, steps, lowest = int4.on_grid(weight)
    again = levels * steps.unsqueeze(-1) + lowest.unsqueeze(-1)
    error = (again - weight.unflatten(1, (-1, GROUP))).abs()
    assert bool((error <= 0.5001 * steps.unsqueeze(-1)).all()) and error.max() > 0


@pytest.mark.parametrize("kind", [Type.Q8_0, Type.Q5_0, Type.Q4_0, Type.MXFP4])
def test_int8_keeps_a_matrix_of_one_step_a_group_and_rounds_others(tmp_path: Path, kind: Type) -> None:
    _, weight = through_a_file(tmp_path / "it.gguf", kind)
    layer = FORMATS["int8"].blocks(weight)
    assert type(layer) is GroupedInt8Linear
    kept = layer.with_kernel(DenseLinear)
    assert isinstance(kept, DenseLinear)
    assert bool(((kept.weight - weight).abs() <= 2**-8 * weight.abs()).all())
    assert type(FORMATS["int8"].blocks(weight[:17])) is FineInt8Linear, "17 outputs have no products in 4 bits"
    assert type(FORMATS["int8"].blocks(torch.randn(32, 64))) is FineInt8Linear


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_a_matrix_is_packed_in_slices_as_it_would_be_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weight, x = torch.randn(192, 64), torch.randn(3, 64)
    grouped = torch.randint(-127, 128, (192, 64)) * torch.rand(192, 1)
    grouped[:, ::GROUP] = 127 * grouped[:, :1].sign() * torch.rand(192, 1)
    whole = [FORMATS[name].blocks(one)(x) for one in (weight, grouped)]
    monkeypatch.setattr("sampling.forward.kernels.quantisation_scales.SLICE", 64)
    for one, expected in zip((weight, grouped), whole, strict=True):
        assert torch.equal(FORMATS[name].blocks(one)(x), expected)

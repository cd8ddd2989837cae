"""Compiled steps: what they give, that a row is the same alone and among others, and how they are kept."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import Qwen3Config

from sampling.forward.kernels import int8
from sampling.forward.kernels.formats import FORMATS, Format
from sampling.forward.kernels.int8 import FineInt8Linear
from sampling.forward.models import compiled as steps
from sampling.forward.models import lean
from sampling.forward.models.compiled import compiled, compiler
from sampling.forward.models.flat import CompiledSteps, examples
from sampling.forward.models.fused import fused
from sampling.forward.runner import ModelRunner
from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from tests.refusals import refused
from tests.tiny import TOKENS, llama, random_model, save_checkpoint
from tests.tiny_models import ids

SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
ROWS = 40


def nobody(done: float) -> None:
    raise AssertionError("something was compiled")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(autouse=True)
def _with_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own cache folder, and the compiler that other tests do without."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("SPECULATIVE_WORKBENCH_CACHE", str(folder))
    if compiler() is None or not int8.runs():
        pytest.skip("no C++ compiler, or no products in int8")


def model() -> lean.LeanModel:
    """With norms of queries and keys."""
    config = Qwen3Config(
        **SIZES,
        vocab_size=TOKENS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=64,
    )
    return lean.from_transformers(random_model(config, 0), format=FORMATS["int8"])


def with_steps(one: lean.LeanModel, tell: Callable[[float], None] = lambda done: None) -> lean.LeanModel:
    return replace(one, blocks=compiled(one.blocks, tell))


def test_compiled_steps_give_what_the_others_give_and_a_row_alone_what_it_gives_among_others() -> None:
    plain, made = model(), with_steps(model())
    assert isinstance(made.blocks.steps, CompiledSteps)
    said, together, alone = ids(ROWS), ModelRunner(made), ModelRunner(made)
    expected = ModelRunner(plain).forward(said).logits
    found = torch.cat([together.forward(said[at : at + 7]).logits for at in range(0, ROWS, 7)])
    assert (found - expected).norm() < 0.05 * expected.norm()
    assert torch.equal(found, torch.cat([alone.forward([token]).logits for token in said]))


def test_steps_are_made_once_and_again_where_a_file_is_damaged(folder: Path) -> None:
    with_steps(model())
    with_steps(model(), nobody)
    kept = next((folder / "compiled").glob("gate-*.pt2"))
    whole = kept.read_bytes()
    middle = len(whole) // 2
    kept.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    assert steps._kept(kept) is None
    kept.write_bytes(whole[:1000])
    with_steps(model())
    with_steps(model(), nobody)
    assert not [path for path in (folder / "compiled").iterdir() if path.suffix != ".pt2"]


def test_a_step_whose_rows_depend_on_each_other_is_not_right() -> None:
    formulas = examples(model().with_format(Format(FineInt8Linear, FineInt8Linear)).blocks)
    enter = next(one for one in formulas.seen.values() if one.step == "enter")

    def batch_wide(tensors: list[Tensor]) -> list[Tensor]:
        """One scale for all rows, as if it were each row's."""
        parts, size = formulas.result(enter.filled(tensors))
        return [parts * (size / size.amax()).repeat(2, 1), size.amax().expand_as(size)]

    assert steps._right(formulas, enter, lambda tensors: formulas.result(enter.filled(tensors)))
    assert not steps._right(formulas, enter, batch_wide)


def test_without_a_compiler_a_model_goes_on_as_it_is_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    place = str(save_checkpoint(tmp_path / "target", llama(**SIZES)))
    pair = load_pair(LoadOptions(place, device="cpu", target_weights="int8"))
    assert not pair.target_info.compiled and any("no C++ compiler is found" in note for note in pair.notes)
    with refused("compile on", "CXX"):
        load_pair(LoadOptions(place, device="cpu", target_weights="int8", compile="on"))
    assert not load_pair(LoadOptions(place, device="cpu", target_weights="int8", compile="off")).notes


def test_rounded_weights_are_compiled_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean, "compiled", lambda blocks, tell: replace(blocks, compiled=blocks.steps))
    place = str(save_checkpoint(tmp_path / "target", llama(**SIZES)))
    for weights, compile, expected in (
        ("int8", "auto", True),
        ("int8", "off", False),
        ("full", "auto", False),
        ("full", "on", True),
    ):
        pair = load_pair(LoadOptions(place, device="cpu", target_weights=weights, compile=compile))
        assert pair.target_info.compiled == expected
    drafter = load_pair(LoadOptions(place, "self:int4", device="cpu", compile="auto")).drafter_info
    assert drafter is not None and drafter.compiled


@pytest.mark.parametrize("stored", ["full", "int8"])
def test_steps_that_torch_compiles_when_called_give_what_their_formulas_give(stored: str) -> None:
    """As on CUDA, with the compiler's front end alone: one program for any number of rows, without a break."""
    plain = model().with_format(FORMATS[stored])
    made = replace(plain, blocks=fused(plain.blocks, backend="eager"))
    for count in (1, 2, 7, 17):
        one, other = (ModelRunner(each).forward(ids(count)).logits for each in (plain, made))
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)


def test_steps_that_come_out_wrong_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda made, **how: lambda *tensors: [one + 1 for one in made(*tensors)])
    with refused("'enter'"):
        fused(model().blocks)

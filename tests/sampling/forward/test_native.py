"""Full weights and whole blocks in C++: what they give, the same bits in any company, and who goes without."""

from collections.abc import Callable, Iterator, Sequence
from ctypes import c_float, memset
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, PretrainedConfig

from sampling.forward.cpp import block, dense, vnni
from sampling.forward.cpp.dense import DenseNativeLinear, dense_kernel
from sampling.forward.cpp.library import use_own_kernels
from sampling.forward.kernels.formats import FORMATS
from sampling.forward.kernels.linear import DenseLinear, ReducedOutput
from sampling.forward.kernels.probe import use_kernel
from sampling.forward.models.lean import LeanModel, from_transformers
from sampling.forward.models.packed_modules import PackedModule
from sampling.forward.runner import ModelRunner, prefill
from sampling.forward.sharing import SharedRunner
from sampling.forward.traffic import held_bytes
from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from tests import tiny
from tests.sampling.forward.found_compiler import found_compiler, needs_compiler, own_products

pytestmark = needs_compiler
ROWS = 14  # of more than two tiles
BOTH = (torch.float32, torch.bfloat16)


@pytest.fixture(scope="module", autouse=True)
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with found_compiler(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture(autouse=True)
def own_kernels() -> Iterator[None]:
    with own_products():
        yield
    use_own_kernels(True)


def drawn(*size: int) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(sum(size)))


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize(("outputs", "inputs"), [(72, 97), (16, 32), (200, 64)])
def test_a_product_is_that_of_its_weights_and_a_row_the_same_in_any_company(
    dtype: torch.dtype, outputs: int, inputs: int
) -> None:
    weight, bias, x = drawn(outputs, inputs).to(dtype), drawn(outputs).to(dtype), drawn(ROWS, inputs).to(dtype)
    layer, threads = DenseNativeLinear(weight, bias), torch.get_num_threads()
    whole, meant = layer(x), x.double() @ weight.double().T + bias.double()
    assert (
        whole.dtype == dtype
        and (whole.double() - meant).norm() < (1e-6 if dtype == torch.float32 else 3e-3) * meant.norm()
    )
    for size in (1, 2, 3, 4, 5, 6, 7):
        assert torch.equal(torch.cat([layer(part) for part in x.split(size)]), whole), size
    try:
        torch.set_num_threads(3)
        assert torch.equal(layer(x), whole)
    finally:
        torch.set_num_threads(threads)
    assert layer(x[:0]).shape == (0, outputs)
    back = layer.with_kernel(DenseLinear)
    assert isinstance(back, DenseLinear) and torch.equal(back.weight, weight) and torch.equal(back.bias, bias)


def test_weights_that_bfloat16_holds_are_held_so_and_give_the_same_bits() -> None:
    weight, x = drawn(64, 96).bfloat16(), drawn(5, 96)
    short, wide = (
        DenseNativeLinear(weight.float()),
        DenseNativeLinear(weight.float(), None, dense_kernel(torch.float32)),
    )
    assert held_bytes([short]) == 2 * 64 * 96 and held_bytes([wide]) == 4 * 64 * 96
    assert torch.equal(short(x), wide(x)) and torch.equal(short.dense(), weight.float())
    assert held_bytes([DenseNativeLinear(drawn(64, 96))]) == 4 * 64 * 96, "these it does not hold"


def test_layers_of_transformers_have_it_too() -> None:
    weight, bias, x = drawn(32, 48), drawn(48), drawn(2, 3, 32)
    layer = PackedModule(weight, bias, turned=True)
    torch.testing.assert_close(layer(x), x @ weight + bias)
    assert torch.equal(layer.weight, weight)


@pytest.mark.parametrize(("fault", "said"), [(0.0, "they are off by 100"), (1e-6, "other bits among others")])
def test_a_product_that_is_not_right_is_not_used(
    fault: float, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    honest, calls = dense._made, count()

    def faulty(dtype: torch.dtype) -> Callable[..., None]:
        right = honest(dtype)

        def multiply(matrix: int, x: int, out: int, rows: int, threads: int) -> None:
            right(matrix, x, out, rows, threads)
            c_float.from_address(out).value += fault * next(calls)
            if not fault:
                memset(out, 0, rows * dense._OUTPUTS * 4)

        return multiply

    monkeypatch.setattr(dense, "_made", faulty)
    dense._checked.cache_clear()
    assert dense_kernel(torch.float32) is None and said in caplog.text
    dense._checked.cache_clear()


def config(kind: str, **changes: Any) -> PretrainedConfig:
    """A small model of a family, with heads of 32."""
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "vocab_size": 96, "head_dim": 32}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
    return AutoConfig.for_model(kind, **{**sizes, **heads, **changes})


FAMILIES = {
    "llama": config("llama"),
    "llama with biases": config("llama", attention_bias=True, mlp_bias=True),
    "qwen2": config("qwen2"),
    "qwen3": config("qwen3"),
    "gemma2": config("gemma2", sliding_window=9),
    "gemma3": config("gemma3_text", sliding_window=9),
    "granite": config("granite", residual_multiplier=0.3),
}


def model_of(name: str, dtype: torch.dtype = torch.float32, format: str = "full") -> LeanModel:
    made = tiny.random_model(FAMILIES[name], noise=0.2).bfloat16().to(dtype)
    return from_transformers(made, format=FORMATS[format]).with_batch_invariance(True)


def stepwise(model: LeanModel) -> LeanModel:
    """The same model, a step after the other."""
    made = model.with_batch_invariance(True)
    made.blocks.__dict__["native"] = None
    return made


def all_logits(model: LeanModel, feeds: Sequence[tuple[Sequence[int], Sequence[int] | None]]) -> Tensor:
    """Of a text whose prompt was read, and of what it is fed."""
    runner = ModelRunner(model)
    prefill(runner, list(range(30, 50)))
    rows = []
    for tokens, parents in feeds:
        rows.append(runner.forward(tokens, parents).logits)
    return torch.cat(rows)


CHAIN = [7, 8, 9, 10, 11, 12, 13]
TREE = [-1, 0, 0, 1, 3, 2]


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("name", FAMILIES)
def test_blocks_give_what_their_steps_give_and_a_row_the_same_alone(name: str, dtype: torch.dtype) -> None:
    model = model_of(name, dtype)
    assert model.blocks.native is not None and (model.native is None) == (model.embedding_scale != 1.0)
    fed = [(CHAIN, None), (CHAIN, TREE)]
    found = all_logits(model, fed)
    assert torch.equal(all_logits(model, [([token], None) for token in CHAIN]), found[: len(CHAIN)])
    right = all_logits(stepwise(model_of(name)), fed)
    mine, theirs = (float((rows.float() - right).norm()) for rows in (found, all_logits(stepwise(model), fed)))
    assert 0 < mine < (1e-5 * right.norm() if dtype == torch.float32 else 2 * theirs)


@pytest.mark.parametrize("blocks", [False, True])
def test_texts_side_by_side_have_the_bits_that_they_have_alone(blocks: bool) -> None:
    model = model_of("gemma2")
    alone = all_logits(model, [(CHAIN, TREE)])
    shared = SharedRunner(model, blocks=blocks)
    slots = [shared.another() for _ in range(3)]
    for length, slot in zip((20, 3, 35), slots, strict=True):
        prefill(slot, list(range(30, 30 + length)))
    outputs = shared.run([slots[0].feed(CHAIN, TREE), slots[1].feed([5]), slots[2].feed([6, 7])])
    assert torch.equal(outputs[0].logits, alone)


@pytest.mark.parametrize("format", ["int8", "int4"])
def test_blocks_of_rounded_weights(format: str) -> None:
    if vnni.vnni_kernel(8, False, torch.empty(16, 32)) is None:
        pytest.skip("this CPU has no dot products of bytes")
    model = model_of("qwen2", format=format)
    assert model.blocks.native is not None
    found = all_logits(model, [(CHAIN, TREE)])
    expected = all_logits(stepwise(model), [(CHAIN, TREE)])
    assert 0 < (found - expected).norm() < 1e-3 * expected.norm()


@pytest.mark.parametrize("name", ["llama", "gemma2"])
@pytest.mark.parametrize("hidden", [[0, 1, 3], [2], []])
def test_states_between_blocks_are_given(name: str, hidden: list[int]) -> None:
    model = model_of(name)
    states = [ModelRunner(made).forward(CHAIN, hidden=hidden, rows=0).hidden for made in (model, stepwise(model))]
    assert list(states[0]) == hidden
    for layer, state in states[0].items():
        torch.testing.assert_close(state, states[1][layer], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", BOTH)
def test_logits_of_many_rows_are_those_of_each(dtype: torch.dtype) -> None:
    model, tokens = model_of("granite", dtype), list(range(90))
    assert model.native is not None
    many = ModelRunner(model).forward(tokens).logits
    assert torch.equal(ModelRunner(model).forward(tokens, rows=70).logits, many[-70:])
    one_by_one = ModelRunner(model)
    assert torch.equal(torch.cat([one_by_one.forward([token]).logits for token in tokens]), many)


@pytest.mark.parametrize("token", [-1, 96])
def test_a_token_that_the_model_lacks_is_an_error_and_nothing_is_fed(token: int) -> None:
    runner = ModelRunner(model_of("llama"))
    with pytest.raises(IndexError, match="has no embedding; there are 96"):
        runner.forward([3, token])
    assert runner.length == 0 and runner.forward([3, 95]).logits.isfinite().all()


def test_an_output_of_its_own_with_a_bias_and_a_draft_vocabulary() -> None:
    ids = torch.arange(1, 96, 3)
    weight, bias = drawn(32, 64), drawn(32)
    for output in (DenseNativeLinear(weight, bias), ReducedOutput(DenseNativeLinear(weight, bias), ids, 96)):
        model = replace(model_of("llama"), head=output)
        assert model.native is not None
        found, expected = (ModelRunner(made).forward(CHAIN).logits for made in (model, stepwise(model)))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert found.shape == (len(CHAIN), 96) and (found[:, 0] == torch.finfo(torch.float32).min).all()


def test_what_is_loaded_says_that_its_blocks_are_ours(tmp_path: Path) -> None:
    folder = str(
        tiny.save_checkpoint(tmp_path / "llama", FAMILIES["llama"].__class__(**FAMILIES["llama"].to_diff_dict()))
    )
    options = LoadOptions(folder, folder, device="cpu", dtype="float32")
    assert load_pair(options).target_info.own_kernels == "blocks"
    pair = load_pair(replace(options, compile="on"))
    assert not pair.target_info.compiled, "nothing is left to compile"
    pair = load_pair(replace(options, compile="off", kernel="packed"))
    assert pair.target_info.own_kernels is None


def test_a_model_on_transformers_layers_says_whose_products_it_has(tmp_path: Path) -> None:
    folder = str(tiny.save_checkpoint(tmp_path / "gpt2", tiny.gpt2()))
    for name in ("own", "packed", "plain"):
        options = LoadOptions(folder, folder, device="cpu", dtype="float32", kernel=name)
        assert load_pair(options).target_info.kernel == name


def test_who_goes_without() -> None:
    others = {
        "heads of 16": config("llama", head_dim=16),
        "a width of 72": config("llama", hidden_size=72),
        "norms of all heads": config("olmo2"),
        "experts": config("mixtral", num_local_experts=4),
        "attention beside the MLP": config("cohere2"),
    }
    for name, made in others.items():
        assert from_transformers(tiny.random_model(made)).blocks.native is None, name
    odd = from_transformers(tiny.random_model(config("llama", vocab_size=100)))
    assert odd.blocks.native is not None and odd.native is None, "outputs in pieces of 32"
    use_kernel("plain")
    assert model_of("llama").blocks.native is None
    use_kernel("own")
    model = model_of("llama")
    use_own_kernels(False)
    assert model.blocks.native is None


@pytest.mark.parametrize(("fault", "said"), [(1.0, "it is off by"), (1e-4, "other bits among others")])
def test_blocks_that_are_not_right_are_not_used(
    fault: float, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    honest, calls = block._loaded, count()

    def faulty(name: str, number: str) -> Callable[..., None]:
        right = honest(name, number)

        def run(given: Any, layers: int, *fed: Any) -> None:
            right(given, layers, *fed)
            c_float.from_address(given[layers - 1].state).value += 100.0 if fault == 1.0 else fault * next(calls)

        return run

    monkeypatch.setattr(block, "_loaded", faulty)
    block.function_of.cache_clear()
    assert model_of("llama").blocks.native is None and said in caplog.text
    block.function_of.cache_clear()

"""Chain and tree forwards behind the rollback cache against transformers' own uncached forward, in fp32."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sampling.forward.kernels.linear import DenseLinear, PackedLinear, WideningLinear
from sampling.forward.kernels.probe import kernel, make_linear
from sampling.forward.models import lean
from sampling.forward.recomputing import RecomputingRunner
from sampling.forward.runner import ModelRunner, catch_up, prefill
from tests.tiny_models import FORMS, LEAN, MAKERS, SIZES, ids, make, runner, truth

CLOSE = {"rtol": 1e-4, "atol": 2e-4}


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_a_chain_fed_in_pieces_with_rollbacks(name: str, form: str) -> None:
    model, text = make(name), ids(30)
    expected = truth(model, text)
    run = runner(model, form)
    torch.testing.assert_close(run.forward(text[:9]).logits, expected[:9], **CLOSE)
    run.forward(ids(5, seed=1))
    run.crop(9)
    torch.testing.assert_close(run.forward(text[9:10]).logits, expected[9:10], **CLOSE)
    torch.testing.assert_close(catch_up(run, text[:20]).logits, expected[19:20], **CLOSE)
    torch.testing.assert_close(run.forward(text[20:]).logits, expected[20:], **CLOSE)


@pytest.mark.parametrize(("name", "form"), FORMS)
@pytest.mark.parametrize("cls", [ModelRunner, RecomputingRunner])
def test_a_tree_equals_its_branches(name: str, form: str, cls: type[ModelRunner]) -> None:
    """Fed rows: root, then drafts with parents (-1, -1, 0, 1, 3); kept: the branch 1, 3, 4."""
    model, text = make(name), ids(12)
    root, drafts = text[-1], ids(5, seed=2)
    branches = {0: [0], 1: [1], 2: [0, 2], 3: [1, 3], 4: [1, 3, 4]}
    run = runner(model, form, cls)
    prefill(run, text[:-1])
    logits = run.forward([root, *drafts], parents=(-1, -1, 0, 1, 3)).logits
    torch.testing.assert_close(logits[0], truth(model, text)[-1], **CLOSE)
    for row, path in branches.items():
        torch.testing.assert_close(logits[row + 1], truth(model, [*text, *(drafts[i] for i in path)])[-1], **CLOSE)
    run.keep(11, (1, 3, 4))
    kept = [*text, drafts[1], drafts[3], drafts[4]]
    assert run.length == len(kept)
    torch.testing.assert_close(run.forward([7]).logits[0], truth(model, [*kept, 7])[-1], **CLOSE)


@pytest.mark.parametrize(("name", "form"), [("llama", "lean"), ("llama", "adapter"), ("gpt2", "adapter")])
def test_hidden_states_count_as_transformers_count_them(name: str, form: str) -> None:
    model, text = make(name), ids(10)
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([text]), output_hidden_states=True).hidden_states
    run = runner(model, form)
    first = prefill(run, text[:6], hidden=(0, 2, 3))
    rest = run.forward(text[6:], hidden=(0, 2, 3)).hidden
    for layer in (0, 2, 3):
        torch.testing.assert_close(torch.cat([first[layer], rest[layer]]), expected[layer][0], **CLOSE)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_recomputing_agrees_with_caching(name: str) -> None:
    model, text = make(name), ids(20)
    cached, plain = runner(model, "adapter"), runner(model, "adapter", RecomputingRunner)
    for run in (cached, plain):
        prefill(run, text[:7])
        run.forward(text[7:12])
        run.crop(10)
    torch.testing.assert_close(cached.forward(text[10:]).logits, plain.forward(text[10:]).logits, **CLOSE)


def test_a_long_prompt_goes_through_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sampling.forward.runner.PREFILL_CHUNK", 7)
    model, text, sizes = make("llama"), ids(40), []
    run = runner(model, "lean")
    forward = run.forward
    run.forward = lambda tokens, *args, **how: sizes.append(len(tokens)) or forward(tokens, *args, **how)
    prefill(run, text[:-1])
    assert sizes == [7, 7, 7, 7, 7, 4]
    torch.testing.assert_close(run.forward(text[-1:]).logits[0], truth(model, text)[-1], **CLOSE)


def test_the_cache_grows_past_its_first_allocation() -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**{**SIZES, "max_position_embeddings": 1024})).eval()
    text = ids(700)
    run = runner(model, "lean")
    prefill(run, text[:200])
    for start in (200, 300, 513):
        run.crop(start)
        last = run.forward(text[start : start + 187], rows=1).logits
        run.crop(start)
        run.forward(text[start : min(start + 300, 700)], rows=0)
    run.crop(699)
    last = run.forward(text[699:]).logits
    torch.testing.assert_close(last[0], truth(model, text)[-1], **CLOSE)


def test_releasing_the_model_empties_it() -> None:
    model, text = make("llama"), ids(9)
    expected = truth(model, text)
    small = lean.from_transformers(model, release=True)
    assert all(parameter.is_meta for parameter in model.model.layers.parameters())
    torch.testing.assert_close(ModelRunner(small).forward(text).logits, expected, **CLOSE)


def test_a_common_vocabulary_cuts_the_logits() -> None:
    run = ModelRunner(lean.from_transformers(make("llama")), vocab_size=100)
    assert run.forward(ids(3)).logits.shape == (3, 100)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("biased", [True, False])
def test_the_probed_kernel_agrees_with_the_plain_one(dtype: torch.dtype, biased: bool) -> None:
    weight = torch.randn(96, 64).to(dtype)
    bias = torch.randn(96).to(dtype) if biased else None
    chosen, plain = make_linear(weight, bias), DenseLinear(weight, bias)
    assert isinstance(chosen, kernel("cpu", dtype))
    for count in (1, 2, 5, 40):
        x = torch.randn(count, 64).to(dtype)
        torch.testing.assert_close(chosen(x), plain(x), rtol=2e-2, atol=0.25 if dtype is torch.bfloat16 else 1e-3)


@pytest.mark.parametrize("count", [1, 7, 8, 40])
@pytest.mark.parametrize("biased", [True, False])
def test_the_widening_kernel_agrees_with_the_plain_one(count: int, biased: bool) -> None:
    weight, x = torch.randn(96, 64).bfloat16(), torch.randn(count, 64).bfloat16()
    bias = torch.randn(96).bfloat16() if biased else None
    made = WideningLinear(weight, bias)(x)
    assert made.dtype == torch.bfloat16
    torch.testing.assert_close(made, DenseLinear(weight, bias)(x), rtol=2e-2, atol=0.25)


def test_the_packed_kernel_agrees_where_it_runs() -> None:
    weight, x = torch.randn(96, 64), torch.randn(5, 64)
    try:
        packed = PackedLinear(weight)
    except (RuntimeError, AttributeError):
        pytest.skip("torch has no oneDNN here")
    torch.testing.assert_close(packed(x), x @ weight.T, rtol=1e-4, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", MAKERS)
def test_a_chain_and_a_tree_on_a_gpu(name: str) -> None:
    model, text = make(name), ids(12)
    expected = truth(model, text)
    run = runner(model.to("cuda"), "lean" if name in LEAN else "adapter")
    prefill(run, text[:8])
    logits = run.forward([text[8], *text[9:]], parents=(-1, 0, 1)).logits
    torch.testing.assert_close(logits.cpu(), expected[8:], rtol=1e-3, atol=1e-3)

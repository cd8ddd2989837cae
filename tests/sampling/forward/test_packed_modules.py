"""Transformers' modules on packed products, with attention that is batch-invariant: what they say, and its bits."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from transformers import FalconConfig, PretrainedConfig
from transformers.activations import NewGELUActivation
from transformers.pytorch_utils import Conv1D

from sampling.forward.invariance import first_difference
from sampling.forward.kernels import probe
from sampling.forward.models.adapter import TransformersModel
from sampling.forward.models.packed_modules import PackedModule, RowwiseActivation, pack_modules
from sampling.forward.runner import ModelRunner, prefill
from sampling.forward.sharing import SharedRunner
from sampling.loading.adapt import adapted
from sampling.pair.share import why_not_shared
from tests.tiny import TOKENS, gpt2, mistral, random_model

pytestmark = pytest.mark.skipif(not probe.packs(torch.float32), reason="torch has no oneDNN here")
TEXT = list(range(5, 200))


@pytest.fixture(autouse=True)
def packed() -> Iterator[None]:
    probe.use_kernel("packed")
    yield
    probe.use_kernel("auto")


def falcon() -> PretrainedConfig:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": TOKENS}
    return FalconConfig(**sizes, max_position_embeddings=128, bos_token_id=1, eos_token_id=2)


def loaded(config: PretrainedConfig, dtype: torch.dtype = torch.float32) -> TransformersModel:
    model = adapted("tiny", random_model(config).to(dtype))
    assert isinstance(model, TransformersModel)
    return model


@pytest.mark.parametrize("config", [mistral(), gpt2(), falcon()], ids=lambda config: str(config.model_type))
def test_layers_are_packed_and_say_what_they_said(config: PretrainedConfig) -> None:
    plain = TransformersModel(random_model(config))
    expected = ModelRunner(plain).forward(TEXT[:9]).logits.clone()
    model = loaded(config)
    assert model.kernel == "packed" and not any(isinstance(part, nn.Linear | Conv1D) for part in model.hf.modules())
    torch.testing.assert_close(ModelRunner(model).forward(TEXT[:9]).logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "layer", [nn.Linear(6, 4), nn.Linear(6, 4, bias=False), Conv1D(4, 6)], ids=["", "bare", "turned"]
)
def test_a_packed_layer_has_the_face_of_the_plain_one(layer: nn.Module) -> None:
    x, weight = torch.randn(2, 3, 6), layer.weight.detach().clone()
    expected, parent = layer(x), nn.Sequential(layer)
    assert pack_modules(parent, torch.float32) and isinstance(parent[0], PackedModule)
    with torch.inference_mode():
        torch.testing.assert_close(parent(x), expected)
        torch.testing.assert_close(parent(x[:1, :1]), expected[:1, :1])
    assert torch.equal(parent[0].weight, weight) and (parent[0].in_features, parent[0].out_features) == (6, 4)


@pytest.mark.parametrize("width", [48, 64, 8960, 40000])
@pytest.mark.parametrize("activation", [nn.SiLU(), nn.GELU(), NewGELUActivation()])
def test_an_activation_does_not_depend_on_the_rows_beside_it(width: int, activation: nn.Module) -> None:
    x, before = torch.randn(1, 9, width, generator=torch.Generator().manual_seed(0)) * 3, torch.get_num_threads()
    layer = RowwiseActivation(activation)
    try:
        for threads in (1, 3, 5):
            torch.set_num_threads(threads)
            alone = torch.cat([layer(row) for row in x.split(1, 1)], 1)
            torch.testing.assert_close(alone, activation(x))
            for count in (2, 5, 9):
                assert torch.equal(layer(x[:, :count]), alone[:, :count])
    finally:
        torch.set_num_threads(before)


def test_layers_of_another_format_and_under_another_kernel_are_left() -> None:
    parent = nn.Sequential(nn.Linear(6, 4))
    assert not pack_modules(parent, torch.bfloat16)
    probe.use_kernel("plain")
    assert not pack_modules(parent, torch.float32) and isinstance(parent[0], nn.Linear)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_are_alike_for_every_count(dtype: torch.dtype) -> None:
    if not probe.packs(dtype):
        pytest.skip("torch has no packed products in it here")
    model = loaded(mistral(sliding_window=None), dtype)
    assert first_difference(ModelRunner(model.with_batch_invariance(True)), TEXT) is None
    assert model.batch_invariant is False


def test_a_row_of_a_tree_is_that_of_its_chain() -> None:
    model = loaded(mistral(sliding_window=None)).with_batch_invariance(True)
    runner, parents, path = ModelRunner(model), (-1, -1, 0, 2), (0, 2, 3)
    prefill(runner, TEXT[:40])
    tree = runner.forward(TEXT[40:45], parents).logits.clone()
    runner.crop(40)
    for row in (0, *(draft + 1 for draft in path)):
        assert torch.equal(runner.forward([TEXT[40 + row]]).logits[0], tree[row])


def test_texts_side_by_side_have_the_bits_that_they_have_alone() -> None:
    model = loaded(mistral(sliding_window=None)).with_batch_invariance(True)
    assert why_not_shared(model) is None
    texts, many = (TEXT[:30], TEXT[3:60]), SharedRunner(model)
    slots = [many.another() for _ in texts]
    for slot, text in zip(slots, texts, strict=True):
        slot.forward(text[:-3])
    together = many.run([slot.feed(text[-3:]) for slot, text in zip(slots, texts, strict=True)])
    for text, output in zip(texts, together, strict=True):
        runner = ModelRunner(model)
        prefill(runner, text[:-3])
        assert torch.equal(torch.cat([runner.forward([token]).logits for token in text[-3:]]), output.logits)

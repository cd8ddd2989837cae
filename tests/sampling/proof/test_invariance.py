"""Which operation is the first that depends on the number of rows: changes of order are planted, and found by name."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.caches.rows_layer import RowsLayer
from sampling.forward.kernels import probe
from sampling.forward.kernels.linear import DenseLinear
from sampling.forward.models.adapter import TransformersModel
from sampling.forward.models.lean import LeanModel, from_transformers
from sampling.forward.models.steps import Norm
from sampling.forward.runner import ModelRunner
from sampling.proof.faults import batch_wide
from sampling.proof.invariance import compare_counts, ulps
from tests.conformance.toy import ToyModel
from tests.refusals import refused
from tests.tiny import gpt2, llama, random_model

TEXT, COUNTS, MANY = list(range(5, 90)), (1, 2, 3, 5), 3
needs_packed = pytest.mark.skipif(not probe.packs(torch.float32), reason="torch has no oneDNN here")


@pytest.fixture
def model() -> Iterator[LeanModel]:
    """Three layers, wide enough that the order of a sum shows."""
    probe.use_kernel("packed")
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "max_position_embeddings": 256}
    yield replace(from_transformers(random_model(llama(**sizes))), batch_invariant=True)
    probe.use_kernel("auto")


class Reversed(DenseLinear):
    """Sums from behind, where many rows are fed."""

    def product(self, x: Tensor) -> Tensor:
        y = super().product(x)
        return y if len(x) < MANY else F.linear(x.double(), self.weight.double()).float()


class ReversedNorm(Norm):
    """The same of a norm."""

    def __call__(self, x: Tensor) -> Tensor:
        return (
            super().__call__(x) if len(x) < MANY else F.rms_norm(x.double(), x.shape[-1:], self.weight.double()).float()
        )


def of_layer(model: LeanModel, index: int, **parts: Callable[[Any], Any]) -> LeanModel:
    """The model with parts of one layer replaced."""
    layers = list(model.layers)
    made: dict[str, Any] = {name: make(getattr(layers[index], name)) for name, make in parts.items()}
    layers[index] = replace(layers[index], **made)
    return replace(model, blocks=replace(model.blocks, layers=tuple(layers)))


def firsts(model: Any, context: int = 20) -> dict[int, str | None]:
    """By number of rows."""
    found = compare_counts(model, TEXT, COUNTS, context)
    return {result.rows: result.first and result.first.operation for result in found}


@needs_packed
def test_nothing_differs_on_a_model_that_is_batch_invariant(model: LeanModel) -> None:
    assert firsts(model) == dict.fromkeys(COUNTS)
    for result in compare_counts(model, TEXT, COUNTS, 200):
        assert result.logit == 0.0 and len(result.ulp) > 10 * len(model.layers) and not any(result.ulp.values())


@needs_packed
@pytest.mark.parametrize(
    ("part", "make", "operation"),
    [
        ("down", lambda product: product.with_kernel(Reversed), "layers.1.down"),
        ("qkv", lambda product: product.with_kernel(Reversed), "layers.1.qkv"),
        ("mlp_norm", lambda norm: ReversedNorm(norm.weight, norm.eps), "layers.1.mlp_norm"),
        ("attention_norm", lambda norm: ReversedNorm(norm.weight, norm.eps), "layers.1.attention_norm"),
    ],
)
def test_a_planted_order_is_found_by_name(
    model: LeanModel, part: str, make: Callable[[Any], Any], operation: str
) -> None:
    found = firsts(of_layer(model, 1, **{part: make}))
    assert found[1] is None and [found[count] for count in COUNTS if count >= MANY] == [operation] * 2


@needs_packed
def test_a_planted_order_of_attention_is_found_by_name(model: LeanModel, monkeypatch: pytest.MonkeyPatch) -> None:
    attend = RowsLayer.attend

    def reversed_in_one(self: RowsLayer, query: Tensor, *more: Any) -> Tensor:
        out = attend(self, query, *more)
        return out if self._index != 2 or len(query) < MANY else out * (1 + 2.0**-22)

    monkeypatch.setattr(RowsLayer, "attend", reversed_in_one)
    assert firsts(model) == {1: None, 2: None, 3: "layers.2.attention", 5: "layers.2.attention"}


def test_forwards_of_one_width_are_compared_by_their_logits(model: LeanModel) -> None:
    plain = of_layer(model, 1, down=lambda product: product.with_kernel(Reversed))
    for runner, alike in ((ModelRunner.with_one_width(plain), True), (ModelRunner.with_graphs(plain), False)):
        results = list(compare_counts(plain, TEXT, COUNTS, 20, runner))
        assert all(result.first is None for result in results if alike or result.rows == 1)
        assert alike or all(result.first is not None for result in results if result.rows >= MANY)
        assert {name for result in results for name in result.ulp} == {"logits"}


def test_how_many_rows_and_how_far_is_told(model: LeanModel) -> None:
    broken = model.with_format(batch_wide(batch_invariant=True))
    (result,) = compare_counts(broken, TEXT, [5], 20)
    assert result.first is not None and result.first.operation == "layers.0.qkv"
    assert 1 <= result.first.rows <= 5 and result.first.ulp == result.ulp["layers.0.qkv"] > 1 and result.logit > 0


def test_modules_of_transformers_have_their_names() -> None:
    """In bfloat16 a tiny GPT-2 hides the order of its sums; what is planted does not."""
    modules = TransformersModel(random_model(gpt2()).to(torch.bfloat16))
    if any(firsts(modules).values()):
        pytest.skip("its sums show here")
    handle = modules.hf.transformer.h[1].mlp.c_fc.register_forward_hook(
        lambda module, inputs, out: out if out.shape[1] < MANY else out * 1.01
    )
    assert set(list(firsts(modules).values())[2:]) == {"transformer.h.1.mlp.c_fc"}
    handle.remove()
    attend = modules.hf.transformer.h[1].attn.c_proj.register_forward_pre_hook(
        lambda module, inputs: inputs if inputs[0].shape[1] < MANY else (inputs[0] * 1.01,)
    )
    assert set(list(firsts(modules).values())[2:]) == {"before transformer.h.1.attn.c_proj"}
    attend.remove()
    assert not any(module._forward_hooks for module in modules.hf.modules())


def test_units_in_the_last_place() -> None:
    one = torch.ones(1)
    assert ulps(one, one + 2**-23).tolist() == [1] and ulps(one, one - 2**-24).tolist() == [1]
    assert ulps(one, torch.tensor([2.0])).tolist() == [2**22] and ulps(one, one).tolist() == [0]
    assert ulps(torch.tensor([0.0]), torch.tensor([-0.0])).tolist() == [0]
    half = torch.tensor([1.0], dtype=torch.bfloat16)
    assert ulps(half, half + 2**-7).tolist() == [1]
    nan = torch.tensor([float("nan")])
    assert ulps(nan, nan).tolist() == [0] and ulps(nan, one).item() > 2**22


def test_what_cannot_be_compared_is_refused(model: LeanModel) -> None:
    with refused(model.window, 5):
        list(compare_counts(model, TEXT, [5], model.window))
    toy: Any = ToyModel(torch.ones(4, 8))
    with refused("ToyModel"):
        list(compare_counts(toy, [1], [2], 1))

"""Drafting with rounded weights: close to the full ones, row by row, and without a trace in the output."""

import pytest
import torch

from ablation.results.make_record import resolved_settings
from sampling.forward.kernels import int8
from sampling.forward.kernels.int8 import Int8Linear, in_int8
from sampling.forward.kernels.linear import DenseLinear, PackedLinear, ReducedOutput, WideningLinear
from sampling.forward.kernels.probe import make_linear
from sampling.forward.models import lean
from sampling.forward.runner import ModelRunner
from sampling.methods.settings import Settings
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from sampling.pair.pair_messages import NO_INT8_DRAFTER
from tests.refusals import refused
from tests.tiny_models import VOCAB, ids, make
from utils.events import Round

pytestmark = pytest.mark.skipif(not int8.runs(), reason="this CPU or torch has no int8 products")


def layer(biased: bool, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor | None]:
    torch.manual_seed(0)
    return torch.randn(96, 64).to(dtype), torch.randn(96).to(dtype) if biased else None


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_are_right_to_two_percent(dtype: torch.dtype, biased: bool) -> None:
    weight, bias = layer(biased, dtype)
    x = torch.randn(7, 64).to(dtype) * torch.logspace(-3, 3, 7).to(dtype).unsqueeze(1)
    mine, theirs = Int8Linear(weight, bias)(x), DenseLinear(weight, bias)(x)
    assert mine.dtype == dtype
    for row, expected in zip(mine.float(), theirs.float(), strict=True):
        assert (row - expected).norm() < 0.02 * expected.norm()


def test_a_row_depends_on_no_other() -> None:
    x = torch.randn(5, 64)
    x[1] *= 1000
    rough = Int8Linear(*layer(biased=True))
    assert all(torch.equal(rough(x)[place : place + 1], rough(x[place : place + 1])) for place in range(5))
    assert torch.equal(rough(torch.zeros(1, 64)), rough.added.unsqueeze(0))  # type: ignore[union-attr]


@pytest.mark.parametrize("first", [DenseLinear, WideningLinear, make_linear, Int8Linear])
def test_every_kernel_can_be_changed_for_another(first: type) -> None:
    weight, bias = layer(biased=True)
    x = torch.randn(2, 64)
    expected = DenseLinear(weight, bias)(x)
    torch.testing.assert_close(first(weight, bias).with_kernel(DenseLinear)(x), expected, rtol=0.02, atol=0.3)
    reduced = ReducedOutput(first(weight, bias), torch.arange(0, 192, 2), 192).with_kernel(Int8Linear)(x)
    torch.testing.assert_close(reduced[:, ::2], expected, rtol=0.05, atol=0.5)
    assert bool((reduced[:, 1::2] == torch.finfo(torch.float32).min).all())


def test_a_packed_weight_comes_back_as_it_was() -> None:
    weight, bias = layer(biased=True)
    back = PackedLinear(weight, bias).with_kernel(DenseLinear)
    assert isinstance(back, DenseLinear)
    assert torch.equal(back.weight, weight)


def pair_of(drafter: object, trained: bool = False) -> Pair:
    target = lean.from_transformers(make("llama"))
    info = ModelInfo("tiny", "cpu", "float32", trained=trained)
    return Pair(ModelRunner(target), ModelRunner(drafter or target), None, frozenset(), info, info)  # type: ignore[arg-type]


def output(pair: Pair, weights: str) -> tuple[list[int], int]:
    """The answer's ids, and how many drafts were accepted."""
    settings = Settings()
    settings.assign_all([("draft_weights", weights), ("length", "40"), ("processor", "greedy")])
    rounds = [event for event in PairEngine(pair).stream("speculative", settings, ids(5)) if isinstance(event, Round)]
    return [token for round in rounds for token in round.emitted], sum(round.accepted for round in rounds)


def test_the_targets_own_weights_in_int8_draft_for_it_without_a_trace_in_the_output() -> None:
    pair = pair_of(None)
    tokens = ids(9)
    assert pair.drafter is not None
    drafter = pair.drafter.on(pair.drafter.model.int8)  # type: ignore[attr-defined]
    difference = drafter.forward(tokens).logits - pair.drafter.forward(tokens).logits
    assert 0 < difference.abs().max() < 1
    rough, full = output(pair_of(None), "int8"), output(pair_of(None), "full")
    assert rough[0] == full[0]
    assert len(full[0]) == 40
    assert 16 < rough[1] <= full[1]


def test_auto_rounds_what_was_trained_to_draft_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    like = torch.zeros(1)
    monkeypatch.setattr(int8, "pays", lambda dtype: True)
    assert in_int8("auto", like, trained=True)
    assert not in_int8("auto", like, trained=False)
    assert not in_int8("full", like, trained=True)
    assert in_int8("int8", like, trained=False)
    monkeypatch.setattr(int8, "pays", lambda dtype: False)
    assert not in_int8("auto", like, trained=True)


def test_int8_is_refused_where_it_cannot_be_had() -> None:
    with refused("meta", "auto", "full"):
        in_int8("int8", torch.zeros(1, device="meta"), trained=True)
    assert not in_int8("auto", torch.zeros(1, device="meta"), trained=True)
    from sampling.forward.models.adapter import TransformersModel

    other = TransformersModel(make("gpt2"))
    assert other.vocab_size == VOCAB
    with refused(NO_INT8_DRAFTER):
        output(pair_of(other), "int8")


def test_records_say_what_auto_came_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "pays", lambda dtype: True)
    resolved = [
        resolved_settings("speculative", Settings(), PairEngine(pair_of(None, trained)))["draft_weights"]
        for trained in (True, False)
    ]
    assert resolved == ["int8", "full"]
    values = {**Settings(), "draft_weights": "int8"}
    assert resolved_settings("egag", values, PairEngine(pair_of(None)))["draft_weights"] == "int8"
    assert resolved_settings("eagle", values, PairEngine(pair_of(None)))["draft_weights"] == "int8", (
        "no such head: left as given"
    )

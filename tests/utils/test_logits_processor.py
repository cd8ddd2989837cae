"""Processors: against transformers' own warpers, and by hand at the edges."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from tests.refusals import refused
from utils.logits_processor import (
    GreedyProcessor,
    LogitsProcessor,
    MultinomialProcessor,
    NucleusProcessor,
    TopKNucleusProcessor,
    TopKProcessor,
    inverted,
)

EVERY = [
    GreedyProcessor(),
    MultinomialProcessor(0.7),
    TopKProcessor(0.7, 5),
    NucleusProcessor(0.8, 0.9),
    TopKNucleusProcessor(1.2, 20, 0.8),
]


@pytest.mark.parametrize("processor", EVERY, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_rows_are_float32_distributions_and_the_logits_stay(processor: LogitsProcessor, dtype: torch.dtype) -> None:
    logits = (4 * torch.randn(3, 600, generator=torch.Generator().manual_seed(0))).to(dtype)
    before = logits.clone()
    probs = processor(logits)
    assert probs.dtype == torch.float32
    assert torch.allclose(probs.sum(-1), torch.ones(3), atol=1e-5)
    assert (probs >= 0).all()
    assert torch.equal(logits, before)


@pytest.mark.parametrize("processor", EVERY, ids=lambda p: type(p).__name__)
def test_a_row_depends_on_that_row_alone(processor: LogitsProcessor) -> None:
    logits = (3 * torch.randn(4, 600, generator=torch.Generator().manual_seed(1))).bfloat16()
    whole = processor(logits)
    for row in range(4):
        assert torch.equal(whole[row], processor(logits[row : row + 1])[0])


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.floats(0.2, 2.0),
    st.integers(1, 700),
    st.floats(0.05, 0.999) | st.just(1.0),
    st.floats(0.1, 6.0),
)
def test_temperature_top_k_top_p_as_in_transformers(seed: int, t: float, k: int, p: float, spread: float) -> None:
    logits = spread * torch.randn(2, 700, generator=torch.Generator().manual_seed(seed))
    warped = TopPLogitsWarper(p)(None, TopKLogitsWarper(k)(None, TemperatureLogitsWarper(t)(None, logits)))
    ours = TopKNucleusProcessor(t, k, p)(logits)
    theirs = torch.softmax(warped, -1)
    differing = ((ours > 0) != (theirs > 0)).sum(-1)
    assert (differing <= 1).all(), "at most the token at the edge of the mass, to rounding"
    same = (differing == 0).nonzero().flatten()
    assert torch.allclose(ours[same], theirs[same], atol=1e-5)


def test_greedy_takes_the_lowest_id_on_a_tie() -> None:
    assert GreedyProcessor(0.3)(torch.tensor([[1.0, 5.0, 5.0, 2.0]])).tolist() == [[0.0, 1.0, 0.0, 0.0]]


def test_a_nucleus_wider_than_the_first_look_is_found_by_sorting() -> None:
    logits = torch.zeros(1, 1000)
    logits[0, :10] = 1.0
    probs = NucleusProcessor(1.0, 0.99)(logits)
    assert (probs > 0).sum() == 1000, "all the rest ties at the edge and stays in"
    assert (NucleusProcessor(1.0, 0.02)(logits) > 0).sum() == 10


def test_a_flat_row_beside_peaked_ones_is_sorted_alone() -> None:
    logits = 9.0 * torch.randn(3, 1000, generator=torch.Generator().manual_seed(2))
    logits[1] /= 50.0
    processor = NucleusProcessor(1.0, 0.9)
    whole = processor(logits)
    assert (whole > 0).sum(-1)[1] > 256 > (whole > 0).sum(-1)[0]
    for row in range(3):
        assert torch.equal(whole[row], processor(logits[row : row + 1])[0])
    likely = torch.softmax(logits[1], -1).sort(descending=True).values.cumsum(-1)
    assert (whole[1] > 0).sum() == (likely < 0.9).sum() + 1


def test_top_k_larger_than_the_vocabulary_is_the_whole_distribution() -> None:
    logits = torch.randn(1, 8)
    assert torch.allclose(TopKProcessor(1.0, 100)(logits), logits.softmax(-1))


def test_samples_follow_the_distribution_and_the_generator() -> None:
    probs = torch.tensor([[0.2, 0.8], [1.0, 0.0]]).repeat(2000, 1)
    draws = MultinomialProcessor(1.0).sample(probs, torch.Generator().manual_seed(3))
    assert torch.equal(draws, MultinomialProcessor(1.0).sample(probs, torch.Generator().manual_seed(3)))
    assert draws[1::2].sum() == 0
    assert abs(draws[::2].float().mean().item() - 0.8) < 0.04


@pytest.mark.parametrize(
    ("make", "quoted"),
    [
        (lambda: TopKProcessor(0, 5), ("temperature", "'0'", "1e-10", "1e+10")),
        (lambda: MultinomialProcessor(float("nan")), ("temperature", "'nan'")),
        (lambda: GreedyProcessor("a"), ("temperature", "'a'")),  # type: ignore[arg-type]
        (lambda: TopKProcessor(1.0, 2.5), ("top_k", "'2.5'", 1)),  # type: ignore[arg-type]
        (lambda: TopKNucleusProcessor(1.0, 0, 0.5), ("top_k", "'0'", 1)),
        (lambda: NucleusProcessor(1.0, 1.5), ("top_p", "'1.5'", "0 < NUMBER <= 1")),
    ],
)
def test_wrong_arguments_are_refused_at_once(make: Callable[[], LogitsProcessor], quoted: tuple[object, ...]) -> None:
    with refused(*quoted):
        make()


@pytest.mark.parametrize("name", ["_process", "sample"])
def test_a_class_that_overrides_what_the_loop_never_calls_is_refused(name: str) -> None:
    with refused(f"Mine.{name}", "__call__", error=TypeError):
        type("Mine", (MultinomialProcessor,), {name: lambda self, given: given})


@pytest.mark.parametrize("size", [3, 4096, 5000, 49152])
def test_a_token_is_the_one_at_which_the_cumulative_sum_passes_the_coin(size: int) -> None:
    """Also where whole blocks have no mass, and where the coin is as large as it can be."""
    rng = torch.Generator().manual_seed(size)
    probs = torch.rand(64, size, generator=rng, dtype=torch.float64) ** 40
    probs[::2, size // 3 :] = 0.0
    probs[1::4, : size // 2] = 0.0
    coin = torch.rand(64, 1, generator=rng, dtype=torch.float64)
    coin[:8] = torch.tensor([0.0, 1.0]).repeat(4).view(8, 1)
    drawn = inverted(probs, coin)
    mass = probs.cumsum(-1)
    wanted = (coin * mass[:, -1:]).squeeze(1)
    rows = torch.arange(64)
    assert (probs[rows, drawn] > 0.0).all()
    assert (mass[rows, drawn] >= wanted * (1 - 1e-12)).all()
    assert ((mass[rows, drawn] - probs[rows, drawn]) <= wanted * (1 + 1e-12)).all()

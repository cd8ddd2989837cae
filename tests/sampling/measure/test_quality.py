"""What rounding costs: sums by hand, intervals over prompts, and bytes that nobody counts twice."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from sampling.forward.kernels import int4, int8
from sampling.forward.kernels.formats import FORMATS, Format
from sampling.forward.kernels.linear import DenseLinear
from sampling.forward.models import lean
from sampling.forward.runner import ModelRunner, Runner
from sampling.forward.traffic import weight_bytes
from sampling.measure.quality import NOTHING, AnswerSums, summed_up
from sampling.measure.rounded import compare, greedy_run, quality
from sampling.pair.pair_engine import PairEngine
from tests.refusals import refused
from tests.tiny import TOKENS, gpt2, llama, random_model, tiny_pair
from tests.tiny_models import ids

SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
PLAIN = Format(DenseLinear, DenseLinear)
has_products = pytest.mark.skipif(not (int8.runs() and int4.runs()), reason="this CPU or torch lacks the products")


def model(format: Format = PLAIN, tied: bool = False) -> lean.LeanModel:
    return lean.from_transformers(random_model(llama(tie_word_embeddings=tied, **SIZES), 0), format=format)


def token_by_token(runner: Runner, prompt: list[int], answer: list[int]) -> Tensor:
    """ln p at each position of the answer, every text from its beginning and without a cache."""
    rows = []
    for place in range(len(answer)):
        runner.crop(0)
        rows.append(runner.forward([*prompt, *answer[:place]]).logits[-1].double().log_softmax(-1))
    return torch.stack(rows)


@pytest.mark.parametrize("length", [1, 63, 64, 65, 100])
def test_sums_are_of_the_answers_positions_and_of_no_other(length: int) -> None:
    """Lengths on both sides of the number of rows that are asked for at once."""
    full, other = ModelRunner(model()), ModelRunner(lean.from_transformers(random_model(llama(**SIZES), 0, noise=0.02)))
    prompt, answer = ids(9), ids(length, 5)
    found = compare(full, other, prompt, answer)
    p, q = (token_by_token(runner, prompt, answer) for runner in (full, other))
    said = torch.tensor(answer).unsqueeze(1)
    assert found.tokens == length
    assert found.same == int((p.argmax(-1) == q.argmax(-1)).sum())
    assert found.kl == pytest.approx(float((p.exp() * (p - q)).sum()), rel=1e-3)
    assert found.nll == pytest.approx(-float(q.gather(1, said).sum()), rel=1e-4)
    assert found.full_nll == pytest.approx(-float(p.gather(1, said).sum()), rel=1e-4)
    assert found.nll != pytest.approx(found.full_nll, rel=1e-4)


def test_an_answer_without_a_token_adds_nothing() -> None:
    runner = ModelRunner(model())
    assert compare(runner, runner.another(), ids(9), []) == NOTHING


def test_a_model_is_equal_to_itself() -> None:
    full = ModelRunner(model())
    found = quality(full, full.another(), [(ids(9, seed), ids(20, seed + 50)) for seed in range(3)])
    assert (found.prompts, found.tokens, found.same, found.kl) == (3, 60, 1.0, 0.0)
    assert found.perplexity == found.full_perplexity > 1
    assert found.weight_bytes == found.full_weight_bytes


def test_rates_are_of_all_tokens_and_intervals_of_prompts() -> None:
    sums = [AnswerSums(10, 9, 1.0, 20.0, 10.0), AnswerSums(30, 30, 0.2, 40.0, 30.0), NOTHING]
    found = summed_up(sums * 10, 25, 100)
    assert (found.prompts, found.tokens, found.weight_bytes, found.full_weight_bytes) == (20, 400, 25, 100)
    assert (found.same, found.kl) == pytest.approx((39 / 40, 1.2 / 40))
    assert (found.perplexity, found.full_perplexity) == pytest.approx((math.exp(60 / 40), math.exp(40 / 40)))
    for name, least, most in (
        ("same", 0.9, 1.0),
        ("kl", 0.2 / 30, 0.1),
        ("perplexity", math.exp(40 / 30), math.exp(2)),
    ):
        low, middle, high = (getattr(found, f"{name}{end}") for end in ("_low", "", "_high"))
        assert least < low < middle < high < most


def test_four_prompts_have_no_interval_and_none_no_quality() -> None:
    found = summed_up([AnswerSums(10, 9, 1.0, 20.0, 10.0)] * 4, 1, 1)
    assert (found.same_low, found.kl_high, found.perplexity_low, found.full_perplexity_high) == (None,) * 4
    with refused("answer", "token", error=ValueError):
        summed_up([NOTHING], 1, 1)


def test_the_answer_of_greedy_decoding_is_the_full_models_own() -> None:
    """Each of its tokens is the most likely one behind those before it."""
    pair = tiny_pair()
    run = greedy_run(PairEngine(pair), ids(9), 12)
    assert run.new_tokens in range(1, 13) and run.tokens_per_s
    assert token_by_token(pair.target.another(), ids(9), run.output_ids).argmax(-1).tolist() == run.output_ids


@has_products
def test_a_format_of_fewer_bits_is_further_from_the_full_model() -> None:
    full = ModelRunner(model())
    answers = [(ids(9, seed), ids(40, seed + 50)) for seed in range(4)]
    found = {name: quality(full, ModelRunner(model(FORMATS[name])), answers) for name in ("int8", "int4")}
    assert 0 < found["int8"].kl < found["int4"].kl
    assert found["int4"].same <= found["int8"].same <= 1
    assert found["int4"].weight_bytes < found["int8"].weight_bytes < found["int8"].full_weight_bytes


def dense_bytes(hidden: int, inner: int, kv: int) -> int:
    return hidden * (hidden + 2 * kv) + hidden * hidden + hidden * 2 * inner + inner * hidden


def test_what_is_tied_counts_once() -> None:
    blocks = 2 * dense_bytes(64, 96, 32)
    assert weight_bytes(model()) == 4 * (blocks + 2 * TOKENS * 64)
    assert weight_bytes(model(tied=True)) == 4 * (blocks + TOKENS * 64)


@has_products
def test_rounded_products_count_their_bits_and_scales_beside_the_full_embedding() -> None:
    weights, embedding = 2 * dense_bytes(64, 96, 32), 4 * TOKENS * 64
    outputs = 2 * (64 + 2 * 32 + 64 + 2 * 96 + 64)
    head = TOKENS * 64 + 4 * TOKENS
    assert weight_bytes(model(FORMATS["int8"], tied=True)) == embedding + head + weights + 4 * outputs
    assert weight_bytes(model(FORMATS["int4"], tied=True)) == embedding + head + weights // 2 + 4 * weights // 32


def test_a_bias_counts_and_a_packed_weight_too() -> None:
    full = model()
    biased = replace(full, head=DenseLinear(torch.zeros(TOKENS, 64), torch.zeros(TOKENS)))
    assert weight_bytes(biased) - weight_bytes(full) == 4 * TOKENS
    assert weight_bytes(lean.from_transformers(random_model(llama(**SIZES), 0))) == weight_bytes(full)


def test_the_bytes_of_other_models_are_not_guessed() -> None:
    from sampling.loading.adapt import adapted

    with refused("lean forward", "docs/models.md"):
        weight_bytes(adapted("tiny", random_model(gpt2())))

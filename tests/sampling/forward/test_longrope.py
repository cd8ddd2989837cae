"""LongRoPE: a text that grows beyond the border says what it says without a cache, and what `generate` says."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PhimoeConfig,
    PhimoeForCausalLM,
    PreTrainedModel,
)

from egag.length_rule import FixedGamma
from ngram_assisted.token_recycling import TokenRecyclingDrafter
from sampling import autoregressive_generate, beam_search_generate, decode, runner_for, speculative_generate
from sampling.drafters.model import ModelDrafter
from sampling.forward.models.longrope import LongRopeModel
from sampling.forward.runner import ModelRunner, prefill
from sampling.loading.adapt import limits
from sampling.verify.rejection import RejectionVerifier
from tests.tiny_models import SIZES, ids, truth
from utils.events import Finished, Round
from utils.logits_processor import GreedyProcessor

CLOSE = {"rtol": 1e-3, "atol": 1e-4}  # rotary embeddings are computed in float32
BORDER, LENGTH = 24, 40
HALF = SIZES["hidden_size"] // SIZES["num_attention_heads"] // 2
ROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * HALF, "factor": 4.0,
    "long_factor": [2.0 + i for i in range(HALF)], "original_max_position_embeddings": BORDER,
}  # fmt: skip
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
MAKERS: dict[str, Callable[[], PreTrainedModel]] = {
    "phi3": lambda: Phi3ForCausalLM(
        Phi3Config(**SIZES, **IDS, rope_parameters=dict(ROPE), original_max_position_embeddings=BORDER)
    ),
    "phimoe": lambda: PhimoeForCausalLM(
        PhimoeConfig(
            **SIZES,
            **IDS,
            num_local_experts=3,
            sliding_window=None,
            original_max_position_embeddings=BORDER,
            rope_parameters={**ROPE, "short_mscale": 1.0, "long_mscale": 1.4},
        )
    ),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, **IDS, rope_parameters=dict(ROPE))),
}


def made(name: str, seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    return MAKERS[name]().eval()


def theirs(model: PreTrainedModel, prompt: list[int], **options: Any) -> list[int]:
    ids = torch.tensor([prompt])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=LENGTH, do_sample=False, **options)
    return list(out[0, len(prompt) :].tolist())


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what is read anew at the border goes through in several."""
    monkeypatch.setattr("sampling.forward.models.longrope.PREFILL_CHUNK", 10)
    monkeypatch.setattr("sampling.forward.runner.PREFILL_CHUNK", 9)


@pytest.mark.parametrize(
    ("name", "count"),
    [*(("phi3", count) for count in (8, BORDER - 1, BORDER, BORDER + 1, 40)), ("phimoe", 18), ("llama", 18)],
)
def test_every_method_says_what_generate_says_across_the_border(name: str, count: int) -> None:
    model, drafter, prompt = made(name), made(name, seed=1), ids(count)
    expected = theirs(model, prompt, use_cache=False)
    assert len(set(expected)) > 4
    if name != "llama":  # which keeps keys of both kinds in one cache
        assert theirs(model, prompt) == expected
    for use_cache in (True, False):
        assert autoregressive_generate(prompt, model, LENGTH, use_cache=use_cache) == expected
    for small in (drafter, model):
        assert speculative_generate(prompt, small, model, gamma=6, max_gen_len=LENGTH)[0] == expected
    target = runner_for(model)
    recycling = TokenRecyclingDrafter()
    for _ in range(2):
        assert tree_ids(target, recycling, prompt) == expected


def tree_ids(target: Any, drafter: TokenRecyclingDrafter, prompt: list[int]) -> list[int]:
    events: Iterator[Any] = decode(
        target, drafter, FixedGamma(12), RejectionVerifier(), GreedyProcessor(), prompt,
        max_new_tokens=LENGTH, seed=0,
    )  # fmt: skip
    told = list(events)
    assert isinstance(told[-1], Finished)
    rounds = [event for event in told if isinstance(event, Round)]
    assert any(round.parents for round in rounds)
    return [token for round in rounds for token in round.emitted]


def test_beams_cross_the_border() -> None:
    for prompt in (ids(16), ids(BORDER)):
        found = [
            beam_search_generate(prompt, made("phi3"), 30, num_beams=3, top_k=3, alpha=0.0, use_cache=use_cache)
            for use_cache in (True, False)
        ]
        assert found[0] == found[1]


def test_rows_rolled_back_across_the_border_and_hidden_states() -> None:
    model, text = made("phi3"), ids(40)
    expected = [truth(model, text[: count + 1])[-1] for count in range(len(text))]
    run = runner_for(model)
    assert isinstance(run, ModelRunner) and isinstance(run.model, LongRopeModel)
    prefill(run, text[: BORDER - 3])
    for start in (BORDER - 3, BORDER - 2, BORDER, BORDER + 5, BORDER - 1, 3):
        if run.length < start:
            prefill(run, text[:start])
        run.crop(start)
        output = run.forward(text[start : start + 8], hidden=(1, 3))
        for row in range(8):
            torch.testing.assert_close(output.logits[row], expected[start + row], **CLOSE)
        for layer in (1, 3):
            prefill(again := run.another(), text[: BORDER - 3])
            torch.testing.assert_close(output.hidden[layer][-1], hidden_alone(again, text[: start + 8], layer), **CLOSE)
        run.crop(start)


def hidden_alone(run: Any, text: list[int], layer: int) -> torch.Tensor:
    prefill(run, text[:-1])
    state: torch.Tensor = run.forward(text[-1:], hidden=(layer,)).hidden[layer][0]
    return state


def test_an_interrupted_rereading_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, text = made("phi3"), ids(BORDER + 6)
    expected = truth(model, text)[-1]
    run = runner_for(model)
    prefill(run, text[:BORDER])
    forward, calls = model.forward, []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return forward(*args, **kwargs)

    monkeypatch.setattr(model, "forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.forward(text[BORDER:], rows=1)
    assert run.length == BORDER
    torch.testing.assert_close(run.forward(text[BORDER:], rows=1).logits[0], expected, **CLOSE)


def test_a_drafter_may_have_it_too() -> None:
    target, drafter = made("llama"), made("phi3", seed=1)
    small = ModelDrafter(runner_for(drafter))  # type: ignore[arg-type]
    events = decode(
        runner_for(target), small, FixedGamma(4), RejectionVerifier(), GreedyProcessor(), ids(18),
        max_new_tokens=LENGTH, seed=0,
    )  # fmt: skip
    said = [token for event in events if isinstance(event, Round) for token in event.emitted]
    assert said == theirs(made("llama"), ids(18), use_cache=False)


@pytest.mark.parametrize("kind", ["dynamic", "linear", "yarn"])
def test_other_rotary_embeddings_say_what_generate_says_up_to_the_window(kind: str) -> None:
    rope = {"rope_type": kind, "rope_theta": 10000.0, "factor": 2.0}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**{**SIZES, **IDS, "max_position_embeddings": 48}, rope_parameters=rope))
    prompt = ids(20)
    expected = theirs(model.eval(), prompt)[: 48 - len(prompt)]
    assert autoregressive_generate(prompt, model, LENGTH) == expected
    assert speculative_generate(prompt, model, model, gamma=5, max_gen_len=LENGTH)[0] == expected
    said = [*limits(runner_for(model).model)]
    assert [text[:24] for text in said] == ["texts end at 48 tokens, "] * (kind == "dynamic")

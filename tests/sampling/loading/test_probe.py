"""What a few forwards find out about a model before it is trusted, and what a user is told."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertLMHeadModel,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    PreTrainedModel,
    RobertaConfig,
    RobertaForCausalLM,
    RoFormerConfig,
    RoFormerForCausalLM,
)

from egag.length_rule import FixedGamma
from ngram_assisted.token_recycling import TokenRecyclingDrafter
from sampling import autoregressive_generate, beam_search_generate, decode, runner_for, speculative_generate
from sampling.forward.models.adapter import TransformersModel
from sampling.loading.adapt import limits
from sampling.loading.refusals.checks import ROLLS_BACK
from sampling.verify.rejection import RejectionVerifier
from tests.refusals import refused
from tests.tiny_models import MAKERS as TINY
from tests.tiny_models import VOCAB, ids, make
from utils.logits_processor import GreedyProcessor

SIZES = {
    "vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 96, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": None,
}  # fmt: skip
GEMMA = {
    **SIZES,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "layer_types": ["full_attention"] * 2,
    "tie_word_embeddings": False,
}


def neo(window: int, *kinds: str) -> PreTrainedModel:
    return GPTNeoForCausalLM(
        GPTNeoConfig(
            vocab_size=VOCAB,
            hidden_size=48,
            num_layers=2,
            attention_types=[[list(kinds), 1]],
            num_heads=4,
            max_position_embeddings=400,
            window_size=window,
            bos_token_id=None,
            eos_token_id=None,
        )
    )


MAKERS: dict[str, Callable[[], PreTrainedModel]] = {
    "bert": lambda: BertLMHeadModel(BertConfig(**SIZES)),
    "bert-decoder": lambda: BertLMHeadModel(BertConfig(**SIZES, is_decoder=True)),
    "roberta": lambda: RobertaForCausalLM(RobertaConfig(**SIZES)),
    "roberta-decoder": lambda: RobertaForCausalLM(RobertaConfig(**SIZES, is_decoder=True)),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**GEMMA)),
    "gemma3-both-ways": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**GEMMA, use_bidirectional_attention=True)),
    "neo": lambda: neo(256, "global", "local"),
    "neo-short": lambda: neo(12, "local", "global"),
    "neo-global": lambda: neo(256, "global", "global"),
    "roformer": lambda: RoFormerForCausalLM(RoFormerConfig(**SIZES, is_decoder=True)),
}


def made(name: str, seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    model = MAKERS[name]().eval()
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.4)
    return model


def theirs(model: PreTrainedModel, prompt: list[int], count: int) -> list[int]:
    given = torch.tensor([prompt])
    out = model.generate(
        given, attention_mask=torch.ones_like(given), max_new_tokens=count, do_sample=False, pad_token_id=0
    )
    return list(out[0, len(prompt) :].tolist())


@pytest.mark.parametrize("name", ["bert", "roberta", "gemma3-both-ways"])
def test_a_model_that_reads_in_both_directions_is_refused(name: str) -> None:
    with refused(type(made(name)).__name__, "causal", "is_decoder"):
        runner_for(made(name))


@pytest.mark.parametrize("name", ["bert-decoder", "roberta-decoder", "gemma3", "neo-short", "neo-global", "roformer"])
def test_a_causal_model_of_such_a_family_says_what_generate_says(name: str) -> None:
    prompt = ids(20)
    expected = theirs(made(name), prompt, 24)
    assert len(set(expected)) > 2
    assert autoregressive_generate(prompt, made(name), 24) == expected
    assert speculative_generate(prompt, made(name, seed=1), made(name), gamma=4, max_gen_len=24)[0] == expected


@pytest.mark.parametrize(("name", "trees"), [("neo", False), ("neo-short", False), ("neo-global", True)])
def test_attention_that_counts_rows_runs_chains_only(name: str, trees: bool) -> None:
    run = runner_for(made(name))
    assert isinstance(run.model, TransformersModel) and run.model.trees is trees
    (*said,) = limits(run.model)
    assert bool(said) is not trees
    run.forward(ids(4))
    run.forward(ids(3), parents=(-1, 0))
    run.crop(4)
    if trees:
        run.forward(ids(3), parents=(-1, -1))
        return
    with refused("GPTNeoForCausalLM", "chains"):
        run.forward(ids(3), parents=(-1, -1))
    assert run.length == 4, "nothing was fed"


def test_methods_with_trees_are_refused_on_chains_only() -> None:
    with refused("GPTNeoForCausalLM", "chains"):
        for _ in decode(
            runner_for(made("neo-short")), TokenRecyclingDrafter(), FixedGamma(8), RejectionVerifier(),
            GreedyProcessor(), [5, 9, 5, 7, 5], max_new_tokens=24, seed=0,
        ):  # fmt: skip
            pass
    with refused("GPTNeoForCausalLM", "chains"):
        beam_search_generate(ids(9), made("neo-short"), 9)


@pytest.mark.parametrize("name", TINY)
def test_a_right_model_passes_with_few_forwards(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, fed = make(name), []
    forward = model.forward

    def counted(input_ids: torch.Tensor, position_ids: torch.Tensor | None = None, **kwargs: Any) -> Any:
        fed.append(input_ids.shape[1])
        return forward(input_ids=input_ids, position_ids=position_ids, **kwargs)

    monkeypatch.setattr(model, "forward", counted)
    runner_for(model)
    assert len(fed) <= 8 and sum(fed) <= 40


def test_a_model_may_be_called_by_itself_afterwards() -> None:
    model, text = make("llama"), torch.tensor([ids(12)])
    expected = model(text).logits
    runner_for(model)
    torch.testing.assert_close(model(text).logits, expected, rtol=1e-4, atol=1e-4)


def test_a_model_that_takes_no_cache_of_ours_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("gpt2")
    forward = model.forward

    def without(input_ids: torch.Tensor, past_key_values: Any = None, **kwargs: Any) -> Any:
        return forward(input_ids=input_ids)

    monkeypatch.setattr(model, "forward", without)
    with refused("GPT2LMHeadModel", ROLLS_BACK):
        runner_for(model)
    for weight in model.parameters():
        weight.data.fill_(torch.nan)
    with refused("GPT2LMHeadModel", "float32", "NaN", "--dtype"):
        runner_for(model)
    with refused(3, "model"):
        runner_for(3)  # type: ignore[arg-type]

"""The plain functions on T5, BART and Marian models: what comes out, what is refused, what is left as it was."""

import inspect
from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel, T5Model

from ngram_assisted import NGramStorage, ngram_assisted_speculative_generate
from sampling import (
    autoregressive_generate,
    autoregressive_generate_encoder_decoder,
    beam_search_generate,
    speculative_generate,
    speculative_generate_encoder_decoder,
)
from sampling.forward.runner import ModelRunner
from sampling.loading.heads import MODELS
from sampling.loading.refusals.checks import ROLLS_BACK
from sampling.loading.refusals.reasons import known_reason
from tests.refusals import refused
from tests.sampling.api.test_generate import made
from tests.tiny_seq2seq import CONFIGS, adapted, make, t5
from utils.logits_processor import MultinomialProcessor

VOCAB, LENGTH = 53, 20
# No model answers this one with the same few tokens over and over.
SOURCE = [41, 35, 3, 44, 6, 9, 38, 15, 40, 44, 12]


def theirs(model: PreTrainedModel, source: list[int], count: int = LENGTH) -> list[int]:
    """Greedy ids of transformers' own generate, without the decoder's start token and one forced at the limit."""
    model.generation_config.forced_eos_token_id = None
    made = model.generate(torch.tensor([source]), max_new_tokens=count, do_sample=False)
    return made[0, 1:].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("use_cache", [True, False])
def test_every_function_says_what_generate_says(name: str, use_cache: bool) -> None:
    target, drafter = make(name, VOCAB), make(name, VOCAB, noise=0.1)
    expected = theirs(target, SOURCE)
    assert len(set(expected)) > 4
    common: dict[str, Any] = {"max_gen_len": LENGTH, "use_cache": use_cache}
    assert autoregressive_generate_encoder_decoder(SOURCE, target, **common) == expected
    for more in ({}, {"use_egag": True, "egag_ema_beta": 0.5}, {"first_target": False}):
        ids, rate = speculative_generate_encoder_decoder(SOURCE, drafter, target, gamma=3, **common, **more)
        assert ids == expected and 0.0 <= rate < 1.0
    ids, _ = ngram_assisted_speculative_generate(SOURCE, NGramStorage(3), target, **common)
    assert ids == expected


def test_the_plain_functions_are_the_same_entry() -> None:
    target, drafter = make("t5", VOCAB), make("t5", VOCAB, noise=0.1)
    assert autoregressive_generate(SOURCE, target) == autoregressive_generate_encoder_decoder(SOURCE, target)
    torch.manual_seed(0)
    options = (None, 3, True, 1, 7, 0.5, MultinomialProcessor(1.1), 30, [2, 4], 0, True, True, False, False)
    drawn = speculative_generate(SOURCE, drafter, target, *options)
    torch.manual_seed(0)
    assert speculative_generate_encoder_decoder(SOURCE, drafter, target, *options) == drawn


@pytest.mark.parametrize(
    ("plain", "named"),
    [
        (autoregressive_generate, autoregressive_generate_encoder_decoder),
        (speculative_generate, speculative_generate_encoder_decoder),
    ],
)
def test_they_take_the_same_arguments(plain: Any, named: Any) -> None:
    assert inspect.signature(plain) == inspect.signature(named)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_that_drafts_for_itself_is_always_right(name: str) -> None:
    target = make(name, VOCAB)
    free = {"eos_tokens_id": ()}
    ids, rate = speculative_generate_encoder_decoder(SOURCE, target, target, gamma=3, max_gen_len=17, **free)
    assert rate == 1.0 and ids == autoregressive_generate_encoder_decoder(SOURCE, target, max_gen_len=17, **free)


@pytest.mark.parametrize("name", CONFIGS)
def test_draws_are_the_same_without_a_cache(name: str) -> None:
    target, drafter = make(name, VOCAB), make(name, VOCAB, noise=0.1)

    def drawn(seed: int, use_cache: bool) -> list[int]:
        torch.manual_seed(seed)
        return speculative_generate_encoder_decoder(
            SOURCE, drafter, target, logits_processor=MultinomialProcessor(1.0), eos_tokens_id=(), use_cache=use_cache
        )[0]

    assert drawn(1, True) == drawn(1, False) != drawn(2, True)


def test_the_models_own_stop_tokens_end_a_text() -> None:
    target = make("bart", VOCAB)
    target.generation_config.eos_token_id = theirs(target, SOURCE)[6]
    expected = theirs(target, SOURCE)
    assert len(expected) < LENGTH
    assert autoregressive_generate_encoder_decoder(SOURCE, target) == expected


def test_a_forced_first_token_is_no_output() -> None:
    target = make("bart", VOCAB)
    target.generation_config.forced_bos_token_id = 9
    expected = theirs(target, SOURCE)
    assert [9, *autoregressive_generate_encoder_decoder(SOURCE, target, max_gen_len=LENGTH - 1)] == expected


def test_the_models_are_given_back_as_they_were() -> None:
    target, drafter = make("t5", VOCAB).train(), make("t5", VOCAB, noise=0.1)
    drafter.set_attn_implementation("eager")
    with refused("prompt", "token"):
        speculative_generate_encoder_decoder([], drafter, target)
    speculative_generate_encoder_decoder(SOURCE, drafter, target, max_gen_len=4)
    assert target.training and target.get_encoder().training and not drafter.training
    assert drafter.config._attn_implementation == "eager" != target.config._attn_implementation


def test_a_runner_of_the_workbench_goes_in_too_and_keeps_its_sequence() -> None:
    model = make("t5", VOCAB)
    runner = ModelRunner(adapted(model))
    runner.read(SOURCE[:3])
    runner.forward([0, 4])
    ids = autoregressive_generate_encoder_decoder(SOURCE, runner, max_gen_len=6)
    assert ids == autoregressive_generate_encoder_decoder(SOURCE, model, max_gen_len=6) and runner.length == 2


def test_decoder_only_models_are_refused_with_the_function_that_is_meant() -> None:
    seq2seq, causal = make("t5", VOCAB), made()
    with refused("LlamaForCausalLM", "decoder-only", "sampling.autoregressive_generate"):
        autoregressive_generate_encoder_decoder(SOURCE, causal)
    for drafter, target in ((causal, causal), (seq2seq, causal), (causal, seq2seq)):
        with refused("LlamaForCausalLM", "decoder-only", "sampling.speculative_generate"):
            speculative_generate_encoder_decoder(SOURCE, drafter, target)


def test_what_is_no_model_is_refused() -> None:
    folder: Any = "models/dates"
    with refused("'models/dates'", "model"):
        autoregressive_generate_encoder_decoder(SOURCE, folder)
    with refused("'models/dates'", "model"):
        speculative_generate_encoder_decoder(SOURCE, folder, make("t5", VOCAB))


def test_models_of_two_kinds_are_refused_with_both_names() -> None:
    with refused("T5ForConditionalGeneration", "encoder-decoder", "LlamaForCausalLM", "decoder-only"):
        speculative_generate(SOURCE, made(), make("t5", VOCAB))


def test_what_cannot_run_is_refused_with_its_name() -> None:
    from transformers import FSMTConfig, FSMTForConditionalGeneration

    with refused("T5Model", "tokens"):
        autoregressive_generate(SOURCE, T5Model(t5(VOCAB)))
    shape = {"encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "encoder_layers": 1, "decoder_layers": 1, "d_model": 16}
    other = FSMTForConditionalGeneration(FSMTConfig(src_vocab_size=VOCAB, tgt_vocab_size=VOCAB, **shape))
    with refused("FSMTForConditionalGeneration", known_reason(other.config), ROLLS_BACK):
        autoregressive_generate_encoder_decoder(SOURCE, other)
    with refused("beam search", "encoder-decoder"):
        beam_search_generate(SOURCE, make("t5", VOCAB))


def test_the_models_that_come_with_the_project_write_dates() -> None:
    target, drafter = (AutoModelForSeq2SeqLM.from_pretrained(MODELS / name) for name in ("dates", "dates-drafter"))
    tokenizer = AutoTokenizer.from_pretrained(MODELS / "dates")
    for text, date in (
        ("27.6.1906", "1906-06-27"),
        ("Sun, 1953/03/08", "1953-03-08"),
        ("tuesday, jun 8th 2004", "2004-06-08"),
        ("the 17th of May, 1987", "1987-05-17"),
    ):
        source = tokenizer.encode(text)
        plain = autoregressive_generate_encoder_decoder(source, target)
        assert plain == theirs(target, source) and tokenizer.decode(plain, skip_special_tokens=True) == date
        ids, rate = speculative_generate_encoder_decoder(source, drafter, target)
        assert ids == plain and rate > 0.5

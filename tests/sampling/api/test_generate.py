"""The plain functions: what goes in, what comes out, and that a user's models stay as they were."""

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from transformers import GPT2LMHeadModel, LlamaForCausalLM, PreTrainedModel

import sampling
from ngram_assisted import NGramStorage, OneLevelNGramStorage, ngram_assisted_speculative_generate
from sampling import autoregressive_generate, beam_search_generate, speculative_generate
from sampling.forward.models import lean
from sampling.forward.runner import ModelRunner
from tests.refusals import refused
from tests.tiny import TOKENS, gpt2, llama, tiny_llama
from tests.tiny_models import make
from utils.errors import UserError
from utils.logits_processor import GreedyProcessor, MultinomialProcessor

PROMPT = [5, 9, 17, 9, 5, 40, 9, 5]


def made(kind: type[PreTrainedModel] = LlamaForCausalLM, seed: int = 0, **changes: Any) -> PreTrainedModel:
    torch.manual_seed(seed)
    config = (gpt2 if kind is GPT2LMHeadModel else llama)(**changes)
    config.eos_token_id = config.bos_token_id = config.pad_token_id = None
    model = kind(config)
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.2 if "embed" in name or "wte" in name else 0.15)
    return model


class Raw(GreedyProcessor):
    """Returns a row, whatever it is given."""

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        return logits[:1]


class Doubled(GreedyProcessor):
    """Returns what sums to 2."""

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        return 2 * super().__call__(logits)


def theirs(model: PreTrainedModel, count: int, **options: Any) -> list[int]:
    ids = torch.tensor([PROMPT])
    made = model.eval().generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, pad_token_id=0, **options
    )
    return list(made[0, len(PROMPT) :].tolist())


@pytest.mark.parametrize("kind", [LlamaForCausalLM, GPT2LMHeadModel])
@pytest.mark.parametrize("use_cache", [True, False])
def test_every_function_says_what_generate_says(kind: type[PreTrainedModel], use_cache: bool) -> None:
    target, drafter = made(kind), made(kind, seed=1)
    expected = theirs(target, 24)
    common: dict[str, Any] = {"max_gen_len": 24, "use_cache": use_cache}
    assert autoregressive_generate(PROMPT, target, **common) == expected
    for more in ({}, {"use_egag": True, "egag_ema_beta": 0.5}, {"first_target": False}):
        ids, rate = speculative_generate(PROMPT, drafter, target, gamma=3, **common, **more)
        assert ids == expected and 0.0 <= rate < 1.0
    for storage in (NGramStorage(3), OneLevelNGramStorage(2)):
        for stop in (True, False):
            ids, _ = ngram_assisted_speculative_generate(PROMPT, storage, target, stop_if_unknown=stop, **common)
            assert ids == expected


@pytest.mark.parametrize("kind", [LlamaForCausalLM, GPT2LMHeadModel])
def test_beam_search_finds_what_generate_finds(kind: type[PreTrainedModel]) -> None:
    target = made(kind)
    expected = theirs(target, 10, num_beams=3, length_penalty=1.2, early_stopping="never")
    wide = {"num_beams": 3, "top_k": TOKENS, "min_length": 0, "alpha": 1.2, "max_gen_len": 10}
    assert sampling.beam_search_generate(PROMPT, target, **wide) == expected


def test_prompts_and_stop_tokens_may_be_tensors_of_one_text() -> None:
    target, prompt = made(), torch.tensor(PROMPT)
    free = theirs(target, 12)
    end = torch.tensor(free[3])
    for given in (prompt, prompt.unsqueeze(0), prompt.numpy()):
        assert autoregressive_generate(given, target, max_gen_len=12) == free
        assert autoregressive_generate(given, target, 12, eos_tokens_id=end) == free[: free.index(free[3]) + 1]


def test_beam_search_takes_its_arguments_in_the_usual_order(capsys: pytest.CaptureFixture[str]) -> None:
    beam_search_generate(PROMPT, made(), 4, 2, 3, 5.0, 1.2, None, 0, True)
    assert capsys.readouterr().err.startswith("round 0: ")


def test_threads_and_interruptions_leave_the_models_as_they_were() -> None:
    target, drafter = made().train(), made(seed=1)
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: speculative_generate(PROMPT, drafter, target, max_gen_len=8)[0], range(4)))
    assert target.training and answers == [answers[0]] * 4

    class Pressed(MultinomialProcessor):
        def __call__(self, logits: torch.Tensor) -> torch.Tensor:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        speculative_generate(PROMPT, drafter, target, logits_processor=Pressed(1.0))
    assert target.training and speculative_generate(PROMPT, drafter, target, max_gen_len=8)[0] == answers[0]


def test_a_model_that_drafts_for_itself_is_always_right() -> None:
    target = made()
    ids, rate = speculative_generate(PROMPT, target, target, gamma=3, max_gen_len=17)
    assert rate == 1.0 and ids == theirs(target, 17)
    assert math.isnan(speculative_generate(PROMPT, target, target, max_gen_len=1)[1]), "nothing was drafted"


def test_the_models_are_given_back_as_they_were() -> None:
    target, drafter = made().train(), made(seed=1)
    target.set_attn_implementation("eager")
    speculative_generate(PROMPT, drafter, target, max_gen_len=4)
    assert target.training and target.config._attn_implementation == "eager"
    with pytest.raises(UserError):
        autoregressive_generate([], target)
    assert target.training and target.config._attn_implementation == "eager"


def test_stop_tokens_one_or_many_or_the_models_own() -> None:
    target = made()
    free = theirs(target, 24)
    first, second = free[7], free[12]
    end = free.index(first) + 1
    assert autoregressive_generate(PROMPT, target, max_gen_len=24, eos_tokens_id=first) == free[:end]
    both = min(free.index(first), free.index(second)) + 1
    assert autoregressive_generate(PROMPT, target, max_gen_len=24, eos_tokens_id=[first, second]) == free[:both]
    target.generation_config.eos_token_id = first
    assert autoregressive_generate(PROMPT, target, max_gen_len=24) == free[:end]
    target.generation_config.eos_token_id = [first, TOKENS]
    assert autoregressive_generate(PROMPT, target, max_gen_len=24) == free[:end], "what it cannot say ends nothing"
    with refused("eos_tokens_id", TOKENS, TOKENS - 1):
        autoregressive_generate(PROMPT, target, eos_tokens_id=TOKENS)
    for wrong in ("a", [None], 1.0, [1.5]):
        with refused("eos_tokens_id", repr(wrong)):
            autoregressive_generate(PROMPT, target, eos_tokens_id=wrong)  # type: ignore[arg-type]
    tensor = torch.tensor([first, second])
    assert autoregressive_generate(PROMPT, target, max_gen_len=24, eos_tokens_id=tensor) == free[:both]  # type: ignore[arg-type]
    with refused("max_gen_len", "'3'", 1):
        autoregressive_generate(PROMPT, target, max_gen_len="3")  # type: ignore[arg-type]


def test_draws_follow_torchs_own_seed() -> None:
    target, drafter = made(), made(seed=1)

    def drawn(seed: int) -> list[int]:
        torch.manual_seed(seed)
        return speculative_generate(PROMPT, drafter, target, logits_processor=MultinomialProcessor(1.0))[0]

    assert drawn(1) == drawn(1) != drawn(2)


def test_without_the_adjustment_greedy_stays_exact() -> None:
    target, drafter = made(), made(seed=1)
    assert speculative_generate(PROMPT, drafter, target, skip_sample_adjustment=True, max_gen_len=20)[0] == theirs(
        target, 20
    )


def test_each_round_is_told_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    target = made()
    speculative_generate(PROMPT, target, target, gamma=2, max_gen_len=5, debug=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("round 0: drafted [], accepted 0 of 0, then [")
    assert "accepted 2 of 2" in lines[1]


def test_the_storage_of_a_user_keeps_what_it_learns() -> None:
    target, storage = made(), NGramStorage(3)
    ids, cold = ngram_assisted_speculative_generate(PROMPT, storage, target, max_gen_len=40, stop_if_unknown=True)
    assert len(storage) > 0
    again, warm = ngram_assisted_speculative_generate(PROMPT, storage, target, max_gen_len=40, stop_if_unknown=True)
    assert again == ids and warm > cold


def test_a_runner_of_the_workbench_goes_in_too_and_keeps_its_sequence() -> None:
    runner = ModelRunner(tiny_llama())
    runner.forward([3, 4, 5])
    assert len(autoregressive_generate(PROMPT, runner, max_gen_len=6)) == 6
    assert runner.length == 3


def test_models_of_other_kinds_are_refused_with_their_name() -> None:
    from transformers import RecurrentGemmaConfig, RecurrentGemmaForCausalLM

    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    held = RecurrentGemmaForCausalLM(RecurrentGemmaConfig(vocab_size=50, lru_width=16, **shape))
    with refused("RecurrentGemmaForCausalLM", "recurrent_gemma"):
        autoregressive_generate([1, 2], held)


def test_the_package_names_what_it_has() -> None:
    assert {"autoregressive_generate", "speculative_generate", "decode"} <= set(sampling.__all__)
    assert set(sampling.__all__) <= set(dir(sampling)), "completion offers them before they are imported"
    with refused("'nothing'", error=AttributeError):
        sampling.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("arguments", "quoted"),
    [
        ({"inputs": "the 3rd of March"}, ("inputs", "'the 3rd of March'")),
        ({"inputs": [[1, 2]]}, ("inputs", [[1, 2]])),
        ({"inputs": [1.0, 2.5]}, ("inputs", [1.0, 2.5])),
        ({"inputs": [1, 999]}, ("inputs", 999, 0, 130)),
        ({"inputs": [-1]}, ("inputs", -1, 0, 130)),
        ({"gamma": -1}, ("gamma", "'-1'", 0)),
        ({"gamma": 2.5}, ("gamma", "'2.5'", 0)),
        ({"use_egag": True, "gamma_min": 6, "gamma_max": 2}, ("gamma_min 6", "gamma_max 2")),
        ({"use_egag": True, "egag_ema_beta": 2.0}, ("egag_ema_beta", "'2.0'", "0 <= NUMBER < 1")),
        ({"max_gen_len": "five"}, ("max_gen_len", "'five'", 1)),
        ({"max_gen_len": float("nan")}, ("max_gen_len", "'nan'", 1)),
        ({"logits_processor": GreedyProcessor}, ("logits_processor", "GreedyProcessor()")),
        ({"logits_processor": "greedy"}, ("logits_processor", "'greedy'")),
        ({"logits_processor": Raw()}, ("Raw", [1, 131], [2, 131])),
        ({"logits_processor": Doubled()}, ("Doubled", 1)),
        ({"use_egag": GreedyProcessor()}, ("use_egag", True, False)),
        ({"first_target": None}, ("first_target", None, True, False)),
        ({"tokenizer": "gpt2"}, ("tokenizer", "'gpt2'")),
        ({"gamma": None}, ("gamma", None, 0)),
        ({"inputs": torch.tensor([[1, 2], [3, 4]])}, ("inputs", (2, 2), "[n]", "[1, n]")),
        ({"inputs": torch.tensor([1.0])}, ("inputs", "tensor([1.])")),
        ({"inputs": [True, False]}, ("inputs", [True, False])),
        ({"drafter": "some/name"}, ("'some/name'", "model")),
        ({"target": None}, (None, "model")),
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments: dict[str, Any], quoted: tuple[object, ...]) -> None:
    model = tiny_runner()
    with refused(*quoted):
        speculative_generate(**{"inputs": [1, 2], "drafter": model, "target": model, **arguments})


@pytest.mark.parametrize(
    ("wrong", "quoted"),
    [
        ({"num_beams": 0}, ("num_beams", "'0'", 1)),
        ({"top_k": 0}, ("top_k", "'0'", 1)),
        ({"alpha": -3}, ("alpha", "'-3'", 10)),
    ],
)
def test_beam_search_refuses_wrong_arguments(wrong: dict[str, Any], quoted: tuple[object, ...]) -> None:
    with refused(*quoted):
        beam_search_generate([1, 2], tiny_runner(), **wrong)


class Tokens(tuple[int, ...]):
    """A tokenizer of so many tokens."""

    def decode(self, ids: list[int]) -> str:
        return str(ids)


def test_another_vocabulary_is_refused_and_a_padded_one_is_not() -> None:
    large, small = tiny_runner(), tiny_runner()
    small.vocab_size -= 5
    with refused(large.vocab_size, small.vocab_size, "tokenizer="):
        speculative_generate([1, 2], small, large, max_gen_len=4)
    with refused(f"the tokenizer has {large.vocab_size}", small.vocab_size):
        speculative_generate([1, 2], small, large, tokenizer=Tokens(range(large.vocab_size)), max_gen_len=4)
    ids, rate = speculative_generate([1, 2], small, large, tokenizer=Tokens(range(small.vocab_size)), max_gen_len=4)
    assert len(ids) == 4 and rate == 1.0


def tiny_runner() -> ModelRunner:
    return ModelRunner(lean.from_transformers(make("llama")))

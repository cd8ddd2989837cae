"""transformers' own generate over our loop."""

from typing import Any

import pytest
import torch
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, TextStreamer
from transformers.generation import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TypicalLogitsWarper,
)

from sampling.api.custom_generate import SpeculativeOutput, speculative
from sampling.api.transformers_processors import processor_of
from tests.refusals import refused
from tests.sampling.api.test_generate import PROMPT, made, theirs
from tests.tiny import tiny_tokenizer
from tests.tiny_seq2seq import make

IDS = torch.tensor([PROMPT])


def ours(model: PreTrainedModel, drafter: PreTrainedModel | None, **options: Any) -> Any:
    common = {"attention_mask": torch.ones_like(IDS), "pad_token_id": 0, "custom_generate": speculative(drafter, 3)}
    return model.eval().generate(IDS, **{**common, "max_new_tokens": 20, "do_sample": False, **options})


def test_it_returns_what_generate_returns() -> None:
    target, drafter = made(), made(seed=1)
    expected = [*PROMPT, *theirs(target, 20)]
    for small in (None, drafter):
        assert ours(target, small)[0].tolist() == expected
        told = ours(target, small, return_dict_in_generate=True)
        assert isinstance(told, SpeculativeOutput) and told.metrics is not None
        assert told.sequences[0].tolist() == expected and told.metrics.output_ids == expected[len(PROMPT) :]
    end = expected[len(PROMPT) + 5]
    first = expected.index(end, len(PROMPT)) + 1
    assert ours(target, drafter, eos_token_id=end)[0].tolist() == expected[:first]


def test_it_draws_under_the_usual_names() -> None:
    target, drafter = made(), made(seed=1)
    drawn = [ours(target, drafter, do_sample=True, temperature=0.8, top_k=1, max_new_tokens=12) for _ in range(2)]
    assert drawn[0].tolist() == drawn[1].tolist() == [[*PROMPT, *theirs(target, 12)]], "top_k 1 is greedy"
    free = {tuple(ours(target, drafter, do_sample=True, max_new_tokens=8)[0].tolist()) for _ in range(4)}
    assert len(free) > 1


def _swapped() -> LogitsProcessorList:
    return LogitsProcessorList([SuppressTokensLogitsProcessor([3]), RepetitionPenaltyLogitsProcessor(1.2)])


@pytest.mark.parametrize(
    ("options", "quoted"),
    [
        ({"bad_words_ids": [[5]]}, ("NoBadWordsLogitsProcessor", "RepetitionPenaltyLogitsProcessor")),
        ({"sequence_bias": [[[5, 6], 2.0]]}, ("sequence_bias", "[5, 6]", "single tokens")),
        ({"logits_processor": _swapped()}, ("banned, repetition", "each once")),
        (
            {"logits_processor": LogitsProcessorList([MinPLogitsWarper(0.1, min_tokens_to_keep=2)])},
            ("min_tokens_to_keep", 2, 1),
        ),
        ({"num_beams": 3}, ("num_beams", 3, 1, "sampling.beam_search_generate")),
        ({"max_time": 3.0}, ("MaxTimeCriteria", "EosTokenCriteria")),
        ({"return_dict_in_generate": True, "output_scores": True}, ("output_scores", "custom_generate")),
        ({"prompt_lookup_num_tokens": 3}, ("prompt_lookup_num_tokens", "custom_generate")),
        ({"attention_mask": torch.tensor([[0, *[1] * (len(PROMPT) - 1)]])}, ("attention mask", "padding")),
    ],
)
def test_what_it_cannot_do_is_refused(options: dict[str, Any], quoted: tuple[object, ...]) -> None:
    with refused(*quoted):
        ours(made(), made(seed=1), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.7},
        {"no_repeat_ngram_size": 2},
        {"sequence_bias": [[[5], 4.0], [[7], -4.0]]},
        {"min_new_tokens": 12},
        {"suppress_tokens": [3, 9, 11]},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3, "min_new_tokens": 9, "suppress_tokens": [4]},
    ],
)
def test_processors_of_the_text_change_what_they_change_in_generate(options: dict[str, Any]) -> None:
    target, drafter = made(), made(seed=1)
    plain = ours(target, None)[0].tolist()
    ends = {**options, "eos_token_id": plain[len(PROMPT) + 2]}
    common = {"attention_mask": torch.ones_like(IDS), "pad_token_id": 0, "do_sample": False, "max_new_tokens": 20}
    expected = target.eval().generate(IDS, **common, **ends)[0].tolist()
    assert expected != plain[: len(expected)] or len(expected) < len(plain)
    for small in (None, drafter, target):
        assert ours(target, small, **ends)[0].tolist() == expected


def test_cut_offs_are_read() -> None:
    logits = torch.linspace(-3, 2, 40).unsqueeze(0)
    config = GenerationConfig(do_sample=True, top_k=0)
    for part in (MinPLogitsWarper(0.2), TypicalLogitsWarper(0.5), EpsilonLogitsWarper(0.03), EtaLogitsWarper(0.03)):
        expected = part(IDS, logits.clone()).softmax(-1)
        assert 0 < (expected == 0).sum() < 39
        torch.testing.assert_close(processor_of([part], config, 0)(logits), expected, check_dtype=False)


class Heard:
    """A streamer that remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def put(self, value: torch.Tensor) -> None:
        self.told.append(value.tolist())

    def end(self) -> None:
        self.told.append("end")


@pytest.mark.parametrize("drafts", [True, False])
def test_a_streamer_is_told_the_prompt_every_round_and_the_end(drafts: bool) -> None:
    target, heard = made(), Heard()
    method = speculative(target if drafts else None, 3, streamer=heard)  # type: ignore[arg-type]
    said = ours(target, None, custom_generate=method)[0].tolist()
    prompt, *rounds, end = heard.told
    assert prompt == [PROMPT] and end == "end"
    assert [len(round) for round in rounds] == ([4] * 5 if drafts else [1] * 20)
    assert [*PROMPT, *(token for round in rounds for token in round)] == said


def test_a_text_streamer_prints_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    target, tokenizer = made(), tiny_tokenizer()
    streamer = TextStreamer(tokenizer, skip_prompt=True)
    said = ours(target, None, custom_generate=speculative(made(seed=1), 3, streamer=streamer))
    assert capsys.readouterr().out == tokenizer.decode(said[0, len(PROMPT) :]) + "\n"


def test_several_prompts_are_refused() -> None:
    with refused("2 prompts"):
        made().eval().generate(IDS.repeat(2, 1), max_new_tokens=3, pad_token_id=0, custom_generate=speculative())


def test_an_encoder_decoder_model_is_refused() -> None:
    with refused("T5ForConditionalGeneration", "encoder-decoder", "sampling.speculative_generate_encoder_decoder"):
        make("t5", 53).generate(IDS, max_new_tokens=3, custom_generate=speculative())

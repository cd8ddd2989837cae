"""A request's body against the order that it comes to, at the edges of what it may say; no server runs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ablation.plan.grid import Configuration
from sampling.methods.chat_template import UNTOLD, TemplateVariables
from serve.answers.parts import PLAIN as PLAIN_FORM
from serve.answers.parts import AnswerForm
from serve.errors import ApiError
from serve.jobs import ParsedRequest, TextOrder
from serve.requests.body import LONGEST_STOP, MOST_STOPS, read_chat, read_completion, sample_seed
from tests.serve.test_refusals import SAID
from utils.parameter import LARGEST, ChosenPart


@dataclass
class Sixty:
    """A model whose context holds 60 tokens, of 10 ids; a text has an id a character."""

    name: str = "m"
    window: int = 60
    vocab_size: int = 10
    longest: int = 50
    places: int = 3
    default: Configuration = field(default_factory=lambda: Configuration("suffix"))

    def tokenise(
        self, turns: Sequence[str], chat: bool, system: str | None = None, variables: TemplateVariables = UNTOLD
    ) -> list[int]:
        return [1 if chat else 2] * sum(map(len, turns))

    call_syntax: str | None = None

    def encode_messages(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        variables: TemplateVariables = UNTOLD,
        opens: bool = True,
    ) -> list[int]:
        return [2] * len(messages)

    def thinking(self, prompt: Sequence[int]) -> AnswerForm:
        return PLAIN_FORM

    def decode(self, ids: Sequence[int]) -> str:
        return "x" * len(ids)

    def bytes_of(self, token: int) -> bytes:
        return b"x"

    def refuse(self, configuration: Configuration) -> None:
        pass


PLAIN = TextOrder((2,), Configuration("suffix"), 16, ChosenPart("multinomial", (1.0,)), 3)


def request(**fields: Any) -> ParsedRequest:
    return read_completion(json.dumps({"prompt": "a", "seed": 3, **fields}).encode(), Sixty())


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        ({}, {}),
        ({"temperature": 0}, {"processor": ChosenPart("greedy", (1.0,))}),
        ({"temperature": 0.5}, {"processor": ChosenPart("multinomial", (0.5,))}),
        ({"min_p": 0.1}, {"processor": ChosenPart("multinomial", (1.0,), (("min_p", 0.1),))}),
        ({"min_p": 0, "repetition_penalty": 1, "min_tokens": 0, "logit_bias": {}}, {}),
        (
            {
                "temperature": 0,
                "repetition_penalty": 1.2,
                "frequency_penalty": -0.5,
                "presence_penalty": 1,
                "min_tokens": 4,
                "logit_bias": {"2": -100},
            },
            {
                "processor": ChosenPart(
                    "greedy",
                    (1.0,),
                    (
                        ("logit_bias", ((2, -100.0),)),
                        ("repetition", 1.2),
                        ("frequency", -0.5),
                        ("presence", 1.0),
                        ("min_tokens", 4),
                    ),
                )
            },
        ),
        ({"temperature": 1e6}, {"processor": ChosenPart("multinomial", (1e6,))}),
        ({"top_k": 5}, {"processor": ChosenPart("topk", (1.0, 5))}),
        ({"top_k": 1}, {"processor": ChosenPart("topk", (1.0, 1))}),
        ({"top_k": 0}, {}),
        ({"top_k": -1}, {}),
        ({"top_p": 0.9}, {"processor": ChosenPart("nucleus", (1.0, 0.9))}),
        ({"top_p": 1}, {}),
        ({"top_k": 4, "top_p": 0.5, "temperature": 2}, {"processor": ChosenPart("topknucleus", (2.0, 4, 0.5))}),
        ({"max_tokens": 1}, {"length": 1}),
        ({"max_tokens": 50}, {"length": 50}),
        ({"prompt": [0, 9]}, {"prompt": (0, 9)}),
        ({"prompt": [3] * 59}, {"prompt": (3,) * 59, "length": 1}),
        ({"prompt": [3] * 50}, {"prompt": (3,) * 50, "length": 10}),
        ({"stop": "x"}, {"stops": ("x",)}),
        ({"stop": ["x"] * MOST_STOPS}, {"stops": ("x",) * MOST_STOPS}),
        ({"stop": "x" * LONGEST_STOP}, {"stops": ("x" * LONGEST_STOP,)}),
        ({"stop": []}, {}),
        ({"ignore_eos": True}, {"to_the_end": True}),
        ({"seed": LARGEST}, {"seed": LARGEST}),
        ({"seed": 0}, {"seed": 0}),
        ({"model": "m", "n": 1, "best_of": 1, "echo": False, "user": "me", "metadata": {}}, {}),
        ({"logprobs": 0}, {"logprobs": 0}),
        ({"logprobs": 20}, {"logprobs": 20}),
        ({"logprobs": 2, "echo": True}, {"logprobs": 2, "of_prompt": True}),
        ({"max_tokens": 0, "echo": True}, {"length": 0}),
        ({"stop_token_ids": [9, 0]}, {"stop_ids": (9, 0)}),
        ({"skip_special_tokens": True, "include_stop_str_in_output": False}, {}),
        ({"speculative": {"method": "ngram"}}, {"configuration": Configuration("ngram")}),
        ({"speculative_config": {"method": "ngram"}}, {"configuration": Configuration("prompt_lookup")}),
        (
            {"speculative": {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}},
            {
                "configuration": Configuration(
                    "prompt_lookup",
                    (("max_ngram_size", 4), ("min_ngram_size", 4), ("num_speculative_tokens", 5)),
                )
            },
        ),
        (
            {"speculative_config": {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 2}},
            {"configuration": Configuration("prompt_lookup", (("max_ngram_size", 4), ("min_ngram_size", 2)))},
        ),
        (
            {"speculative": {"method": "mtp", "num_speculative_tokens": 2}},
            {"configuration": Configuration("mtp", (("gamma", 2),))},
        ),
        (
            {"speculative": {"method": "mtp", "draft_rule": "budget", "num_speculative_tokens": 2}},
            {"configuration": Configuration("mtp", (("draft_rule", "budget"), ("num_speculative_tokens", 2)))},
        ),
        (
            {"speculative": {"method": "ngram", "num_speculative_tokens": 2}},
            {"configuration": Configuration("prompt_lookup", (("num_speculative_tokens", 2),))},
        ),
        (
            {"speculative_config": {"method": "draft_model", "num_speculative_tokens": 3}},
            {"configuration": Configuration("speculative", (("gamma", 3),))},
        ),
        (
            {"speculative": {"method": "speculative", "gamma": 2}},
            {"configuration": Configuration("speculative", (("gamma", 2),))},
        ),
    ],
    ids=str,
)
def test_a_field_does_what_it_says_and_nothing_else(fields: dict[str, Any], changes: dict[str, Any]) -> None:
    found = request(**fields)
    assert found.orders == (replace(PLAIN, **changes),)
    assert (found.kind, found.stream, found.include_usage, found.token_ids) == ("text", False, False, False)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 1.1e6),
        ("temperature", -0.1),
        ("temperature", "1"),
        ("temperature", True),
        ("top_p", 0),
        ("top_p", 1.01),
        ("top_k", -2),
        ("top_k", 1.5),
        ("max_tokens", 0),
        ("max_tokens", 51),
        ("max_tokens", True),
        ("prompt", [10]),
        ("prompt", [-1]),
        ("prompt", []),
        ("prompt", ""),
        ("prompt", [[1], []]),
        ("prompt", ["a"] * 4),
        ("prompt", [3] * 60),
        ("stop", ["x"] * (MOST_STOPS + 1)),
        ("stop", "x" * (LONGEST_STOP + 1)),
        ("stop", ""),
        ("stop", [1]),
        ("seed", LARGEST + 1),
        ("seed", -1),
        ("ignore_eos", 1),
        ("stream", 0),
        ("model", "other"),
        ("n", 4),
        ("n", 0),
        ("n", True),
        ("best_of", 2),
        ("echo", 0),
        ("logprobs", 21),
        ("logprobs", True),
        ("logprobs", -1),
        ("top_logprobs", 2),
        ("stop_token_ids", [10]),
        ("stop_token_ids", 3),
        ("stop_token_ids", [True]),
        ("skip_special_tokens", False),
        ("return_tokens_as_token_ids", 1),
        ("speculative_config", {"method": "ngram", "prompt_lookup_maximum": 3}),
        ("speculative_config", {"method": "draft_model", "model": "x"}),
        ("speculative_config", {"method": "suffix", "max_spec_factor": 2}),
        ("user", 3),
        ("metadata", []),
        ("speculative", "suffix"),
        ("speculative", {}),
        ("strange", 1),
    ],
    ids=str,
)
def test_what_is_beyond_an_edge_is_refused_by_its_name(field: str, value: Any) -> None:
    with pytest.raises(ApiError) as error:
        request(**{field: value})
    assert error.value.param == field and error.value.status == (404 if field == "model" else 400)


def test_a_field_that_is_null_was_not_given() -> None:
    nothing = dict.fromkeys(("temperature", "top_p", "stop", "max_tokens", "stream", "speculative", "model", "n"))
    assert request(**nothing) == request()


def test_several_prompts_have_an_order_each() -> None:
    found = request(prompt=["a", "bc", [7]], max_tokens=4)
    assert [order.prompt for order in found.orders] == [(2,), (2, 2), (7,)]
    assert {order.length for order in found.orders} == {4}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"stream": True}, (True, False, False)),
        ({"stream": True, "stream_options": {"include_usage": True}}, (True, True, False)),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, (True, False, False)),
        ({"stream": True, "stream_options": {"include_usage": False}}, (True, False, False)),
        ({"return_token_ids": True}, (False, False, True)),
    ],
)
def test_how_an_answer_is_told(fields: dict[str, Any], told: tuple[bool, bool, bool]) -> None:
    found = request(**fields)
    assert (found.stream, found.include_usage, found.token_ids) == told


@pytest.mark.parametrize(
    ("stream", "options"),
    [(False, {"include_usage": True}), (True, {"x": 1}), (True, 3), (True, {"include_usage": 1})],
    ids=str,
)
def test_stream_options_need_a_stream_and_say_nothing_else(stream: bool, options: object) -> None:
    with pytest.raises(ApiError):
        request(stream=stream, stream_options=options)


@pytest.mark.parametrize(("fields", "length"), [({}, 50), ({"max_tokens": 9}, 9), ({"max_completion_tokens": 8}, 8)])
def test_a_chat_is_as_long_as_it_may_be_unless_it_says(fields: dict[str, Any], length: int) -> None:
    found = read_chat(json.dumps({"messages": SAID, "seed": 3, **fields}).encode(), Sixty())
    assert found.orders == (replace(PLAIN, prompt=(1,), length=length),) and found.kind == "chat"


def test_seeds_that_are_not_given_are_drawn() -> None:
    seeds = {read_completion(b'{"prompt": "a"}', Sixty()).orders[0].seed for _ in range(8)}
    assert len(seeds) == 8 and all(0 <= seed < 2**31 for seed in seeds)


def test_samples_have_seeds_of_their_own_and_the_first_is_the_requests() -> None:
    found = request(prompt=["a", "bc"], n=1).orders
    with pytest.raises(ApiError):
        request(prompt=["a", "bc"], n=2)  # three places in all
    three = request(n=3).orders
    assert [order.seed for order in three] == [sample_seed(3, sample) for sample in range(3)]
    assert three[0] == found[0] == replace(PLAIN, seed=3) and len({order.seed for order in three}) == 3
    many = {sample_seed(seed, sample) for seed in range(50) for sample in range(20)}
    assert len(many) == 1000 and all(0 <= seed <= LARGEST for seed in many), "no sample of one seed is another's"


def test_a_method_is_named_once() -> None:
    with pytest.raises(ApiError) as error:
        request(speculative={"method": "suffix"}, speculative_config={"method": "suffix"})
    assert error.value.param == "speculative_config"


@pytest.mark.parametrize(
    ("fields", "logprobs"),
    [({}, None), ({"logprobs": False}, None), ({"logprobs": True}, 0), ({"logprobs": True, "top_logprobs": 4}, 4)],
)
def test_a_chat_asks_for_logprobs_in_two_fields(fields: dict[str, Any], logprobs: int | None) -> None:
    (order,) = read_chat(json.dumps({"messages": SAID, **fields}).encode(), Sixty()).orders
    assert order.logprobs == logprobs


def test_calls_that_nobody_can_read_are_refused_unless_a_grammar_writes_them() -> None:
    tool = {"type": "function", "function": {"name": "f"}}

    def ask(choice: Any) -> ParsedRequest:
        body = {"messages": SAID, "tools": [tool], "tool_choice": choice}
        return read_chat(json.dumps(body).encode(), Sixty())

    with pytest.raises(ApiError) as error:
        ask("auto")
    assert error.value.param == "tool_choice"
    assert ask("none").form.calls == "" and ask("required").form.calls == "list"
    assert ask({"type": "function", "function": {"name": "f"}}).form == AnswerForm(calls="arguments", tools=("f",))

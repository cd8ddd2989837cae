"""What a request says of thinking, and of the chat template's variables, against the ids that are asked."""

from collections.abc import Iterator
from typing import Any

import pytest
from openai import BadRequestError

from ablation.plan.grid import Configuration
from sampling.methods.chat_template import TemplateVariables
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from serve.app import Server
from serve.limits import ServerLimits
from serve.requests.body import read_chat
from tests.serve.running import Running, running
from tests.serve.test_server import GREEDY, SAID
from tests.tiny import THINKS, tiny_pair

_OFF = {"chat_template_kwargs": {"enable_thinking": False}}


def thinking_pair() -> Pair:
    pair = tiny_pair()
    pair.tokenizer.chat_template = THINKS
    return pair


@pytest.fixture(scope="module")
def thinks() -> Iterator[Running]:
    with running(thinking_pair()) as found:
        yield found


def prompt_of(served: Running, **fields: Any) -> str:
    body = {"return_token_ids": True, **fields}
    answer = served.client().chat.completions.create(messages=SAID, max_tokens=2, extra_body=body, **GREEDY)
    assert answer.model_extra is not None
    found = answer.model_extra.get("prompt_token_ids") or answer.choices[0].model_extra["prompt_token_ids"]
    return served.server.driver.tokens._engine.all_text(found)


@pytest.mark.parametrize("fields", [_OFF, {"thinking": False}, {"thinking": "off"}, {**_OFF, "thinking": "auto"}])
def test_a_chat_is_asked_as_its_request_says(thinks: Running, fields: dict[str, Any]) -> None:
    assert prompt_of(thinks, **fields).endswith("<|im_start|>assistant\n<think></think>")


@pytest.mark.parametrize("fields", [{}, {"thinking": True}, {"thinking": None}, {"chat_template_kwargs": {}}])
def test_a_chat_that_thinks_or_says_nothing_of_it_is_open(thinks: Running, fields: dict[str, Any]) -> None:
    assert prompt_of(thinks, **fields).endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"chat_template_kwargs": [1]}, "chat_template_kwargs", "an object"),
        ({"chat_template_kwargs": {"enable_thinkin": 1}}, "chat_template_kwargs", "'enable_thinking'"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", "'messages'"),
        ({"thinking": "maybe"}, "thinking", "auto, on, off"),
        ({"thinking": {"type": "enabled"}}, "thinking", "true, false or auto"),
        ({"thinking": True, **_OFF}, "chat_template_kwargs", "both alike"),
    ],
)
def test_a_request_that_the_template_cannot_take_is_refused(
    thinks: Running, fields: dict[str, Any], param: str, says: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        prompt_of(thinks, **fields)
    assert caught.value.param == param and says in str(caught.value)


def test_a_completion_has_no_template_to_tell_anything(thinks: Running) -> None:
    with pytest.raises(BadRequestError, match="chat_template_kwargs"):
        thinks.client().completions.create(prompt="a", max_tokens=2, extra_body=_OFF, **GREEDY)


def test_what_holds_for_all_requests_is_changed_by_one() -> None:
    variables = TemplateVariables("off")
    server = Server(PairEngine(thinking_pair()), Configuration("target"), ServerLimits(), variables)
    closed, opened = (
        read_chat(body.encode(), server.model).orders[0].prompt
        for body in (
            '{"messages": [{"role": "user", "content": "a"}]}',
            '{"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"enable_thinking": true}}',
        )
    )
    assert len(closed) > len(opened) and closed[: len(opened)] == opened
    assert server.model.tokenise(["a"], False) == tiny_pair().encode(["a"], False), "a completion knows no template"

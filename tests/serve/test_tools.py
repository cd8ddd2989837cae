"""Tools of a chat, through the official client: called, streamed, answered, and told to templates of both kinds."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import validate

from sampling.pair.pair import Pair
from serve.limits import ServerLimits
from tests.serve.running import Running, running
from tests.serve.test_server import GREEDY, SAID
from tests.tiny import CHAT, THINKS, tiny_pair

CITY = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/City"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
    "$defs": {"City": {"enum": ["Rome", "Oslo"]}},
}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "a forecast", "parameters": CITY}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
TOOLS: list[Any] = [WEATHER, CLOCK]
NAMED = {"type": "function", "function": {"name": "weather"}}
# As Qwen has it: tools in the system message, calls and results in the turns.
HERMES = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    "<tool_call></tool_call><|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls %}<tool_call>{{ call.function.name }} {{ call.function.arguments | tojson }}"
    "</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def pair_with(template: str) -> Pair:
    pair = tiny_pair(window=4096)
    pair.tokenizer.chat_template = template
    return pair


@pytest.fixture(scope="module", params=[CHAT, HERMES], ids=["no tools", "tools"])
def served(request: pytest.FixtureRequest) -> Iterator[Running]:
    """With a template that reads no tools, and with one that does."""
    with running(pair_with(request.param), ServerLimits(size=2)) as found:
        yield found


def ask(served: Running, choice: Any, method: str = "speculative", **more: Any) -> Any:
    extra = {"speculative": {"method": method}, "return_token_ids": True, **more.pop("extra", {})}
    asked = {"messages": SAID, "tools": TOOLS, "tool_choice": choice, "max_tokens": 200, **GREEDY, **more}
    return served.client().chat.completions.create(**asked, extra_body=extra)


def calls_of(answer: Any) -> list[tuple[str, Any]]:
    calls = answer.choices[0].message.tool_calls
    assert len({call.id for call in calls}) == len(calls)
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls]


@pytest.mark.parametrize("method", ["target", "speculative", "grammar_drafts"])
def test_a_required_call_is_one_of_the_tools_with_its_arguments(served: Running, method: str) -> None:
    answer = ask(served, "required", method, parallel_tool_calls=False)
    ((name, arguments),) = calls_of(answer)
    validate(arguments, CITY if name == "weather" else {"maxProperties": 0})
    assert answer.choices[0].finish_reason == "tool_calls" and answer.choices[0].message.content is None
    assert calls_of(ask(served, "required", "target", parallel_tool_calls=False)) == [(name, arguments)]


def test_several_calls_of_several_samples(served: Running) -> None:
    answer = ask(served, "required", temperature=1.5, seed=1, n=8)
    whole = [choice for choice in answer.choices if choice.finish_reason == "tool_calls"]
    found = [
        [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls]
        for choice in whole
    ]
    for name, arguments in (call for calls in found for call in calls):
        validate(arguments, CITY if name == "weather" else {"maxProperties": 0})
    assert {name for calls in found for name, _ in calls} == {"weather", "clock"} and max(map(len, found)) > 1


def test_a_named_call_is_its_arguments(served: Running) -> None:
    answer = ask(served, NAMED)
    ((name, arguments),) = calls_of(answer)
    validate(arguments, CITY)
    assert name == "weather" and answer.choices[0].finish_reason == "stop"


def test_arguments_that_no_schema_names_are_not_written(served: Running) -> None:
    """As clients write schemas: without a word on other properties. Only one that allows them has them."""
    where = {"type": "object", "properties": {"city": {"enum": ["Rome"]}}, "required": ["city"]}
    schema = {"type": "object", "properties": {"where": where}, "required": ["where"]}
    tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
    assert calls_of(ask(served, NAMED, tools=[tool])) == [("weather", {"where": {"city": "Rome"}})]
    free = {"type": "function", "function": {"name": "weather", "parameters": {**schema, "additionalProperties": True}}}
    answer = ask(served, NAMED, tools=[free], max_tokens=40, n=8, temperature=1.5, seed=1)
    written = [choice.message.tool_calls[0].function.arguments for choice in answer.choices]
    assert any(text.startswith('{"where": {"city": "Rome"}, "') for text in written)


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_a_stream_puts_the_same_call_together(served: Running, choice: Any) -> None:
    whole = ask(served, choice, parallel_tool_calls=False)
    pieces = [
        piece
        for chunk in ask(served, choice, parallel_tool_calls=False, stream=True)
        for piece in chunk.choices[0].delta.tool_calls or ()
    ]
    first, *rest = pieces
    assert first.id and first.type == "function" and {piece.index for piece in pieces} == {0}
    assert all(piece.id is None and piece.function.name is None for piece in rest)
    text = "".join(piece.function.arguments for piece in pieces)
    assert [(first.function.name, json.loads(text))] == calls_of(whole)
    with served.client().chat.completions.stream(
        messages=SAID, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, max_tokens=200, **GREEDY
    ) as stream:
        assert calls_of(stream.get_final_completion()) == calls_of(whole)


def test_a_call_that_the_length_cuts_off_is_told_as_far_as_it_came(served: Running) -> None:
    answer = ask(served, NAMED, max_tokens=9).choices[0]
    assert answer.finish_reason == "length"
    (call,) = answer.message.tool_calls
    whole = ask(served, NAMED).choices[0].message.tool_calls[0]
    assert call.function.arguments and whole.function.arguments.startswith(call.function.arguments)


SAYS = (
    r'I look: <tool_call>\n\{"name": "weather", "arguments": \{"city": "(Rome|Oslo)", "days": [1-9]\}\}\n</tool_call>'
)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["auto", None])
def test_a_call_in_the_templates_own_words_is_read(served: Running, choice: str | None, stream: bool) -> None:
    """A tiny model says nothing of itself, so a grammar writes what a trained one would."""
    extra = {"structured_outputs": {"regex": SAYS}}
    answer = ask(served, choice, stream=stream, extra=extra)
    if not stream:
        message = answer.choices[0].message
        ((name, arguments),) = calls_of(answer)
        content, reason = message.content, answer.choices[0].finish_reason
    else:
        chunks = [chunk.choices[0] for chunk in answer]
        content = "".join(chunk.delta.content or "" for chunk in chunks)
        (call,) = [piece for chunk in chunks for piece in chunk.delta.tool_calls or ()]
        name, arguments, reason = call.function.name, json.loads(call.function.arguments), chunks[-1].finish_reason
    validate(arguments, CITY)
    assert (name, content, reason) == ("weather", "I look:", "tool_calls")


def test_without_a_choice_to_call_the_same_text_stays_text(served: Running) -> None:
    choice = ask(served, "none", extra={"structured_outputs": {"regex": SAYS}}).choices[0]
    assert choice.message.tool_calls is None and choice.finish_reason == "stop"
    assert choice.message.content.startswith("I look: <tool_call>")


def test_the_template_is_told_of_tools_calls_and_results(served: Running) -> None:
    first = ask(served, "required", parallel_tool_calls=False)
    message = first.choices[0].message
    (call,) = message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain for days"}
    answer = ask(served, "none", messages=[*SAID, message.model_dump(exclude_none=True), result], max_tokens=4)
    prompt = served.server.driver.tokens.decode_all(answer.prompt_token_ids)
    assert '"a forecast"' in prompt and "be brief" in prompt and "rain for days" in prompt
    assert call.function.name in prompt and "<tool_call>" in prompt
    assert prompt.count("<|im_start|>system") == (1 if served.server.model.template == CHAT else 2)
    assert answer.choices[0].message.content is not None


def test_each_choice_of_several_has_a_call_of_its_own(served: Running) -> None:
    answer = ask(served, NAMED, n=2, temperature=1, seed=5)
    ids = [choice.message.tool_calls[0].id for choice in answer.choices]
    assert len(set(ids)) == 2
    for choice in answer.choices:
        validate(json.loads(choice.message.tool_calls[0].function.arguments), CITY)


def test_tools_need_a_template() -> None:
    pair = tiny_pair(window=4096)
    pair.tokenizer.chat_template = None
    with running(pair) as found, pytest.raises(Exception, match="no chat template") as caught:
        ask(found, "required")
    assert getattr(caught.value, "status_code", None) == 400


THOUGHT = r"<think>\nhm[a-c]{3}\n</think>\n\n[0-9]{4}"


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_stands_beside_the_answer(stream: bool) -> None:
    with running(pair_with(THINKS)) as found:
        extra = {"structured_outputs": {"regex": THOUGHT}, "speculative": {"method": "speculative"}}
        answer: Any = found.client().chat.completions.create(
            messages=SAID, max_tokens=60, stream=stream, extra_body=extra, **GREEDY
        )
        if stream:
            deltas = [chunk.choices[0].delta for chunk in answer]
            reasoning = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
            content = "".join(delta.content or "" for delta in deltas)
        else:
            message = answer.choices[0].message
            reasoning, content = message.reasoning_content, message.content
    assert reasoning.startswith("hm") and len(reasoning) == 5 and content.isdigit() and len(content) == 4


def test_a_prompt_that_opened_the_reasoning_leaves_it_open_and_one_that_closed_it_has_none() -> None:
    opened = THINKS.replace("<think></think>", "") + "{% if add_generation_prompt %}<think>\n</think>{% endif %}"
    for template, thinks, open in (
        (opened.replace("\n</think>", "{# </think> #}\n"), True, True),
        (opened, False, False),
        (CHAT, False, False),
    ):
        with running(pair_with(template)) as found:
            answer: Any = found.client().chat.completions.create(messages=SAID, max_tokens=12, **GREEDY)
            message = answer.choices[0].message
            assert hasattr(message, "reasoning_content") == thinks
            said = message.reasoning_content if open else message.content
            assert said and (not open or message.content == "")


def test_reasoning_of_earlier_answers_reaches_the_template() -> None:
    template = CHAT.replace("{{ m['content'] }}", "{{ m['reasoning_content'] }}|{{ m['content'] }}")
    with running(pair_with(template)) as found:
        said = [
            *SAID,
            {"role": "assistant", "content": "ab", "reasoning_content": "so"},
            {"role": "user", "content": "b"},
        ]
        answer: Any = found.client().chat.completions.create(
            messages=said, max_tokens=2, extra_body={"return_token_ids": True}, **GREEDY
        )
        assert "so|ab" in found.server.driver.tokens.decode_all(answer.prompt_token_ids)


def test_a_template_whose_calls_nobody_reads_is_asked_for_no_calls_of_its_own() -> None:
    template = HERMES.replace("<tool_call>", "[CALL]").replace("</tool_call>", "[/CALL]")
    with running(replace(pair_with(template))) as found:
        with pytest.raises(Exception, match="tool_choice") as caught:
            ask(found, "auto")
        assert getattr(caught.value, "status_code", None) == 400
        assert calls_of(ask(found, NAMED))

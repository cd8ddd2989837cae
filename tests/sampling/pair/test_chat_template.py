"""What a chat template is told beside the messages: whether to think, and the variables that it reads."""

from typing import Any

import pytest

from sampling.methods.chat_template import KWARGS, THINKING, TemplateVariables
from sampling.pair.pair import Pair
from sampling.pair.prompt_ids import read_variables
from tests.refusals import refused
from tests.tiny import CHAT, GRANITE, THINKS, tiny_pair

EFFORT = CHAT + "{{ 'Effort: ' + reasoning_effort if reasoning_effort is defined }}"


def pair_with(template: str) -> Pair:
    pair = tiny_pair()
    pair.tokenizer.chat_template = template
    return pair


def text(pair: Pair, thinking: str = "auto", system: str | None = None, chat: bool = True, **named: Any) -> str:
    return str(pair.tokenizer.decode(pair.encode(["a"], chat, system, TemplateVariables(thinking, named))))


@pytest.mark.parametrize(("template", "mark", "shown"), [(THINKS, "<think></think>", "off"), (GRANITE, "Think.", "on")])
def test_the_switch_reaches_the_template_by_the_name_that_it_reads(template: str, mark: str, shown: str) -> None:
    pair, hidden = pair_with(template), "on" if shown == "off" else "off"
    assert mark in text(pair, shown) and mark in text(pair, shown, system="s")
    assert mark not in text(pair, hidden) and text(pair) == text(pair, hidden)


def test_a_template_that_reads_both_names_is_told_both() -> None:
    pair = pair_with(CHAT + "{{ enable_thinking }}{{ thinking }}")
    assert text(pair, "off").endswith("FalseFalse") and text(pair, "on").endswith("TrueTrue")


def test_variables_reach_the_template_and_the_switch_is_the_short_form_of_one() -> None:
    pair = pair_with(EFFORT + THINKS)
    assert "Effort: low" in text(pair, reasoning_effort="low")
    assert text(pair, "off") == text(pair, enable_thinking=False) == text(pair, "off", enable_thinking=False)
    assert text(pair, "off", reasoning_effort="low") == text(pair, enable_thinking=False, reasoning_effort="low")


def test_what_the_template_reads_is_found_without_what_is_filled_in() -> None:
    template = "{% set own = 1 %}{{ bos_token }}{{ eos_token }}{% for m in messages %}{{ m.x }}{{ own }}{% endfor %}"
    template += "{{ strftime_now('%Y') }}{% if tools %}{{ raise_exception('x') }}{% endif %}{{ xml_tools }}"
    assert read_variables(pair_with(GRANITE + template).tokenizer) == {"thinking", "xml_tools"}
    assert not read_variables(pair_with(CHAT).tokenizer)


def test_of_several_templates_that_of_plain_chats_is_read() -> None:
    pair = pair_with(CHAT)
    pair.tokenizer.chat_template = {"default": THINKS, "tool_use": GRANITE}
    assert "<think></think>" in text(pair, "off")


@pytest.mark.parametrize(
    ("template", "given", "says"),
    [
        (CHAT, {"thinking": "off"}, ("thinking off", "tiny", "enable_thinking", "expected thinking auto")),
        (EFFORT, {"thinking": "on"}, ("thinking on", "neither enable_thinking nor thinking")),
        (THINKS, {"enable_thinkin": 1}, ("chat_template_kwargs", "'enable_thinkin'", "'enable_thinking'")),
        (CHAT, {"foo": 1}, ("'foo'", "expected none")),
        (THINKS, {"messages": []}, ("'messages'", "enable_thinking")),
        (THINKS, {"add_generation_prompt": False}, ("'add_generation_prompt'",)),
        (THINKS, {"thinking": "on", "enable_thinking": False}, ("thinking on", "enable_thinking", "both alike")),
        (EFFORT, {"reasoning_effort": 3}, ("fails", "reasoning_effort")),
        (EFFORT, {"reasoning_effort": "x" * 60_000}, ("characters",)),
        ("", {"thinking": "on"}, ("thinking on", "has no chat template")),
        (THINKS, {"thinking": "on", "chat": False}, ("thinking on", "asked without its chat template")),
        ("{% if %}", {"thinking": "on"}, ("cannot be read",)),
    ],
)
def test_what_a_template_cannot_be_told_is_refused(template: str, given: dict[str, Any], says: tuple[str, ...]) -> None:
    with refused(*says):
        text(pair_with(template), **given)


@pytest.mark.parametrize(
    ("given", "value"),
    [("on", "on"), ("True", "on"), ("no", "off"), ("0", "off"), ("auto", "auto"), ("AUTO", "auto")],
)
def test_the_switch_is_written_as_other_switches_are(given: str, value: str) -> None:
    assert THINKING.parse(given) == value


def test_objects_that_say_the_same_are_the_same() -> None:
    one, other = KWARGS.parse('{"b": 1, "a": "é"}'), KWARGS.checked({"a": "é", "b": 1})
    assert one == other == '{"a": "é", "b": 1}' == KWARGS.parse(KWARGS.show(one))


@pytest.mark.parametrize(
    "given", ["", "x", "[]", "3", '{"a": NaN}', '{"a": 1, "a": 2}', "{'a': 1}", '{"a": "\\ud800"}']
)
def test_what_is_no_object_is_refused(given: str) -> None:
    with refused("chat_template_kwargs", "JSON" if "ud800" not in given else "half a character"):
        KWARGS.parse(given)


def test_a_request_goes_before_what_holds_for_all() -> None:
    base = TemplateVariables("on", {"effort": "low"})
    assert TemplateVariables().over(base) == base
    assert TemplateVariables("off").over(base) == TemplateVariables("off", {"effort": "low"})
    asked = TemplateVariables(named={"enable_thinking": False})
    assert asked.over(base) == TemplateVariables("auto", {"effort": "low", "enable_thinking": False})
    fixed = TemplateVariables(named={"enable_thinking": True})
    assert TemplateVariables("off").over(fixed) == TemplateVariables("off")

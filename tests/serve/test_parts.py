"""The text of a chat's answer taken apart: reasoning, content, calls; however it is cut into pieces."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.answers.parts import AnswerForm, AnswerParts

HERMES = AnswerForm(thinks=True, calls="written", tools=("f", "g"))
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": "</tool", "y": [1, {}]}}\n</tool_call>'
ARGUMENTS = '{"x": "</tool", "y": [1, {}]}'
OTHER = '<tool_call>{"arguments":{},"name":"g"}</tool_call>'
LIST = AnswerForm(calls="list", tools=("f", "g"))


def read(form: AnswerForm, text: str, cuts: list[int]) -> tuple[str, str, list[tuple[str, str]], list[int]]:
    """Content, reasoning and calls, of a text that comes in pieces; and after which pieces calls came."""
    parts, content, reasoning = AnswerParts(form), "", ""
    calls, ids, when = list[list[str]](), set[str](), list[int]()
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(places)]
    for number, piece in enumerate([*pieces, ""]):
        delta = parts.push(piece, last=number == len(pieces))
        content, reasoning = content + delta.content, reasoning + delta.reasoning
        for call in delta.calls:
            if call.name is not None:
                assert call.id and call.id not in ids and call.index == len(calls)
                ids.add(call.id)
                calls.append([call.name, ""])
            calls[call.index][1] += call.arguments
            when.append(number)
    assert parts.called == bool(calls)
    return content, reasoning, [(name, arguments) for name, arguments in calls], when


CASES: list[tuple[AnswerForm, str, str, str, list[tuple[str, str]]]] = [
    (AnswerForm(), "a <think>b</think>", "a <think>b</think>", "", []),
    (HERMES, "plain <b> text ", "plain <b> text ", "", []),
    (HERMES, "<think>\nwhy\n\n</think>\n\nso", "so", "why", []),
    (HERMES, "\n <think></think>so", "so", "", []),
    (HERMES, "<think>cut off ", "", "cut off ", []),
    (HERMES, "so <think>b</think>", "so <think>b</think>", "", []),
    (AnswerForm(thinks=True, open=True), "why</think> so", "so", "why", []),
    (AnswerForm(thinks=True, open=True), "why </thin so", "", "why </thin so", []),
    (HERMES, CALL, "", "", [("f", ARGUMENTS)]),
    (HERMES, f"<think>why</think>\nI call: {CALL}\n{OTHER}\n", "I call:", "why", [("f", ARGUMENTS), ("g", "{}")]),
    (HERMES, f"a {OTHER} b", "ab", "", [("g", "{}")]),
    (HERMES, CALL.removesuffix("</tool_call>"), "", "", [("f", ARGUMENTS)]),
    (HERMES, CALL[:30], CALL[:30], "", []),
    (HERMES, CALL.replace('"f"', '"h"'), CALL.replace('"f"', '"h"'), "", []),
    (HERMES, "<tool_call>[1]</tool_call>", "<tool_call>[1]</tool_call>", "", []),
    (HERMES, "<tool_call>{</tool_call> <", "<tool_call>{</tool_call> <", "", []),
    (LIST, f'[{{"name": "f", "arguments": {ARGUMENTS}}}]', "", "", [("f", ARGUMENTS)]),
    (
        LIST,
        f'[{{"name": "f", "arguments": {ARGUMENTS}}}, {{"name": "g", "arguments": {{}}}}]',
        "",
        "",
        [("f", ARGUMENTS), ("g", "{}")],
    ),
    (LIST, '[{"name": "f", "arguments": {"x": "a', "", "", [("f", '{"x": "a')]),
    (LIST, '[{"name": "f', '{"name": "f', "", []),
    (AnswerForm(calls="arguments", tools=("f",)), ARGUMENTS, "", "", [("f", ARGUMENTS)]),
    (AnswerForm(calls="arguments", tools=("f",)), "", "", "", []),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[1][:40])
@given(cuts=st.lists(st.integers(0, 300), max_size=12))
def test_pieces_come_to_what_the_whole_is(case: Any, cuts: list[int]) -> None:
    form, text, content, reasoning, calls = case
    assert read(form, text, cuts)[:3] == (content, reasoning, calls)


@given(st.text('<think>/tool_call{}" \n', max_size=60), st.lists(st.integers(0, 60), max_size=8))
def test_nothing_is_lost_but_tags_and_space(text: str, cuts: list[int]) -> None:
    content, reasoning, calls, _ = read(HERMES, text, cuts)
    assert (content, reasoning, calls) == read(HERMES, text, [])[:3]
    said = "".join((reasoning, content, *(json.dumps(call) for call in calls)))
    for tag in ("<think>", "</think>", "<tool_call>", "</tool_call>"):
        text, said = text.replace(tag, ""), said.replace(tag, "")
    if not calls:
        assert "".join(text.split()) == "".join(said.split())


def test_a_call_is_told_as_soon_as_it_is_whole_and_text_before_it_is_not_held() -> None:
    *_, when = read(HERMES, f"{OTHER} x", [len(OTHER) - 1, len(OTHER)])
    assert when == [1]
    parts = AnswerParts(HERMES)
    assert [parts.push(piece).content for piece in ("a b", " <to", "ol> c")] == ["a b", "", " <tool> c"]
    parts = AnswerParts(HERMES)
    assert [parts.push(piece).reasoning for piece in ("<think>\na", " b\n", "c", "</think>")] == ["a", " b", "\nc", ""]
    *_, when = read(AnswerForm(calls="arguments", tools=("f",)), "abc", [1, 2])
    assert when == [0, 1, 2]

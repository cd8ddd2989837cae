"""Calls as models of several families write them: read in pieces, chosen by the template, with special tokens kept."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sampling.pair.pair_engine import PairEngine
from serve.answers.parts import AnswerForm
from serve.answers.syntax import SYNTAXES, syntax_of
from serve.jobs import Tokens
from serve.limits import ServerLimits
from tests.refusals import refused
from tests.serve.running import running
from tests.serve.test_parts import read
from tests.serve.test_server import GREEDY, SAID
from tests.serve.test_tools import HERMES, TOOLS, pair_with
from tests.tiny import tiny_pair

ROME = '{"city": "Rome"}'
DEEP = "<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>"
DEEP_CALL = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n{}\n```<｜tool▁call▁end｜>"
BOTH = [("f", ROME), ("g", "{}")]
# A syntax, an answer, its content and its calls.
ANSWERS: list[tuple[str, str, str, list[tuple[str, str]]]] = [
    ("mistral", f'[TOOL_CALLS] [{{"name": "f", "arguments": {ROME}}}, {{"name": "g", "arguments": {{}}}}]', "", BOTH),
    ("mistral", f"So: [TOOL_CALLS]f{ROME}[TOOL_CALLS]g{{}}", "So:", BOTH),
    ("mistral", f"[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{ROME}", "", BOTH[:1]),
    ("mistral", "[TOOL_CALLS]h{}", "[TOOL_CALLS]h{}", []),
    ("mistral", "[TOOL_CALLS]f{", "[TOOL_CALLS]f{", []),
    ("mistral", "A list [TOOL] of tools", "A list [TOOL] of tools", []),
    ("llama3_json", f'{{"name": "f", "parameters": {ROME}}}', "", BOTH[:1]),
    ("llama3_json", f'<|python_tag|>{{"name": "f", "parameters": {ROME}}}; {{"name": "g"}}', "", BOTH),
    ("llama3_json", '\n{"name": "h", "parameters": {}}', '\n{"name": "h", "parameters": {}}', []),
    ("llama3_json", '{"city": "Rome"} is it', '{"city": "Rome"} is it', []),
    ("llama3_json", 'It is {"name": "f", "parameters": {}}', 'It is {"name": "f", "parameters": {}}', []),
    ("granite", f'<|tool_call|>[{{"name": "f", "arguments": {ROME}}}]', "", BOTH[:1]),
    ("jamba", f'I call <tool_calls>[\n{{"name": "f", "arguments": {ROME}}}\n]</tool_calls>', "I call", BOTH[:1]),
    ("deepseek_v3", DEEP.format(DEEP_CALL.format("f", ROME) + "\n" + DEEP_CALL.format("g", "{}")), "", BOTH),
    ("deepseek_v3", DEEP.format("nothing"), DEEP.format("nothing"), []),
    ("pythonic", "[f(city='Rome'), g()]", "", BOTH),
    ("pythonic", "<|python_start|>[f(city='Rome')]<|python_end|>", "", BOTH[:1]),
    ("pythonic", "[f(city=open('x'))]", "[f(city=open('x'))]", []),
    ("pythonic", "[1, 2]", "[1, 2]", []),
    ("pythonic", "[f('Rome')]", "[f('Rome')]", []),
    ("pythonic", "[f(**{'a': 1})]", "[f(**{'a': 1})]", []),
    ("hermes", f'<tool_call>{{"name": "f", "arguments": {ROME}}}</tool_call>', "", BOTH[:1]),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: f"{answer[0]}: {answer[1][:24]}")
@given(cuts=st.lists(st.integers(0, 300), max_size=12))
def test_calls_are_read_however_they_are_cut(answer: Any, cuts: list[int]) -> None:
    syntax, text, content, calls = answer
    form = AnswerForm(calls="written", tools=("f", "g"), syntax=syntax)
    assert read(form, text, cuts)[:3] == (content, "", calls)


def test_every_syntax_is_tried() -> None:
    assert {answer[0] for answer in ANSWERS if answer[3]} == set(SYNTAXES)


@pytest.mark.parametrize("name", SYNTAXES)
def test_a_template_shows_its_own(name: str) -> None:
    sign = SYNTAXES[name].sign
    assert syntax_of(f"{{% if tools %}}{sign}{{% endif %}}", True) == name
    assert syntax_of(sign, False) == "hermes", "it is told of tools in Hermes' words"
    assert syntax_of(f"{sign} <function=f>", True) is None and syntax_of("tools", True) is None


def test_special_tokens_of_a_syntax_stay_in_the_text_and_others_go() -> None:
    tokens = Tokens(PairEngine(tiny_pair()))
    ids = tokens.encode_text("<|im_start|>ab<|im_end|>c", False)
    assert tokens.decode(ids) == "abc"
    assert tokens.decode_keeping(("<|im_start|>", "[NOWHERE]"))(ids) == "<|im_start|>abc"
    assert tokens.decode_keeping(("[NOWHERE]",)) == tokens.decode


def asked(found: Any, regex: str, **more: Any) -> Any:
    return found.client().chat.completions.create(
        messages=SAID, tools=TOOLS, max_tokens=80, extra_body={"structured_outputs": {"regex": regex}}, **GREEDY, **more
    )


@pytest.mark.parametrize(("parser", "template"), [("mistral", HERMES), ("auto", HERMES + "{# [TOOL_CALLS] #}")])
def test_a_server_reads_them(parser: str, template: str) -> None:
    """By the flag, or by the template, whose turns take ids of nine letters."""
    with running(pair_with(template), ServerLimits(size=2, tool_parser=parser)) as found:
        regex = re.escape('[TOOL_CALLS] [{"name": "clock", "arguments": {}}]')
        choice = asked(found, regex).choices[0]
        (call,) = choice.message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == ("clock", {})
        assert choice.finish_reason == "tool_calls" and re.fullmatch("[0-9a-z]{9}", call.id)
        pieces = [
            piece for chunk in asked(found, regex, stream=True) for piece in (chunk.choices[0].delta.tool_calls or ())
        ]
        assert [(piece.function.name, piece.function.arguments) for piece in pieces] == [("clock", "{}")]


def test_a_parser_that_is_none_is_refused() -> None:
    from typer import Typer
    from typer.testing import CliRunner

    from serve.command import serve

    app = Typer()
    app.command()(serve)
    result = CliRunner().invoke(app, ["--tool-parser", "lama3_json"])
    assert result.exit_code == 2 and "llama3_json" in result.output
    with refused("lama3_json"):
        SYNTAXES["lama3_json"]

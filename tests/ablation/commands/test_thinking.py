"""--thinking and --chat-template-kwargs of the commands, in plans, in records and at --resume."""

import json
from pathlib import Path
from typing import Any

import pytest

from ablation.commands.shared.written import command_line, plan_text
from ablation.plan.file import read_experiment
from ablation.plan.grid import Configuration
from ablation.plan.overrides import Overrides
from sampling.methods.chat_template import TemplateVariables
from sampling.pair.pair import Pair
from tests.ablation.conftest import Invoke, objects
from tests.ablation.plan_files import SPECULATIVE, Write, refusal
from tests.tiny import CHAT, THINKS

_OFF = '{"enable_thinking": false}'
_RUN = ("run", "--prompt", "a", "--methods", "target", "--length", 3, "--json")


@pytest.fixture
def pair(pair: Pair) -> Pair:
    pair.tokenizer.chat_template = THINKS
    return pair


def ids(pair: Pair, thinking: str = "auto") -> list[int]:
    return pair.encode(["a"], True, None, TemplateVariables(thinking))


def record(invoke: Invoke, *flags: object) -> dict[str, Any]:
    result = invoke(*_RUN, *flags)
    assert result.exit_code == 0, result.stderr
    return objects(result.stdout)[0]


@pytest.mark.parametrize(
    ("flags", "settings"),
    [
        (("--thinking", "off"), {"thinking": "off", "chat_template_kwargs": "{}"}),
        (("--set", "thinking=off"), {"thinking": "off"}),
        (("--chat-template-kwargs", _OFF), {"thinking": "auto", "chat_template_kwargs": _OFF}),
    ],
)
def test_a_run_renders_as_it_is_told_and_writes_it_down(
    invoke: Invoke, pair: Pair, flags: tuple[str, ...], settings: dict[str, str]
) -> None:
    plain, told = record(invoke), record(invoke, *flags)
    assert (plain["prompt_tokens"], told["prompt_tokens"]) == (len(ids(pair)), len(ids(pair, "off")))
    assert len(ids(pair)) < len(ids(pair, "off"))
    assert told["settings"].items() >= settings.items() and plain["settings"]["thinking"] == "auto"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--thinking", "maybe"), ("thinking", "'maybe'", "auto, on, off")),
        (("--chat-template-kwargs", "{a}"), ("chat_template_kwargs", "'{a}'", "JSON object")),
        (("--chat-template-kwargs", "[1]"), ("'[1]'", "JSON object")),
        (("--thinking", "on", "--set", "thinking=off"), ("given twice",)),
        (("--thinking", "on", "--chat-template-kwargs", _OFF), ("both alike",)),
        (("--chat-template-kwargs", '{"enabel_thinking": true}'), ("'enable_thinking'",)),
        (("--thinking", "on", "--set", "chat=off"), ("thinking on", "without its chat template")),
    ],
)
def test_a_wrong_call_ends_with_2_and_a_sentence(invoke: Invoke, flags: tuple[str, ...], says: tuple[str, ...]) -> None:
    result = invoke(*_RUN, *flags)
    assert result.exit_code == 2 and not result.stdout
    assert all(part in result.stderr for part in says), result.stderr


def test_a_template_without_a_switch_ends_the_call_before_anything_is_written(invoke: Invoke, pair: Pair) -> None:
    pair.tokenizer.chat_template = CHAT
    result = invoke(*_RUN, "--thinking", "off")
    assert result.exit_code == 2 and not result.stdout
    assert "thinking off given, and the chat template of tiny reads neither" in result.stderr


@pytest.mark.parametrize(
    ("lines", "values"),
    [
        ('thinking = "off"', ("off", "{}")),
        ("thinking = false", ("off", "{}")),
        ("chat_template_kwargs = { enable_thinking = false }", ("auto", _OFF)),
        (f"chat_template_kwargs = '{_OFF}'", ("auto", _OFF)),
        ("[settings.chat_template_kwargs]\nenable_thinking = false", ("auto", _OFF)),
    ],
)
def test_a_plan_holds_them(write: Write, lines: str, values: tuple[str, str]) -> None:
    found = read_experiment(write(f"[settings]\n{lines}", SPECULATIVE)).plan.values
    assert (found["thinking"], found["chat_template_kwargs"]) == values


def test_the_command_line_goes_before_the_plan(write: Write) -> None:
    plan = write('[settings]\nthinking = "on"', SPECULATIVE)
    values = read_experiment(plan, Overrides(thinking="off", chat_template_kwargs='{"a":1}')).plan.values
    assert (values["thinking"], values["chat_template_kwargs"]) == ("off", '{"a": 1}')
    said = refusal(plan, Overrides(thinking="off", assignments=("thinking=on",)))
    assert "thinking is given twice" in said


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('thinking = "of"', ("line 3", "thinking", "'of'")),
        ("chat_template_kwargs = 3", ("line 3", "chat_template_kwargs", "'3'", "JSON object")),
        ("chat_template_kwargs = { a = 2020-01-01 }", ("line 3", "chat_template_kwargs")),
        ("chat_template_kwargs = { a = nan }", ("line 3", "chat_template_kwargs", "NaN")),
        ("cache = { a = 1 }", ("line 3", "cache", "on")),
    ],
)
def test_a_plan_with_nonsense_is_refused_with_its_line(write: Write, line: str, says: tuple[str, ...]) -> None:
    said = refusal(write(f"[settings]\n{line}", SPECULATIVE))
    assert all(part in said for part in says), said


def test_rows_of_another_rendering_are_not_added_to(call: Invoke, pair: Pair, tmp_path: Path, undrawn: None) -> None:
    out = tmp_path / "r.csv"
    asked = ("--prompt", "a", "--methods", "speculative", "--length", 3, "--out", out)
    assert call("quick", *asked, "--thinking", "off").exit_code == 0
    grid = json.loads((tmp_path / "r.manifest.json").read_text())["fixed"]["grid"]["configurations"]
    assert {about["thinking"] for about in grid.values()} == {"off"}
    assert call("quick", *asked, "--thinking", "off", "--resume").exit_code == 0
    for flags in ((), ("--thinking", "on"), ("--thinking", "off", "--chat-template-kwargs", _OFF)):
        other = call("quick", *asked, *flags, "--resume")
        assert other.exit_code == 2 and "this run differs from the one that wrote the file" in other.stderr


def test_advice_is_written_with_them() -> None:
    settings = {"length": "32", "thinking": "off", "chat_template_kwargs": _OFF}
    assert "--thinking off --chat-template-kwargs" in command_line(Configuration("suffix"), "p", {}, settings)
    text = plan_text(Configuration("suffix"), ["p"], {}, settings)
    assert '[settings]\nthinking = "off"\nchat_template_kwargs = ' in text

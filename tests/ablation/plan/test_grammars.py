"""Grammars of prompts: in a file's lines, over the plan's own, and in what is compared with a results file."""

import json
from pathlib import Path

from ablation.plan.file import read_experiment
from ablation.plan.prompts.file import parse_prompt, read_prompts
from tests.refusals import refused

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
KEPT = "json_schema:" + json.dumps(SCHEMA, separators=(",", ":"))


def test_a_line_brings_a_schema_a_file_beside_it_or_a_text(tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "a.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    grammars = [SCHEMA, "schemas/a.json", "json", "regex:[0-9]+", None, "off"]
    lines = [json.dumps({"prompt": "x", "grammar": grammar}) for grammar in grammars]
    (tmp_path / "p.jsonl").write_text("\n".join(lines), encoding="utf-8")
    kept = [prompt.grammar for prompt in read_prompts(tmp_path / "p.jsonl")]
    assert kept == [KEPT, KEPT, "json", "regex:[0-9]+", None, "off"]


def test_a_line_with_a_wrong_grammar_is_refused() -> None:
    for grammar in (3, "nowhere.json", {"type": "strin"}):
        with refused("grammar"):
            parse_prompt(json.dumps({"prompt": "x", "grammar": grammar}), 1)


def test_a_plan_has_a_grammar_and_its_prompts_have_theirs(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    (tmp_path / "p.jsonl").write_text('{"prompt": "x"}\n{"prompt": "y", "grammar": "json"}', encoding="utf-8")
    for written in ('"a.json"', '{type = "object", properties = {a = {type = "integer"}}}'):
        text = f'prompts = "p.jsonl"\n[settings]\ngrammar = {written}\n[[methods]]\nmethod = "suffix"\n'
        (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
        plan = read_experiment(str(tmp_path / "plan.toml")).plan
        assert [plan.grammar(prompt) for prompt in plan.prompts] == [KEPT, "json"]

"""The prompt set `json` and its plan: a schema for every prompt, and every drafter with and without the grammar's."""

import json
from typing import Any

import jsonschema

from ablation.plan.file import read_experiment
from ablation.plan.prompts.file import Prompt, read_prompts
from ablation.plan.prompts.sets import ALL, FOLDER, find_sources
from sampling.grammar.spelling import SCHEMA
from tests.ablation.plan_files import names

PROMPTS = {str(prompt.id): prompt for prompt in read_prompts(FOLDER / "json.jsonl")}


def schema_of(prompt: Prompt) -> Any:
    kind, _, source = (prompt.grammar or "").partition(":")
    assert kind == SCHEMA, prompt.id
    return json.loads(source)


def limits(schema: Any) -> bool:
    """Whether what a schema says has an end: objects are closed, texts, numbers and lists have limits."""
    if "anyOf" in schema:
        return all(map(limits, schema["anyOf"]))
    needs = {"string": {"maxLength"}, "integer": {"minimum", "maximum"}, "array": {"maxItems", "items"}}
    if "pattern" in schema:
        return schema["pattern"].startswith("^") and schema["pattern"].endswith("$")
    if schema.get("type") == "object":
        closed = schema["additionalProperties"] is False and list(schema["properties"]) == schema["required"]
        return closed and all(map(limits, schema["properties"].values()))
    if "type" not in schema:
        return bool(schema.keys() & {"enum", "const"})
    return needs.get(schema["type"], set()) <= schema.keys() and limits(schema.get("items", {"const": 0}))


def test_every_prompt_has_a_schema_that_ends() -> None:
    assert len(PROMPTS) == 20
    for prompt in PROMPTS.values():
        schema = schema_of(prompt)
        jsonschema.Draft202012Validator.check_schema(schema)
        assert limits(schema), prompt.id
    assert not limits({"type": "string"}) and not limits({"type": "array", "items": {"const": 1}})


def test_free_answers_stay_apart() -> None:
    free = {path.stem for path in find_sources([ALL], FOLDER)}
    assert free == {"dialogue", "translation", "long", "code", "grounded"}
    assert [path.stem for path in find_sources([ALL, "json"], FOLDER)].count("json") == 1


def test_the_plan_has_each_drafter_with_and_without_the_grammar_s_drafts() -> None:
    plan = read_experiment("grammar")
    assert [plan.plan.grammar(prompt) for prompt in plan.plan.prompts] == [p.grammar for p in PROMPTS.values()]
    named = names(plan)
    alone = {"suffix": "suffix", "mtp": "mtp", "model": "speculative", "suffix_or_model": "suffix_or_model"}
    for behind, method in alone.items():
        assert any(name.split()[0] == method for name in named), method
        assert any(f"grammar_else={behind}" in name.replace(",", " ").split() for name in named), behind
    for first in ("on", "off"):
        assert any(name.startswith(f"auto grammar_first={first}") for name in named)

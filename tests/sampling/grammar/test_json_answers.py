"""Answers of the default model under the schemas of the prompt set `json`."""

import json
from typing import Any

import jsonschema
import pytest

from ablation.plan.prompts.file import read_prompts
from ablation.plan.prompts.sets import FOLDER
from sampling.api.compare import compare
from sampling.grammar.vocabulary import vocabulary_of
from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from utils.text import quoted

PROMPTS = {str(prompt.id): prompt for prompt in read_prompts(FOLDER / "json.jsonl")}


@pytest.fixture(scope="module")
def embedded() -> Any:
    return load_pair(LoadOptions(dtype="float32"))


def test_every_schema_compiles_for_the_default_model(embedded: Any) -> None:
    vocabulary = vocabulary_of(embedded.tokenizer, embedded.target.vocab_size, embedded.stop)
    for prompt in PROMPTS.values():
        assert prompt.grammar is not None
        assert not vocabulary.matcher(prompt.grammar).is_error(), prompt.id


@pytest.mark.parametrize(
    ("name", "more"),
    [("json-06", ("suffix", "auto")), ("json-08", ()), ("json-16", ())],
    ids=["json-06", "json-08", "json-16"],
)
def test_answers_of_the_default_model_are_valid(embedded: Any, name: str, more: tuple[str, ...]) -> None:
    """Other methods than the grammar's own on one schema: what they draft is not the schema's matter."""
    prompt = PROMPTS[name]
    settings = {"length": 128, "grammar": prompt.grammar}
    runs = compare(embedded, prompt.turns[0], ("grammar_drafts", *more), **settings)
    for method, run in runs.items():
        jsonschema.validate(json.loads(run.text), json.loads((prompt.grammar or "").partition(":")[2]))
        assert run.text == runs["target"].text, quoted(method)
    forced = runs["grammar_drafts"].metrics
    assert forced.forced and forced.rounds < runs["target"].metrics.rounds

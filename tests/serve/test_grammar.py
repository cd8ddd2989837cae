"""What a request says of the answer's form, in OpenAI's words and in vLLM's."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.running import Running, running
from tests.serve.test_server import GREEDY, SAID
from tests.tiny import tiny_pair

KIND = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "dog"]}},
    "required": ["kind"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def served() -> Iterator[Running]:
    with running(tiny_pair()) as found:
        yield found


def answer(served: Running, method: str, **fields: Any) -> str:
    body = {"speculative": {"method": method}, **fields}
    said = served.client().chat.completions.create(messages=SAID, max_tokens=40, extra_body=body, **GREEDY)
    assert said.choices[0].finish_reason == "stop"
    return said.choices[0].message.content or ""


@pytest.mark.parametrize("method", ["target", "speculative", "grammar_drafts", "suffix"])
def test_an_answer_is_what_its_schema_says(served: Running, method: str) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "kind", "strict": True, "schema": KIND}}
    text = answer(served, method, response_format=schema)
    assert json.loads(text)["kind"] in ("cat", "dog")
    assert text == answer(served, "target", structured_outputs={"json": KIND})


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        ({"regex": "[0-7]{3}!"}, None),
        ({"choice": ["yes", "no"]}, ("yes", "no")),
        ({"grammar": 'start: "a" ("b" | "c")'}, ("ab", "ac")),
    ],
)
def test_vllms_forms(served: Running, asked: dict[str, Any], allowed: tuple[str, ...] | None) -> None:
    text = answer(served, "speculative", structured_outputs=asked)
    assert text in allowed if allowed else len(text) == 4 and text[:3].isdigit() and text[3] == "!"


def test_a_text_format_asks_for_nothing(served: Running) -> None:
    plain = served.client().chat.completions.create(messages=SAID, max_tokens=8, **GREEDY)
    said = served.client().chat.completions.create(
        messages=SAID, max_tokens=8, response_format={"type": "text"}, **GREEDY
    )
    assert said.choices[0].message.content == plain.choices[0].message.content


def test_several_prompts_share_a_grammar(served: Running) -> None:
    asked = {"prompt": ["a", "b"], "max_tokens": 12, "temperature": 0, "model": "tiny"}
    said = served.client().completions.create(**asked, extra_body={"structured_outputs": {"regex": "x{5}"}})
    assert [choice.text for choice in said.choices] == ["xxxxx", "xxxxx"]

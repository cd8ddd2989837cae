"""How grammars are written, what is kept of them, and what is refused."""

import json
from pathlib import Path

import pytest

from sampling.grammar.spelling import GRAMMAR, read_grammar, written
from sampling.methods.settings import Settings
from tests.refusals import refused

SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "boolean"}}}
KEPT = "json_schema:" + json.dumps(SCHEMA, separators=(",", ":"))


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("off", "off"),
        ("no", "off"),
        ("JSON", "json"),
        (json.dumps(SCHEMA, indent=2), KEPT),
        (f"json_schema:{json.dumps(SCHEMA)}", KEPT),
        ("regex:[0-9]+", "regex:[0-9]+"),
        ('lark:start: "a" | "b"\n', 'lark:start: "a" | "b"'),
        ('choice:["yes", "no"]', 'lark:start: "yes" | "no"'),
    ],
)
def test_one_form_is_kept_which_reads_as_itself(typed: str, kept: str) -> None:
    assert GRAMMAR.parse(typed) == kept == GRAMMAR.parse(GRAMMAR.show(kept))


def test_a_file_is_read_by_its_ending(tmp_path: Path) -> None:
    for name, text, kept in (
        ("a.json", json.dumps(SCHEMA), KEPT),
        ("a.regex", "[0-9]+", "regex:[0-9]+"),
        ("a.lark", 'start: "a"\n', 'lark:start: "a"'),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert read_grammar(str(tmp_path / name)) == read_grammar(name, tmp_path) == kept


def test_python_takes_a_schema_as_it_is() -> None:
    assert GRAMMAR.checked(SCHEMA) == KEPT
    assert read_grammar(written("json_schema", SCHEMA)) == KEPT
    assert Settings()["grammar"] == "off"


@pytest.mark.parametrize(
    ("typed", "quoted"),
    [
        ("xml", ("xml", ".lark")),
        ("nowhere.json", ("nowhere.json", "No such file or directory")),
        ("regex:a(b", ("regex", "unclosed group")),
        ("lark:start: a", ("lark", "unknown name")),
        ("json_schema:[1]", ("json_schema", "[1]")),
        ("json_schema:{", ("json_schema",)),
        ('{"type": "strin"}', ("strin",)),
        ("choice:yes", ("choice", "yes")),
        ("choice:[]", ("choice",)),
        ("choice:[3]", ("choice",)),
        ("regex:\ud800", ("grammar",)),
    ],
)
def test_what_is_no_grammar_is_refused(typed: str, quoted: tuple[str, ...]) -> None:
    with refused(*quoted):
        read_grammar(typed)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.lark").write_bytes(b"\xff")
    with refused("UTF-8"):
        read_grammar("a.lark", tmp_path)

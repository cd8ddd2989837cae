"""How a person writes a grammar, and the one form that settings, records and prompts keep of it. No torch here.

A grammar is a text: `off`, `json`, or a kind with its source behind a colon, such as `regex:[0-9]+`. A file is read
once, and its source is what is kept: a record can be run again when the file is gone.
"""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from utils.errors import UserError, checked_text, one_of
from utils.files import checked_path
from utils.json_text import read_json
from utils.parameter import OFF, Parameter
from utils.text import first_line, quoted

OFF_WORD, JSON_WORD = "off", "json"
SCHEMA, REGEX, LARK, CHOICE = "json_schema", "regex", "lark", "choice"
KINDS = (SCHEMA, REGEX, LARK)
_SUFFIXES = {".json": SCHEMA, ".regex": REGEX, ".lark": LARK}
_USAGE = "off, json, a JSON Schema, a file (.json, .regex, .lark), or json_schema:, regex:, lark: or choice: and a text"
_ANY_OBJECT = '{"type":"object"}'
# One spelling, that of Python's `json.dumps`: more is forced, and a small model cannot write white space for ever.
_SPELLING: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def read_grammar(text: str, beside: Path = Path()) -> str:
    """The grammar that a text stands for, in the form that is kept. beside: what the path of a file begins at.

    Raises `UserError` for a file that cannot be read, and for what is no grammar.
    """
    kind, colon, source = text.partition(":")
    if text.lower() in (*OFF, JSON_WORD):
        return JSON_WORD if text.lower() == JSON_WORD else OFF_WORD
    if text.lstrip().startswith("{"):
        return _checked(SCHEMA, text)
    if colon and kind == CHOICE:
        return _checked(LARK, _choice(source))
    if colon and kind in KINDS:
        return _checked(kind, source)
    path = beside / checked_path(text, "grammar")
    if path.suffix not in _SUFFIXES:
        raise UserError(f"grammar: {quoted(text)} given; expected {_USAGE}")
    return _checked(_SUFFIXES[path.suffix], _read(path))


def written(kind: str, source: Any) -> str:
    """A grammar of this kind, as `read_grammar` takes it; a schema and choices may be values of JSON."""
    return f"{kind}:{source if isinstance(source, str) else json.dumps(source, ensure_ascii=False)}"


def compiled(grammar: str) -> str:
    """What llguidance makes of a grammar in the form that is kept; not `off`. Raises `UserError`."""
    from llguidance import LLMatcher  # a library of its own, which nobody without a grammar needs

    kind, _, source = grammar.partition(":")
    if kind == REGEX:
        return LLMatcher.grammar_from_regex(source)
    if kind == LARK:
        return LLMatcher.grammar_from_lark(source)
    return LLMatcher.grammar_from_json_schema(source if kind == SCHEMA else _ANY_OBJECT, defaults=_SPELLING)


@lru_cache(maxsize=64)
def _checked(kind: str, source: str) -> str:
    """Raises `UserError` where llguidance cannot compile it."""
    from llguidance import LLMatcher

    if kind == SCHEMA:
        source = _schema(source)
    grammar = f"{kind}:{checked_text(source.strip() if kind == LARK else source, 'grammar')}"
    wrong = LLMatcher.validate_grammar(compiled(grammar))
    if wrong and not wrong.startswith("WARNING"):
        raise UserError(f"grammar: {kind} {quoted(source)} given: {_reason(wrong)}; expected {_KIND_NAMES[kind]}")
    return grammar


def _reason(wrong: str) -> str:
    """What llguidance says first; of a regular expression, what its parser says last."""
    said = [line.removeprefix("error: ") for line in wrong.splitlines() if line.startswith("error: ")]
    return first_line(said[0] if said else wrong)


_KIND_NAMES = {
    SCHEMA: "a JSON Schema of keywords that llguidance knows",
    REGEX: "a regular expression in Rust's syntax",
    LARK: "a Lark grammar with a rule `start`",
}


def _schema(source: str) -> str:
    """The schema in one form; the order of its keys is kept, which is the order of the answer's."""
    try:
        value = read_json(source)
    except UserError as error:
        raise UserError(f"grammar: json_schema {quoted(source)} given: {error}; expected a JSON Schema") from None
    if not isinstance(value, dict):
        raise UserError(f"grammar: json_schema {quoted(source)} given; expected an object, such as {_ANY_OBJECT}")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _choice(source: str) -> str:
    """A Lark grammar of the texts of a JSON list."""
    try:
        texts = read_json(source)
    except UserError:
        texts = None
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        raise UserError(f'grammar: choice {quoted(source)} given; expected a JSON list of texts, such as ["yes", "no"]')
    return f"start: {' | '.join(json.dumps(text, ensure_ascii=False) for text in texts)}"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"grammar: {path} is no text in UTF-8") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UserError(f"grammar: {path} cannot be read: {reason}; expected {one_of(_SUFFIXES)} file") from None


GRAMMAR = Parameter(
    "grammar",
    OFF_WORD,
    "what the answer must be: any JSON object, or what a JSON Schema, a regular expression or a Lark grammar says",
    "FILE|json|off",
    read_grammar,
    words=(JSON_WORD, OFF_WORD),
)

"""Prompts from a JSONL file: plain, questions of benchmarks, or messages of chats (docs/prompts.md)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.plan.prompts.messages import Messages, read_messages
from sampling.grammar.spelling import GRAMMAR, SCHEMA, read_grammar, written
from utils.errors import UnknownName, UserError, checked_text, wrong_value
from utils.json_text import read_json
from utils.parameter import MOST_TOKENS, integer
from utils.text import quoted

# Each thing that a line may say, by the names that our own files and those of benchmarks give it.
_SAID, _ID, _TASK, _LIMIT = (
    ("prompt", "data", "turns", "messages"),
    ("id", "question_id"),
    ("task", "category"),
    "max_new_tokens",
)
_KEYS = (_SAID[0], _ID[0], _TASK[0], _LIMIT, GRAMMAR.name, "source")
# What SPEED-Bench publishes in place of texts that its script fetches from where they are.
_NOT_FETCHED = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"
_SHOWN_ERRORS = 10
_LONGEST_ID = 200
_MOST_TOKENS = integer(_LIMIT, None, "maximum number of new tokens", minimum=1, maximum=MOST_TOKENS)


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a user says, turn by turn. `max_new_tokens` overrides the run's length.

    system: what the chat template puts before everything. given: what was said before each turn and is not played, user
    messages and their answers alternating; empty where there is none before any. grammar: overrides the run's.
    """

    id: str | int
    turns: tuple[str, ...]
    task: str | None = None
    max_new_tokens: int | None = None
    system: str | None = None
    given: tuple[tuple[str, ...], ...] = ()
    grammar: str | None = None

    def before(self, turn: int) -> tuple[str, ...]:
        """What was said between the turn before and this one (from 1), and is not played."""
        return self.given[turn - 1] if self.given else ()

    @property
    def opening(self) -> list[str]:
        """What the first answer continues: user turns and answers alternate, the last turn is the user's."""
        return [*self.before(1), self.turns[0]]

    @property
    def texts(self) -> list[str]:
        """All that is said in it, in order."""
        said = [text for turn, text in enumerate(self.turns, start=1) for text in (*self.before(turn), text)]
        return said if self.system is None else [self.system, *said]


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """All prompts of a file, blank lines skipped.

    Raises `UserError` for a file that cannot be read or holds no prompt, and for bad lines: the number
    of each (the first ten) and what is wrong with it.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"prompt file {str(path)!r} cannot be read: {why}; expected a JSONL file of prompts") from None
    prompts: dict[str | int, Prompt] = {}
    bad = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            prompt = parse_prompt(line, number, path.parent)
            if prompt.id in prompts:
                raise UserError(f"id {quoted(prompt.id)} is taken by an earlier line; expected every id once")
            prompts[prompt.id] = prompt
        except UserError as error:
            bad.append(f"line {number}: {error}")
    if bad:
        more = [f"and {len(bad) - _SHOWN_ERRORS} more bad lines"] if len(bad) > _SHOWN_ERRORS else []
        raise UserError("\n  ".join([f"prompt file {str(path)!r}:", *bad[:_SHOWN_ERRORS], *more]))
    if not prompts:
        raise UserError(f"prompt file {str(path)!r} holds no prompt; expected one JSON object per line")
    return tuple(prompts.values())


def parse_prompt(line: str, number: int, beside: Path = Path()) -> Prompt:
    """One line of a prompt file; `number` is its id when it brings none. Raises `UserError`.

    beside: what the path of a grammar begins at.
    """
    entry = read_json(line)
    if not isinstance(entry, dict):
        raise UserError(f"a {type(entry).__name__} given; expected a JSON object")
    for names in (_SAID, _ID, _TASK):
        names_given = [name for name in names if name in entry]
        if len(names_given) > 1:
            raise UserError(f"{names_given[0]!r} and {names_given[1]!r} are both there; expected one of them")
    if not {"turns", "messages"} & entry.keys():  # a question may bring what only its benchmark reads
        for key in entry:
            if key not in (*_KEYS, *_SAID, *_ID, *_TASK):
                raise UnknownName("key", key, _KEYS)
    said = read_messages(entry["messages"]) if "messages" in entry else Messages(_turns(entry), ())
    if said.turns[0].startswith(_NOT_FETCHED):
        raise UserError("SPEED-Bench's placeholder given; expected the text, which the benchmark's prepare.py fetches")
    about = _task(entry), _limit(entry), said.system, said.given
    return Prompt(_id(entry, number), said.turns, *about, _grammar(entry, beside))


def _turns(entry: Mapping[str, Any]) -> tuple[str, ...]:
    if "turns" not in entry:
        key = next((name for name in ("prompt", "data") if name in entry), "")
        if not key:
            raise UserError("none of 'prompt', 'data', 'turns' and 'messages' is there; expected one of them")
        return (_said(entry[key], key),)
    turns = entry["turns"]
    if not isinstance(turns, list) or not turns:
        raise wrong_value("turns", turns, "a list of one or more strings")
    return tuple(_said(turn, f"turn {place}") for place, turn in enumerate(turns, start=1))


def _id(entry: Mapping[str, Any], number: int) -> str | int:
    key = next((name for name in _ID if name in entry), "")
    value = entry.get(key, number)
    if type(value) not in (str, int):
        raise wrong_value(key, value, "a string or an integer")
    if not str(value).strip():
        raise wrong_value(key, value, "a string that is not empty")
    if len(str(value)) > _LONGEST_ID:
        raise UserError(f"{key}: {len(str(value))} characters given; expected at most {_LONGEST_ID}")
    return checked_text(value, key) if isinstance(value, str) else value


def _task(entry: Mapping[str, Any]) -> str | None:
    key = next((name for name in _TASK if name in entry), "")
    value = entry.get(key)
    if value is not None and not isinstance(value, str):
        raise wrong_value(key, value, "a string")
    if value is not None and len(value) > _LONGEST_ID:
        raise UserError(f"{key}: {len(value):,} characters given; expected at most {_LONGEST_ID}")
    return value and checked_text(value, key)


def _limit(entry: Mapping[str, Any]) -> int | None:
    value = entry.get(_LIMIT)
    if value is None:
        return None
    if type(value) is not int:
        raise wrong_value(_LIMIT, value, "an integer of 1 or more")
    return int(_MOST_TOKENS.parse(str(value)))


def _grammar(entry: Mapping[str, Any], beside: Path) -> str | None:
    value = entry.get(GRAMMAR.name)
    if isinstance(value, dict):
        return read_grammar(written(SCHEMA, value))
    if value is not None and not isinstance(value, str):
        raise wrong_value(GRAMMAR.name, value, "a JSON Schema, or a text such as json or a file's name")
    return None if value is None else read_grammar(value, beside)


def _said(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise wrong_value(what, value, "a string that is not empty")
    return checked_text(value, what)

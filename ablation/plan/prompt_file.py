"""Prompts from a JSONL file: plain prompts, or questions of Spec-Bench and MT-Bench as they are."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utils.errors import UnknownName, UserError, wrong_value
from utils.text import checked_text

_KEYS = ("prompt", "id", "task", "max_new_tokens", "source")
_SHOWN_ERRORS = 10
_LONGEST_ID = 200


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a user says, turn by turn. `max_new_tokens` overrides the run's length."""

    id: str | int
    turns: tuple[str, ...]
    task: str | None = None
    max_new_tokens: int | None = None


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """All prompts of a file, blank lines skipped.

    Raises `UserError` for a file that cannot be read or holds no prompt, and for bad lines: the number
    of each (the first ten) and what is wrong with it.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"prompt file {str(path)!r} cannot be read: {_why(error)}") from None
    prompts: dict[str | int, Prompt] = {}
    bad = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            prompt = parse_prompt(line, number)
            if prompt.id in prompts:
                raise UserError(f"id {prompt.id!r} is taken by an earlier line; expected every id once")
            prompts[prompt.id] = prompt
        except UserError as error:
            bad.append(f"line {number}: {error}")
    if bad:
        more = [f"and {len(bad) - _SHOWN_ERRORS} more bad lines"] if len(bad) > _SHOWN_ERRORS else []
        raise UserError("\n  ".join([f"prompt file {str(path)!r}:", *bad[:_SHOWN_ERRORS], *more]))
    if not prompts:
        raise UserError(f"prompt file {str(path)!r} holds no prompt; expected one JSON object per line")
    return tuple(prompts.values())


def parse_prompt(line: str, number: int) -> Prompt:
    """One line of a prompt file; `number` is its id when it brings none. Raises `UserError`."""
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise UserError(f"not JSON: {error}") from None
    if not isinstance(entry, dict):
        raise UserError(f"a {type(entry).__name__} given; expected a JSON object")
    return _question(entry, number) if "turns" in entry else _plain(entry, number)


def _plain(entry: Mapping[str, Any], number: int) -> Prompt:
    for key in entry:
        if key not in _KEYS:
            raise UnknownName("key", key, _KEYS)
    if "prompt" not in entry:
        raise UserError("neither 'prompt' nor 'turns' is there; expected one of them")
    limit = entry.get("max_new_tokens")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise wrong_value("max_new_tokens", limit, "an integer of 1 or more")
    return Prompt(_id(entry, "id", number), (_said(entry["prompt"], "prompt"),), _task(entry, "task"), limit)


def _question(entry: Mapping[str, Any], number: int) -> Prompt:
    turns = entry["turns"]
    if not isinstance(turns, list) or not turns:
        raise wrong_value("turns", turns, "a list of one or more strings")
    said = tuple(_said(turn, f"turn {place}") for place, turn in enumerate(turns, start=1))
    return Prompt(_id(entry, "question_id", number), said, _task(entry, "category"))


def _id(entry: Mapping[str, Any], key: str, number: int) -> str | int:
    value = entry.get(key, number)
    if type(value) not in (str, int):
        raise wrong_value(key, value, "a string or an integer")
    if len(str(value)) > _LONGEST_ID:
        raise UserError(f"{key}: {len(str(value))} characters given; expected at most {_LONGEST_ID}")
    return checked_text(value, key) if isinstance(value, str) else value


def _task(entry: Mapping[str, Any], key: str) -> str | None:
    value = entry.get(key)
    if value is not None and not isinstance(value, str):
        raise wrong_value(key, value, "a string")
    return value


def _said(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise wrong_value(what, value, "a string that is not empty")
    return checked_text(value, what)


def _why(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)

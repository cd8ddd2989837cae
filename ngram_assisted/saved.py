"""Counts of n-grams as a JSON file. A file is loaded completely or not at all."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ngram_assisted.ngram_storage import Gram, NGramStorage
from sampling.methods.choices import STORAGES
from utils.errors import UserError

_FORMAT = "n-gram counts"
_VERSION = 1

Entry = tuple[Gram, list[tuple[int, int]]]


def vocabulary_digest(vocabulary: Mapping[str, int]) -> str:
    """A hash of a vocabulary: the counts of one tokenizer are meaningless for another."""
    pairs = sorted(vocabulary.items(), key=lambda pair: pair[1])
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()


def dumps(storage: NGramStorage, vocabulary: str) -> str:
    """The text of the file, with one context per line. vocabulary: the digest of the tokenizer's vocabulary."""
    head = {
        "format": _FORMAT,
        "version": _VERSION,
        "storage": _name(storage),
        "n": storage.n,
        "vocabulary": vocabulary,
        "contexts": len(storage),
    }
    lines = [json.dumps(head), *(json.dumps([context, counts]) for context, counts in storage.contexts())]
    return "\n".join(lines) + "\n"


def loads(text: str, vocabulary: str, size: int) -> NGramStorage:
    """The storage of a file's text. `size`: the number of ids in the vocabulary.

    Raises `UserError` for a text that `dumps` did not write for this vocabulary.
    """
    head, *lines = text.splitlines() or [""]
    about = _parse(head, 1)
    if not isinstance(about, dict) or about.get("format") != _FORMAT or about.get("version") != _VERSION:
        raise UserError(f"not a file of n-gram counts; expected one that /ngram_save wrote, version {_VERSION}")
    if about.get("vocabulary") != vocabulary:
        raise UserError("its counts are for a different tokenizer from this target's")
    if type(about.get("n")) is not int or about["n"] < 2 or about.get("storage") not in [*STORAGES]:
        raise UserError(f"line 1: storage {about.get('storage')!r} with n {about.get('n')!r}")
    storage: NGramStorage = STORAGES[about["storage"]].load()(about["n"])
    if about.get("contexts") != len(lines):
        raise UserError(f"{len(lines)} contexts where line 1 says {about.get('contexts')!r}: it was cut, or added to")
    contexts = [_entry(_parse(line, number), number, storage, size) for number, line in enumerate(lines, start=2)]
    if len(dict(contexts)) != len(contexts):
        raise UserError("a context is there twice")
    storage.restore(contexts)
    return storage


def kind(storage: NGramStorage) -> str:
    """The class and order in the form of the setting, such as `basic 3`."""
    return f"{_name(storage)} {storage.n}"


def _name(storage: NGramStorage) -> str:
    """The storage's name in the table of methods."""
    return next(part.name for part in STORAGES.values() if part.load() is type(storage))


def _parse(line: str, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"line {number}: not JSON: {error}") from None


def _entry(content: Any, number: int, storage: NGramStorage, size: int) -> Entry:
    """A context and its counts, after validation."""
    try:
        context, counts = content
        entry = tuple(context), [(token, count) for token, count in counts]
    except (TypeError, ValueError):
        raise UserError(f"line {number}: {str(content)[:60]!r} is not a context with counts") from None
    ids = [*entry[0], *(token for token, _ in entry[1])]
    counted = [count for _, count in entry[1]]
    right = (
        len(entry[0]) + 1 in storage.orders
        and all(type(id) is int and 0 <= id < size for id in ids)
        and all(type(count) is int and count > 0 for count in counted)
        and counted
        and counted[0] == max(counted)
        and len(dict(entry[1])) == len(counted)
    )
    if not right:
        raise UserError(f"line {number}: {str(content)[:60]!r} cannot be counts of this storage and vocabulary")
    return entry

"""Saved counts of n-grams that are damaged, made up, or another tokenizer's."""

from collections.abc import Callable

from ngram_assisted.saved import dumps, vocabulary_digest
from sampling.methods.choices import STORAGES
from tests.hostile.row import Row
from tests.tiny import tiny_tokenizer

_FILE = "counts.json"
_DIGEST = vocabulary_digest(tiny_tokenizer().get_vocab())


def _text(vocabulary: str = _DIGEST) -> str:
    storage = STORAGES["basic"].load()(3)
    storage.initialize([7, 90, 12, 7, 90, 13, 7, 90, 12])
    return dumps(storage, vocabulary)


def row(content: str | bytes, *says: object, status: int = 1) -> Row:
    return Row("session", (f"/ngram_load {_FILE}",), status, says, files={_FILE: content}, name=says[-1])


def last(line: str) -> str:
    """The file with another last line."""
    return "\n".join([*_text().splitlines()[:-1], line]) + "\n"


def head(change: Callable[[str], str]) -> str:
    first, *rest = _text().splitlines()
    return "\n".join([change(first), *rest]) + "\n"


_WRONG = "cannot be counts of this storage and vocabulary"
ROWS = [
    row(_text(), "contexts loaded", status=0),
    row("", "line 1: not JSON"),
    row(b"\xff\x00garbage", "cannot be read"),
    row("[" * 50_000, "line 1: not JSON", "recursion"),
    row(_text()[: len(_text()) // 2], _FILE),
    row(_text(vocabulary="abc"), "for a different tokenizer"),
    row(head(lambda text: text.replace('"n": 3', '"n": 2')), _WRONG),
    row(head(lambda text: text.replace('"n": 3', '"n": -3')), "n -3"),
    row(head(lambda text: text.replace('"n": 3', '"n": true')), "n True"),
    row(head(lambda text: text.replace('"version": 1', '"version": 99')), "version 1"),
    row(head(lambda text: text.replace('"basic"', '"zzz"')), "storage 'zzz'"),
    row(last("[[7, 90], [[12, -4]]]"), _WRONG),
    row(last("[[7, 90], [[12, 1e400]]]"), _WRONG),
    row(last("[[7, 90], [[99999, 4]]]"), _WRONG),
    row(last("[[7, 90], [[12, 3], [12, 3]]]"), _WRONG),
    row(last("[[[7], 90], [[12, 3]]]"), _WRONG),
    row(last('{"a": 1}'), "is not a context with counts"),
    row(last("9" * 5000), "not JSON"),
    row(last(_text().splitlines()[1]), "a context is there twice"),
]

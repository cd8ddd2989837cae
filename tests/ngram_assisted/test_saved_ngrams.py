"""Counts of n-grams as a file."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngram_assisted.ngram_storage import NGramStorage, OneLevelNGramStorage
from ngram_assisted.saved import dumps, loads, vocabulary_digest
from tests.refusals import refused
from utils.errors import UserError

VOCABULARY = vocabulary_digest({"a": 0, "b": 1, "c": 2, "d": 3})


def filled(kind: type[NGramStorage], n: int, tokens: list[int]) -> NGramStorage:
    storage = kind(n)
    storage.initialize(tokens)
    return storage


@given(st.sampled_from([NGramStorage, OneLevelNGramStorage]), st.integers(2, 4), st.lists(st.integers(0, 3)))
def test_what_was_saved_answers_as_before(kind: type[NGramStorage], n: int, tokens: list[int]) -> None:
    before = filled(kind, n, tokens)
    after = loads(dumps(before, VOCABULARY), VOCABULARY, 4)
    assert type(after) is kind and after.n == n and len(after) == len(before)
    assert dict(after.contexts()) == dict(before.contexts())
    for end in range(1, len(tokens) + 1):
        assert after.next_token(tokens[:end]) == before.next_token(tokens[:end])
    after.initialize(tokens)
    before.initialize(tokens)
    assert dict(after.contexts()) == dict(before.contexts())


TEXT = dumps(filled(NGramStorage, 3, [0, 1, 2, 0, 1, 3, 0, 1, 2]), VOCABULARY)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: ["", *lines], "line 1: not JSON"),
        (lambda lines: ['{"format": "other"}', *lines[1:]], "not a file of n-gram counts"),
        (lambda lines: ["[]", *lines[1:]], "not a file of n-gram counts"),
        (lambda lines: [*lines[:-1], "[[0], [[1, 2]"], f"line {len(TEXT.splitlines())}: not JSON"),
        (lambda lines: [lines[0], "[", *lines[2:]], "line 2: not JSON"),
        (lambda lines: [*lines[:-1], "[[3, 3], [[4, 2]]]"], "cannot be counts"),
        (lambda lines: [*lines[:-1], "[[3, 3], [[1, 0]]]"], "cannot be counts"),
        (lambda lines: [*lines[:-1], "[[3, 3], []]"], "cannot be counts"),
        (lambda lines: [*lines[:-1], "[[3, 3], [[1, 1], [2, 5]]]"], "cannot be counts"),
        (lambda lines: [*lines[:-1], "[[3, 3, 3], [[1, 1]]]"], "cannot be counts"),
        (lambda lines: [*lines[:-1], "[[true, 3], [[1, 1]]]"], "cannot be counts"),
        (lambda lines: [*lines[:-1], lines[1]], "twice"),
        (lambda lines: [*lines[:-1], "7"], "is not a context with counts"),
        (lambda lines: [lines[0].replace('"n": 3', '"n": 1'), *lines[1:]], "with n 1"),
        (lambda lines: [], "not JSON"),
        (lambda lines: lines[:-1], "it was cut"),
        (lambda lines: lines[:1], "it was cut"),
        (lambda lines: [*lines[:-1], "[" * 100_000], "not JSON"),
        (lambda lines: [lines[0].replace('"basic"', "[]"), *lines[1:]], "storage []"),
    ],
)
def test_a_bad_file_is_refused(change: object, said: str) -> None:
    lines = change(TEXT.splitlines())  # type: ignore[operator]
    with pytest.raises(UserError) as error:
        loads("\n".join(lines), VOCABULARY, 4)
    assert said in str(error.value)


def test_another_tokenizer_is_refused() -> None:
    with refused("tokenizer"):
        loads(TEXT, vocabulary_digest({"a": 1}), 4)
    assert json.loads(TEXT.splitlines()[0])["storage"] == "basic"

"""N-gram counts: longest context, ties, orders, and against a brute-force count."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ngram_assisted.ngram_storage import NGramStorage, OneLevelNGramStorage
from tests.refusals import refused


def test_an_order_far_beyond_the_text_costs_nothing() -> None:
    storage = NGramStorage(2**62)
    storage.initialize([1, 2, 1])
    assert storage.next_token([1]) == 2 and len(storage) == 3


def test_the_longest_known_context_answers() -> None:
    storage = NGramStorage(3)
    storage.initialize([1, 2, 3, 9, 2, 4, 8, 2, 4])
    assert storage.next_token([1, 2]) == 3
    assert storage.next_token([7, 2]) == 4
    assert storage.next_token([7, 7]) is None


def test_a_tie_goes_to_the_token_that_reached_the_count_first() -> None:
    storage = NGramStorage(2)
    for token in (5, 6, 6, 5):
        storage.update([1], token)
    assert storage.next_token([1]) == 6


def test_one_level_knows_no_shorter_context() -> None:
    storage = OneLevelNGramStorage(3)
    storage.initialize([1, 2, 3])
    assert storage.next_token([1, 2]) == 3
    assert storage.next_token([9, 2]) is None
    assert storage.has_gram((1, 2, 3))
    assert not storage.has_gram((2, 3))


def test_reset_forgets() -> None:
    storage = NGramStorage(3)
    storage.initialize([1, 2, 3])
    storage.reset()
    assert len(storage) == 0
    assert storage.next_token([1, 2]) is None
    assert not storage.has_gram((1, 2))


@pytest.mark.parametrize("n", [0, 1, -3])
def test_an_order_below_two_is_refused(n: int) -> None:
    with refused("n-gram order", n, 2):
        NGramStorage(n)


@pytest.mark.parametrize("kind", [NGramStorage, OneLevelNGramStorage])
def test_a_vocabulary_bounds_the_ids(kind: type[NGramStorage]) -> None:
    storage = kind(2, 10)
    storage.initialize([1, 9, 0])
    known = list(storage.contexts())
    for context, token in (([1], 10), ([1], -1), ([10], 1)):
        with refused("token", token if token != 1 else context[0], 0, 9):
            storage.update(context, token)
    with refused("token", 10, 0, 9):
        storage.restore([((1,), [(2, 1)]), ((3,), [(10, 1)])])
    assert list(storage.contexts()) == known
    with refused("vocab_size", 0, 1):
        kind(2, vocab_size=0)


def test_tensors_and_arrays_count_as_lists_do() -> None:
    text, expected = [1, 2, 3, 1, 2, 4], NGramStorage(3)
    expected.initialize(text)
    for tokens in (torch.tensor(text), torch.tensor([text]), np.array([text]), tuple(torch.tensor(text))):
        storage = NGramStorage(3)
        storage.initialize(tokens)
        assert list(storage.contexts()) == list(expected.contexts())
        assert storage.next_token(torch.tensor([[9, 1, 2]])) == 3
        assert storage.has_gram(torch.tensor([1, 2, 4]))
    storage.update(torch.tensor([[1, 2]]), torch.tensor([[4, 5]]))
    assert storage.next_token([1, 2]) == 4 and storage.has_gram([1, 2, 5])


@pytest.mark.parametrize(
    ("act", "quoted"),
    [
        (lambda storage: storage.initialize("a b"), ("tokens", "'a b'")),
        (lambda storage: storage.initialize([1.0, 2.0]), ("tokens", [1.0, 2.0])),
        (
            lambda storage: storage.initialize(torch.tensor([[1, 2], [3, 4]])),
            ("tokens", (2, 2), "[n]", "[1, n]"),
        ),
        (lambda storage: storage.update([1], None), ("token", None)),
        (lambda storage: storage.update([1], True), ("token", True)),
        (lambda storage: storage.next_token(5), ("context", 5)),
        (lambda storage: NGramStorage("3"), ("n-gram order", "'3'", 2)),
        (lambda storage: NGramStorage(3, 2.5), ("vocab_size", 2.5, 1)),
    ],
)
def test_what_is_no_list_of_ids_is_refused_and_nothing_is_counted(
    act: Callable[[Any], Any], quoted: tuple[object, ...]
) -> None:
    storage = NGramStorage(3)
    with refused(*quoted):
        act(storage)
    assert len(storage) == 0


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(2, 5))
def test_counts_equal_a_brute_force_count(tokens: list[int], n: int) -> None:
    storage = NGramStorage(n)
    storage.initialize(tokens)
    for order in range(2, n + 1):
        grams = Counter(tuple(tokens[i : i + order]) for i in range(len(tokens) - order + 1))
        for gram, count in grams.items():
            rivals = [c for g, c in grams.items() if g[:-1] == gram[:-1]]
            answer = storage.next_token(gram[:-1])
            assert storage.has_gram(gram)
            assert grams[(*gram[:-1], answer)] == max(rivals) >= count

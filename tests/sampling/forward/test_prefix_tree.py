"""The tree of prefixes by itself: what is found, what goes first, and what stays."""

from collections.abc import Sequence

import pytest
import torch

from sampling.forward.prefixes.tree import PrefixMemory, PrefixTree

GRAIN = 3


class Numbered:
    """A store whose handles are numbers, a byte a row."""

    grain = GRAIN

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.used: set[int] = set()
        self.given = 0

    def keep(self, start: int, stop: int) -> int:
        self.given += 1
        self.sizes[self.given] = stop - start
        return self.given

    def size(self, handle: int) -> int:
        return self.sizes[handle]

    def in_use(self, handle: int) -> bool:
        return handle in self.used

    def drop(self, handle: int) -> None:
        del self.sizes[handle]


@pytest.fixture
def store() -> Numbered:
    return Numbered()


def tree_of(store: Numbered, most: int = 100) -> PrefixTree:
    return PrefixTree(store, PrefixMemory(most))


def insert(tree: PrefixTree, store: Numbered, tokens: Sequence[int], layers: Sequence[int] = ()) -> int:
    """How many blocks are new."""
    states = {layer: torch.tensor(tokens).unsqueeze(1) for layer in layers}
    return len(tree.insert(tokens, store.keep, states))


def found(tree: PrefixTree, tokens: Sequence[int], layers: Sequence[int] = ()) -> int:
    match = tree.match(tokens, layers)
    assert match.rows <= sum(len(node.tokens) for node in match.path)
    return match.rows


def test_the_longest_beginning_is_found(store: Numbered) -> None:
    tree = tree_of(store)
    assert insert(tree, store, [1, 2, 3, 4, 5, 6, 7]) == 3
    assert insert(tree, store, [1, 2, 3, 9, 9]) == 1
    assert found(tree, [1, 2, 3, 4, 5, 6, 7, 8]) == 7
    assert found(tree, [1, 2, 3, 4, 5, 8]) == 5, "a part of a block"
    assert found(tree, [1, 2, 3, 9]) == 4 and found(tree, [1, 2]) == 2
    assert found(tree, [4, 5, 6]) == 0, "blocks belong behind those above them"
    assert found(tree, []) == 0


def test_what_is_there_is_not_kept_twice(store: Numbered) -> None:
    tree = tree_of(store)
    insert(tree, store, [1, 2, 3, 4, 5])
    assert insert(tree, store, [1, 2, 3, 4, 5]) == insert(tree, store, [1, 2, 3, 4]) == 0
    assert insert(tree, store, [1, 2, 3, 4, 5, 6, 7]) == 2, "a whole block takes the place of its beginning"
    assert sorted(store.sizes.values()) == [1, 3, 3] and tree.memory.used == 7


def test_the_least_recently_used_leaf_goes_first(store: Numbered) -> None:
    tree = tree_of(store, 9)
    for tokens in ([1, 2, 3, 4, 5, 6], [1, 2, 3, 7, 7, 7]):
        insert(tree, store, tokens)
    assert found(tree, [1, 2, 3, 4, 5, 6]) == 6
    insert(tree, store, [1, 2, 3, 8, 8, 8])
    assert found(tree, [1, 2, 3, 7, 7, 7]) == 3 and found(tree, [1, 2, 3, 4, 5, 6]) == 6
    assert tree.memory.used == 9 and len(store.sizes) == 3
    insert(tree, store, [5, 5, 5, 5, 5, 5, 5, 5, 5])
    assert found(tree, [1, 2, 3]) == 0 and found(tree, [5] * 9) == 9


def test_a_block_in_use_stays_whatever_the_budget(store: Numbered) -> None:
    tree = tree_of(store, 6)
    insert(tree, store, [1, 2, 3, 4, 5, 6])
    store.used |= {1, 2}
    assert insert(tree, store, [7, 7, 7]) == 0, "it is the only one that may go"
    assert found(tree, [1, 2, 3, 4, 5, 6]) == 6 and tree.memory.used == 6
    store.used -= {2}
    insert(tree, store, [7, 7, 7])
    assert found(tree, [1, 2, 3, 4]) == 3 and found(tree, [7, 7, 7]) == 3


def test_nothing_fits_no_budget(store: Numbered) -> None:
    tree = tree_of(store, 0)
    assert insert(tree, store, [1, 2, 3]) == 0 and not store.sizes and not len(tree.memory)


def test_trees_share_a_budget(store: Numbered) -> None:
    memory = PrefixMemory(6)
    first, other = PrefixTree(store, memory), PrefixTree(store, memory)
    for tree in (first, other, first):
        insert(tree, store, [store.given + 1] * 3)
    assert memory.used == 6 and found(first, [1, 1, 1]) == 0 and found(other, [2, 2, 2]) == 3


def test_states_are_kept_where_they_were_asked_for(store: Numbered) -> None:
    tree = tree_of(store)
    insert(tree, store, [1, 2, 3, 4, 5])
    assert found(tree, [1, 2, 3, 4, 5], (7,)) == 0 and found(tree, [1, 2, 3, 4, 5]) == 5
    assert insert(tree, store, [1, 2, 3, 4, 5], (7,)) == 0, "they come to the rows that are there"
    match = tree.match([1, 2, 3, 4, 5], (7,))
    assert torch.cat([node.states[7] for node in match.path]).flatten().tolist() == [1, 2, 3, 4, 5]
    assert tree.memory.used == 5 + 5 * 8
    assert insert(tree, store, [1, 2, 3, 4], (8,)) == 1, "a part of a block has states of its own"
    assert found(tree, [1, 2, 3, 4, 5], (8,)) == 4 and found(tree, [1, 2, 3, 4, 5], (7,)) == 5


def test_rows_that_cannot_be_kept_end_it(store: Numbered) -> None:
    tree = tree_of(store)
    made = tree.insert([1, 2, 3, 4, 5, 6, 7, 8, 9], lambda start, stop: None if start else store.keep(start, stop), {})
    assert len(made) == 1 and found(tree, [1, 2, 3, 4, 5]) == 3


def test_all_below_a_block_leaves_with_it(store: Numbered) -> None:
    tree = tree_of(store)
    first = tree.insert([1, 2, 3, 4, 5, 6], store.keep, {})
    insert(tree, store, [1, 2, 3, 7])
    tree.remove(first[0])
    assert not store.sizes and tree.memory.used == 0 and found(tree, [1, 2, 3]) == 0
    tree.remove(first[1])  # once more, which does nothing


def test_the_fastest_reading_of_a_prompt_is_what_a_row_costs(store: Numbered) -> None:
    tree = tree_of(store)
    tree.timed(0, 5.0)
    assert tree.row_s is None
    for rows, seconds in ((10, 1.0), (100, 5.0), (1, 2.0)):
        tree.timed(rows, seconds)
    assert tree.row_s == pytest.approx(0.05)

"""Texts that share prefixes: each says and drafts what it does alone, whoever read the rows."""

import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest

from sampling.batch import Batch, Request, decode_many
from sampling.forward.caches import blocks
from sampling.forward.caches.blocks import BlockRows
from sampling.forward.prefixes.stores import CopiedRows
from sampling.forward.prefixes.use import PrefixCache
from sampling.forward.sharing import SharedModel, SharedRunner
from sampling.loop import decode
from sampling.pair.pair import Pair
from tests.conformance.matrix import TREES, case
from tests.conformance.test_batches import GREEDY, SAMPLED, SHARED, STOP, Course, pair, seed_of, weights
from tests.conformance.test_blocks import blocked
from utils.events import Event, Prefilled
from utils.logits_processor import LogitsProcessor

SMALL = 4
SYSTEM = (1, 4, 2, 0, 5, 5, 2, 1, 0, 4, 2)
# Some are alike for whole blocks, some for a part of one, one is the beginning of another, one comes twice.
PROMPTS = (
    (*SYSTEM, 2, 2),
    (*SYSTEM, 2, 4, 1, 1, 5),
    (3, 0),
    SYSTEM[:6],
    (*SYSTEM, 2, 2),
    (*SYSTEM[:9], 5, 5, 5),
    (*SYSTEM, 2, 2, 0, 1, 2, 0, 4, 4, 1, 0),
    (1,),
)
LENGTHS = (9, 7, 5, 12, 9, 3, 8, 10)
AMPLE, TINY = 10**6, 4000
FEW = ["none", "model", "suffix", "mtp", "eagle", "medusa", "dspark", "parallel_eagle", "staged mtp dynamic", "auto"]
IN_BLOCKS = ["none", "model", "mtp", "suffix tree", "eagle dynamic tree", "staged ngram"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows, so that short prompts have many of them."""
    monkeypatch.setattr(blocks, "BLOCK", SMALL)
    monkeypatch.setattr(CopiedRows, "grain", SMALL)


@cache
def alone(drafter: str, processor: LogitsProcessor) -> list[Course]:
    """Each text by itself, without a tree."""
    return [Course.of(events) for events in _in_turn(drafter, processor, None, range(len(PROMPTS)))]


def _in_turn(
    drafter: str, processor: LogitsProcessor, prefixes: PrefixCache | None, order: Sequence[int]
) -> list[list[Event]]:
    one, found = case(drafter, forgetful=True), {}
    shared = None if prefixes is None else one.drafter(pair())
    for at in order:
        found[at] = list(
            decode(
                pair().target,
                shared or one.drafter(pair()),
                one.gamma(),
                one.verifier(),
                processor,
                PROMPTS[at],
                max_new_tokens=LENGTHS[at],
                stop=STOP,
                seed=seed_of(at),
                prefixes=prefixes and prefixes.of(),
            )  # fmt: skip
        )
    return [found[at] for at in sorted(found)]


def hits_of(events: Sequence[Sequence[Event]]) -> int:
    """Rows that all of them took over."""
    return sum(told[0].prefix_hits or 0 for told in events if isinstance(told[0], Prefilled))


def together(
    drafter: str,
    processor: LogitsProcessor,
    size: int,
    order: Sequence[int],
    prefixes: PrefixCache,
    target: SharedModel | None = None,
    made: Pair | None = None,
) -> list[list[Event]]:
    """The texts, `size` at a time, in this order."""
    one, target = case(drafter, forgetful=True), target or SharedRunner(weights(0))
    drafting = one.drafter(made or pair(shared=True))
    batch = Batch(target, drafting, one.gamma, one.verifier(), size, prefixes=prefixes.of())
    events: dict[int, list[Event]] = {at: [] for at in order}
    wanted = [Request([*PROMPTS[at]], processor, LENGTHS[at], seed_of(at), STOP, tag=at) for at in order]
    for live, event in decode_many(batch, wanted):
        events[live.request.tag].append(event)
    return [events[at] for at in sorted(events)]


def orders() -> Iterator[list[int]]:
    for seed in range(2):
        order = [*range(len(PROMPTS))]
        random.Random(seed).shuffle(order)
        yield order


def check(drafter: str, processor: LogitsProcessor, size: int, most: int = AMPLE) -> None:
    """In two orders, one after the other: the second finds what the first has left."""
    prefixes = PrefixCache(most)
    for order in orders():
        found = together(drafter, processor, size, order, prefixes)
        assert [Course.of(told) for told in found] == alone(drafter, processor)
        assert prefixes.memory.used <= most
    longest = sum(len(prompt) - 1 for prompt in PROMPTS)
    assert hits_of(found) == longest if most == AMPLE else hits_of(found) < longest


@pytest.mark.parametrize("drafter", [*SHARED, *TREES])
def test_greedy_texts_are_those_without_a_tree(drafter: str) -> None:
    check(drafter, GREEDY, 3)


@pytest.mark.parametrize("drafter", FEW)
@pytest.mark.parametrize("size", [1, 8])
def test_one_at_a_time_and_all_at_once(drafter: str, size: int) -> None:
    check(drafter, GREEDY, size)


@pytest.mark.parametrize("drafter", FEW)
@pytest.mark.parametrize("processor", SAMPLED)
def test_drawn_texts(drafter: str, processor: LogitsProcessor) -> None:
    check(drafter, processor, 3)


@pytest.mark.parametrize("drafter", FEW)
@pytest.mark.parametrize("most", [0, TINY])
def test_a_budget_that_holds_few_blocks(drafter: str, most: int) -> None:
    check(drafter, GREEDY, 3, most)


@pytest.mark.parametrize("drafter", FEW)
def test_texts_one_after_the_other(drafter: str) -> None:
    """The loop of one text, whose runners have caches of their own."""
    prefixes = PrefixCache(AMPLE)
    for order in orders():
        found = _in_turn(drafter, GREEDY, prefixes, order)
        assert [Course.of(told) for told in found] == alone(drafter, GREEDY)
    assert hits_of(found) == sum(len(prompt) - 1 for prompt in PROMPTS)


def check_blocks(drafter: str, processor: LogitsProcessor, size: int, most: int = AMPLE, fixed: bool = False) -> None:
    """The same of rows in blocks, which texts share."""
    prefixes, target = PrefixCache(most), blocked(weights(0), fixed)
    shared = pair(shared=True, share=lambda runner: blocked(runner.model, fixed))  # type: ignore[arg-type]
    for order in orders():
        found = together(drafter, processor, size, order, prefixes, target, shared)
        assert [Course.of(told) for told in found] == alone(drafter, processor)
    cache: Any = target.cache
    check_counts(cache, prefixes)
    assert most < AMPLE or hits_of(found) == sum(len(prompt) - 1 for prompt in PROMPTS)


def check_counts(cache: BlockRows, prefixes: PrefixCache) -> None:
    """Every block is free, or as many have it as say so."""
    mine = [node.handle for node in prefixes.memory if node.tree.store._owner() is cache]  # type: ignore[attr-defined]
    had = [block for table in cache.tables.values() for block in table] + mine
    free = cache._spare
    assert not {*had} & {*free} and len({*free}) == len(free) and 0 not in had
    assert {*had} | {*free} == {*range(1, cache.keys.shape[1])}
    assert all(cache.sharers(block) == had.count(block) for block in had)


@pytest.mark.parametrize("drafter", IN_BLOCKS)
@pytest.mark.parametrize("size", [1, 3, 8])
def test_blocks_that_texts_share(drafter: str, size: int) -> None:
    check_blocks(drafter, GREEDY, size)


@pytest.mark.parametrize("drafter", IN_BLOCKS)
def test_drawn_texts_in_blocks(drafter: str) -> None:
    check_blocks(drafter, SAMPLED[0], 3)


@pytest.mark.parametrize("drafter", IN_BLOCKS)
@pytest.mark.parametrize("most", [0, 3 * TINY])
def test_few_blocks(drafter: str, most: int) -> None:
    check_blocks(drafter, GREEDY, 3, most)


@pytest.mark.parametrize("drafter", IN_BLOCKS)
def test_blocks_in_forwards_of_fixed_shapes(drafter: str) -> None:
    check_blocks(drafter, GREEDY, 3, fixed=True)

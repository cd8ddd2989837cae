"""Texts that share prefixes: each says and drafts what it does alone, whoever read the rows."""

import gc
import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest
from torch import Tensor

from egag.length_rule import FixedGamma
from sampling.batch import Batch, decode_many
from sampling.drafter import NullDrafter
from sampling.forward.caches import blocks
from sampling.forward.caches.block_pool import BlockPool
from sampling.forward.caches.blocks import BlockRows
from sampling.forward.kernels.linear import DenseLinear
from sampling.forward.models.lean import from_transformers
from sampling.forward.prefixes.stores import CopiedRows, SharedBlocks
from sampling.forward.prefixes.tree import Node, PrefixTree
from sampling.forward.prefixes.use import PrefixCache, PrefixUse
from sampling.forward.runner import ModelRunner, feed
from sampling.forward.sharing import SharedModel, SharedRunner
from sampling.loop import decode
from sampling.pair.pair import Pair
from sampling.scheduling.live_text import Request
from sampling.verify.rejection import RejectionVerifier
from tests.conformance import test_one_fails as sick
from tests.conformance.matrix import case, ways
from tests.conformance.test_batches import GREEDY, SAMPLED, STOP, Course, pair, seed_of, weights
from tests.conformance.test_blocks import VOCABULARY, blocked, text
from tests.tiny import mistral, random_model
from utils.errors import UserError
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
FEW = ["none", "model", "mtp", "eagle dynamic tree", "dspark", "staged mtp dynamic"]
IN_BLOCKS = ["none", "model", "suffix tree", "eagle dynamic tree"]


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
    one, found = case(drafter, forgetful=True), dict[int, list[Event]]()
    for at in order:
        parts = pair().target, one.drafter(pair()), one.gamma(), one.verifier(), processor, PROMPTS[at]
        ends: dict[str, Any] = {"max_new_tokens": LENGTHS[at], "stop": STOP, "seed": seed_of(at)}
        found[at] = list(decode(*parts, **ends, prefixes=prefixes and prefixes.of()))
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
    chunk: int = 0,
) -> list[list[Event]]:
    """The texts, `size` at a time, in this order. chunk: rows of prompts beside the rounds."""
    one, target = case(drafter, forgetful=True), target or SharedRunner(weights(0))
    drafting = one.drafter(made or pair(shared=True))
    batch = Batch(target, drafting, one.gamma, one.verifier(), size, prefixes=prefixes.of(), prefill_chunk=chunk)
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


@pytest.mark.parametrize("drafter", ways())
def test_greedy_texts_are_those_without_a_tree(drafter: str) -> None:
    check(drafter, GREEDY, 3)


@pytest.mark.parametrize("drafter", FEW)
@pytest.mark.parametrize("size", [1, 8])
def test_one_at_a_time_and_all_at_once(drafter: str, size: int) -> None:
    check(drafter, GREEDY, size)


@pytest.mark.parametrize("drafter", [*FEW, "suffix", "medusa", "auto"])
def test_drawn_texts(drafter: str) -> None:
    check(drafter, SAMPLED[1], 3)


@pytest.mark.parametrize("drafter", FEW[:4])
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


@pytest.mark.parametrize("drafter", FEW)
@pytest.mark.parametrize("chunk", [3, 50])
def test_prompts_in_chunks_wait_for_one_that_begins_alike(drafter: str, chunk: int) -> None:
    """All come at once: the first that reads a beginning reads it for all, but for less than a block of rows."""
    found = together(drafter, GREEDY, 8, range(len(PROMPTS)), PrefixCache(AMPLE), chunk=chunk)
    assert [Course.of(told) for told in found] == alone(drafter, GREEDY)
    hits = [told[0].prefix_hits for told in found if isinstance(told[0], Prefilled)]
    assert hits[0] == 0 and hits[1] is not None and hits[1] >= len(SYSTEM), hits
    assert hits[4] == len(PROMPTS[4]) - 1 and hits[6] is not None and hits[6] >= len(PROMPTS[4]) - 1


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
    free = cache.pool._free
    assert not {*had} & {*free} and len({*free}) == len(free) and 0 not in had
    assert {*had} | {*free} == {*range(1, cache.keys.shape[1])}
    assert all(cache.pool.sharers(block) == had.count(block) for block in had)


@pytest.mark.parametrize("drafter", IN_BLOCKS)
@pytest.mark.parametrize("size", [1, 3, 8])
def test_blocks_that_texts_share(drafter: str, size: int) -> None:
    check_blocks(drafter, GREEDY, size)


@pytest.mark.parametrize("drafter", IN_BLOCKS)
def test_drawn_texts_in_blocks(drafter: str) -> None:
    check_blocks(drafter, SAMPLED[0], 3)


@pytest.mark.parametrize("drafter", IN_BLOCKS[:2])
@pytest.mark.parametrize("most", [0, 3 * TINY])
def test_few_blocks(drafter: str, most: int) -> None:
    check_blocks(drafter, GREEDY, 3, most)


@pytest.mark.parametrize("drafter", IN_BLOCKS)
def test_blocks_in_forwards_of_fixed_shapes(drafter: str) -> None:
    check_blocks(drafter, GREEDY, 3, fixed=True)


@pytest.mark.parametrize("in_blocks", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_a_text_that_fails_leaves_nothing(in_blocks: bool, size: int) -> None:
    """The state of one token is NaN: what begins before it is kept for others, and nothing from it on."""
    made = sick.model(0)
    target = SharedRunner(made, blocks=in_blocks)
    heads = (4, 5, 6, 8, 4, 5), (9, 1, 1, 2)
    prompts = [*((*head, *tail) for head in heads for tail in ((1, 2), (sick.BAD, 5), (3, sick.BAD), (1, 2, 2)))]
    prefixes = PrefixCache(AMPLE)
    batch = Batch(target, NullDrafter(), lambda: FixedGamma(2), RejectionVerifier(), size, prefixes=prefixes.of())
    for _ in range(2):
        texts, errors = sick.said([*decode_many(batch, sick.requests(GREEDY, prompts))])
        assert sorted(errors) == [at for at, prompt in enumerate(prompts) if sick.BAD in prompt]
        for at, said in texts.items():
            lonely = Batch(SharedRunner(made), NullDrafter(), lambda: FixedGamma(2), RejectionVerifier(), 1)
            alone_said, _ = sick.said([*decode_many(lonely, sick.requests(GREEDY, prompts)[at : at + 1])])
            assert said == alone_said[at]
    assert len(prefixes.memory) and not any(sick.BAD in node.tokens for node in prefixes.memory)


def test_rows_of_a_text_that_fails_later_leave_with_it() -> None:
    """Its prompt was read, and another text has gone on from it."""
    prefixes = PrefixCache(AMPLE)
    batch = Batch(
        SharedRunner(weights(0)), NullDrafter(), lambda: FixedGamma(2), RejectionVerifier(), 2, prefixes=prefixes.of()
    )
    first, _ = batch.admit(Request([*SYSTEM, 2], GREEDY, 9, 0))
    second, told = batch.admit(Request([*SYSTEM, 2, 2], GREEDY, 9, 0))
    assert told.prefix_hits == len(SYSTEM)
    first.error = ZeroDivisionError()
    batch.drop(first)
    assert not len(prefixes.memory) and prefixes.memory.used == 0
    while second.seq.reason is None:
        batch.play()
    assert len(prefixes.memory)


@pytest.mark.parametrize("window", [6, 40])
def test_a_window_that_drops_rows(window: int) -> None:
    """Rows are kept as long as all layers have them; texts say the same."""
    sizes = {"vocab_size": VOCABULARY, "sliding_window": window, "max_position_embeddings": 2048}
    made = from_transformers(random_model(mistral(**sizes)).double()).with_kernel(DenseLinear)
    prefixes, target = PrefixCache(10**9), SharedRunner(made)
    long = text(1, 1500)
    prompts = [long[:40], [*long[:30], 1, 2], long, [*long[:1200], 5], [*long[:30], 1, 2]]
    batch = Batch(target, NullDrafter(), lambda: FixedGamma(2), RejectionVerifier(), 2, prefixes=prefixes.of())
    events = [*decode_many(batch, [Request([*prompt], GREEDY, 6, 0, tag=at) for at, prompt in enumerate(prompts)])]
    hits = {live.request.tag: told.prefix_hits for live, told in events if isinstance(told, Prefilled)}
    for at, prompt in enumerate(prompts):
        one = decode(
            *(ModelRunner(made), NullDrafter(), FixedGamma(2), RejectionVerifier(), GREEDY, prompt),
            **{"max_new_tokens": 6, "seed": 0},
        )
        mine = [event for live, event in events if live.request.tag == at]
        assert Course.of(mine) == Course.of([*one])
    assert hits == {0: 0, 1: 30, 2: 40, 3: 40, 4: 31}, "the long one had dropped rows when it was read"


def test_trees_of_a_cache_that_is_gone_are_taken_out() -> None:
    prefixes = PrefixCache(AMPLE)
    target = blocked(weights(0))
    together("none", GREEDY, 3, range(len(PROMPTS)), prefixes, target)
    assert prefixes.memory.used > 0
    target = None  # type: ignore[assignment]
    gc.collect()
    slot = blocked(weights(0)).another()
    assert prefixes.of().use(slot) is not None and prefixes.memory.used == len(prefixes.memory) == 0


def test_runs_do_not_share() -> None:
    prefixes, found = PrefixCache(AMPLE), list[int]()
    for run in ("a", "b", "a"):
        use = prefixes.of(run).use(slot := SharedRunner(weights(0)).another())
        assert use is not None
        found.append(use.resume(SYSTEM))
        feed(slot, SYSTEM[slot.length :])
        use.read(SYSTEM, {})
    assert found == [0, 0, len(SYSTEM)]


class TestPlantedFaults:
    """Each of these breaks something above, so that a green test means what it says."""

    @staticmethod
    def fails(check: Any, *given: Any) -> bool:
        try:
            check(*given)
        except (AssertionError, UserError, IndexError, RuntimeError, KeyError):
            return True
        return False

    def test_nothing_planted(self) -> None:
        assert not self.fails(check, "model", GREEDY, 3) and not self.fails(check_blocks, "model", GREEDY, 3)

    def test_another_block_is_lent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for store, one in ((CopiedRows, check), (SharedBlocks, check_blocks)):
            honest = store.lend
            monkeypatch.setattr(
                store,
                "lend",
                lambda self, cache, handles, rows, honest=honest: honest(self, cache, handles[::-1], rows),
            )
            assert self.fails(one, "none", GREEDY, 3)

    def test_a_block_is_found_behind_other_tokens(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = PrefixTree._closest
        monkeypatch.setattr(PrefixTree, "_closest", lambda self, node, block, layers: honest(self._root, block, layers))
        assert self.fails(check, "none", GREEDY, 3)

    def test_a_block_is_free_while_others_have_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(BlockPool, "give_back", lambda self, given: self._free.extend(given))
        assert self.fails(check_blocks, "none", GREEDY, 3)

    def test_a_block_that_is_in_use_leaves_the_tree_for_another_text(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is free at once, whoever goes on from it."""
        monkeypatch.setattr(BlockPool, "sharers", lambda self, block: 1)
        assert self.fails(check_blocks, "none", GREEDY, 3, 3 * TINY)

    def test_rows_are_written_to_a_block_that_others_have(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A text goes on from a part of a block, as it does behind a rollback."""
        monkeypatch.setattr(BlockRows, "_own", lambda self, index, first: None)
        assert self.fails(check_blocks, "model", GREEDY, 3)

    def test_copies_that_are_views(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = Tensor.clone
        monkeypatch.setattr(Tensor, "clone", lambda self, **how: self if self.dim() == 3 else honest(self, **how))
        assert self.fails(check, "none", GREEDY, 1)

    def test_rows_off_by_one_are_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = CopiedRows.keeping

        def shifted(self: CopiedRows, cache: Any, length: int) -> Any:
            keep = honest(self, cache, length)
            return lambda start, stop: keep(max(0, start - 1), max(0, start - 1) + stop - start)

        monkeypatch.setattr(CopiedRows, "keeping", shifted)
        assert self.fails(check, "none", GREEDY, 1)

    def test_states_of_other_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = PrefixUse.whole
        monkeypatch.setattr(
            PrefixUse,
            "whole",
            lambda self, read: {layer: rows.flip(0) for layer, rows in honest(self, read).items()},
        )
        assert self.fails(check, "mtp", GREEDY, 3)

    def test_rows_without_states(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A drafter without a head has read them before."""
        monkeypatch.setattr(Node, "has", lambda self, layers: True)
        prefixes = PrefixCache(AMPLE)
        together("none", GREEDY, 3, range(len(PROMPTS)), prefixes)
        found = together("mtp", GREEDY, 3, range(len(PROMPTS)), prefixes)
        assert [Course.of(told) for told in found] != alone("mtp", GREEDY)


def test_rows_without_states_are_read_again() -> None:
    """What the fault above hides: the states come into the tree then."""
    prefixes = PrefixCache(AMPLE)
    for drafter in ("none", "mtp", "eagle", "mtp"):
        found = together(drafter, GREEDY, 3, range(len(PROMPTS)), prefixes)
        assert [Course.of(told) for told in found] == alone(drafter, GREEDY)
    assert hits_of(found) == sum(len(prompt) - 1 for prompt in PROMPTS)

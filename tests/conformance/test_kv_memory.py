"""Texts in a bounded memory: who does not fit is put back and read again, and each is what it is alone."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from sampling.batch import Batch, decode_many
from sampling.drafter import NullDrafter
from sampling.forward.caches import blocks
from sampling.forward.caches.blocks import BlockRows, OutOfBlocks
from sampling.forward.prefixes.use import PrefixCache
from sampling.forward.sharing import SharedRunner
from sampling.loop import decode
from sampling.scheduling.live_text import Request
from sampling.scheduling.memory_room import MemoryRoom
from tests.conformance.matrix import case
from tests.conformance.test_batches import GREEDY, SAMPLED, Course, pair, weights
from tests.conformance.test_blocks import blocked
from utils.events import Event, FailedText, Finished, Prefilled
from utils.logits_processor import LogitsProcessor

SMALL, ROWS, BLOCKS = 4, 8, 13
"""Rows of a block, those that a text may feed in a round, and blocks in all: as many as the longest text needs."""
PROMPTS, LENGTH = ((1, 4, 2, 0), (3,), (5, 5, 2, 2, 5), (2, 2, 2), (4, 1, 4, 1, 4), (0, 5, 0)), 30


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", SMALL)


def bounded(target: SharedRunner, count: int = BLOCKS) -> MemoryRoom:
    assert isinstance(target.cache, BlockRows)
    target.cache.fix(count)
    return MemoryRoom(target.cache, ROWS, (count - 1) * SMALL - ROWS)


def play(
    drafter: str, processor: LogitsProcessor, size: int, chunk: int = 0, prefixes: PrefixCache | None = None
) -> tuple[list[Course], list[Event], SharedRunner]:
    one, target = case(drafter, forgetful=True), blocked(weights(0))
    shared = pair(shared=True, share=lambda runner: blocked(runner.model))  # type: ignore[arg-type]
    batch = Batch(
        target, one.drafter(shared), one.gamma, one.verifier(), size, prefill_chunk=chunk, room=bounded(target),
        prefixes=prefixes and prefixes.of(),
    )  # fmt: skip
    events: dict[int, list[Event]] = {}
    for live, event in decode_many(batch, requests(processor)):
        events.setdefault(live.request.tag, []).append(event)
        assert batch.room is not None and batch.room.cache.blocks == BLOCKS
    assert not batch.texts
    return [Course.of(events[at]) for at in sorted(events)], [one for each in events.values() for one in each], target


def requests(processor: LogitsProcessor) -> list[Request]:
    return [Request([*prompt], processor, LENGTH, at, tag=at) for at, prompt in enumerate(PROMPTS)]


@cache
def alone(name: str, processor: LogitsProcessor) -> list[Course]:
    """Each text by itself, from the loop of one sequence."""
    one = case(name, forgetful=True)

    def parts() -> tuple[Any, ...]:
        return pair().target, one.drafter(pair()), one.gamma(), one.verifier(), processor

    return [Course.of([*decode(*parts(), prompt, max_new_tokens=LENGTH, seed=at)]) for at, prompt in enumerate(PROMPTS)]


def preemptions(events: list[Event]) -> int:
    return sum(event.preempted or 0 for event in events if isinstance(event, Finished))


DRAFTERS = ["none", "model", "suffix tree", "mtp", "eagle", "mtp dynamic tree", "staged ngram", "suffix tree or model"]


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("processor", [GREEDY, SAMPLED[0]], ids=["greedy", "sampled"])
def test_texts_that_are_put_back_are_what_they_are_alone(drafter: str, processor: LogitsProcessor) -> None:
    """Prompts are read whole, or in chunks: a drafter meets one greedily and the other drawn, in turn."""
    chunk = 3 * ((DRAFTERS.index(drafter) + processor.greedy) % 2)
    found, events, target = play(drafter, processor, 8, chunk)
    if drafter != "staged ngram" or processor is GREEDY:  # whose inner drafts begin anew, so that others are drawn
        assert found == alone(drafter, processor)
    assert preemptions(events) > 0
    assert sum(isinstance(event, Prefilled) for event in events) == len(found), "one for each text"
    assert isinstance(target.cache, BlockRows) and target.cache.free_blocks == BLOCKS


@pytest.mark.parametrize("drafter", ["none", "model", "mtp"])
def test_prefixes_give_way_to_texts(drafter: str) -> None:
    """Blocks of the tree are free for texts; what a text put back is read from the tree where it is still there."""
    kept = PrefixCache(10**9)
    found, events, _ = play(drafter, GREEDY, 8, 3, kept)
    assert found == alone(drafter, GREEDY) and preemptions(events) > 0


def test_a_text_that_can_never_fit_is_refused_and_the_others_go_on() -> None:
    target, one = blocked(weights(0)), case("none", forgetful=True)
    batch = Batch(target, NullDrafter(), one.gamma, one.verifier(), 2, room=bounded(target))
    asked = [replace(request, max_new_tokens=50 if request.tag == 2 else 5) for request in requests(GREEDY)]
    told = [(live.request.tag, event) for live, event in decode_many(batch, asked)]
    failed = {tag: event for tag, event in told if isinstance(event, FailedText)}
    assert [*failed] == [2] and len({tag for tag, _ in told}) == len(PROMPTS)
    assert "up to 48 tokens given; expected at most 40" in failed[2].error


def test_a_fixed_cache_has_no_block_more() -> None:
    target = blocked(weights(0))
    room = bounded(target, 3)
    slot = target.another()
    slot.forward([1] * 12)
    other = target.another()
    with pytest.raises(OutOfBlocks, match="1 blocks wanted and 0 of 3 are free"):
        other.forward([1])
    with pytest.raises(OutOfBlocks, match="3 blocks are in use"):
        room.cache.fix(4)
    slot.wipe()
    assert other.forward([1]).logits.shape[0] == 1

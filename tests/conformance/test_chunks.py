"""Prompts in chunks beside the rounds of others: every text is what it is alone, whoever shares its forwards."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sampling.batch import Batch, decode_many
from sampling.drafter import Drafter
from sampling.forward.caches import attention_metadata
from sampling.forward.runner import ModelRunner
from sampling.forward.sharing import SharedModel, SharedRunner
from sampling.scheduling import reading
from sampling.scheduling.live_text import LiveText, Request
from sampling.scheduling.reading import Reading, next_chunks
from tests.conformance.matrix import case
from tests.conformance.suite import Case
from tests.conformance.test_batches import (
    GREEDY,
    PROMPTS,
    SAMPLED,
    SHARED,
    WAYS,
    Course,
    alone,
    pair,
    requests,
    shuffled,
    weights,
)
from utils.events import Event, Finished, Prefilled, Round
from utils.logits_processor import LogitsProcessor

CHUNKS = (1, 3, 7)


def batch_of(
    one: Case, size: int, chunk: int, target: SharedModel | None = None, drafter: Drafter | None = None
) -> Batch:
    target, drafter = target or SharedRunner(weights(0)), drafter or one.drafter(pair(shared=True))
    return Batch(target, drafter, one.gamma, one.verifier(), size, prefill_chunk=chunk)


def together(batch: Batch, processor: LogitsProcessor, order: Sequence[int]) -> dict[int, list[Event]]:
    """The events of each text, admitted in this order."""
    events: dict[int, list[Event]] = {at: [] for at in order}
    for live, event in decode_many(batch, requests(processor, order)):
        events[live.request.tag].append(event)
    for told in events.values():
        assert isinstance(told[0], Prefilled) and isinstance(told[-1], Finished)
        assert sum(isinstance(event, Prefilled) for event in told) == 1
    return events


def check(names: tuple[str, ...], processor: LogitsProcessor, size: int, chunk: int) -> None:
    expected = alone(names, processor)
    events = together(batch_of(case(*names, forgetful=True), size, chunk), processor, shuffled(size))
    assert [Course.of(events[at]) for at in range(len(PROMPTS))] == expected, f"{size} at a time, {chunk} rows"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody is live, a few rows at a time as well."""
    monkeypatch.setattr("sampling.scheduling.reading.PREFILL_CHUNK", 5)


@pytest.mark.parametrize("drafter", SHARED)
def test_texts_are_those_of_one_sequence(drafter: str) -> None:
    """Every way of drafting under greedy and sampling, its variants under one of them; chunks differ in turn."""
    place = SHARED.index(drafter)
    if drafter in WAYS or place % 2:
        check((drafter,), GREEDY, 8, CHUNKS[place % 3])
    if drafter in WAYS or not place % 2:
        check((drafter,), SAMPLED[place // 2 % 2], 3, CHUNKS[(place + 1) % 3])


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("drafter", ["model", "suffix tree", "eagle dynamic tree", "parallel_eagle"])
def test_chunks_of_any_size(drafter: str, chunk: int) -> None:
    check((drafter,), SAMPLED[1], 3, chunk)


@pytest.mark.parametrize("drafter", WAYS[::3])
def test_forwards_of_fixed_shapes_say_the_same(drafter: str) -> None:
    one, target = case(drafter, forgetful=True), SharedRunner(weights(0), fixed_shapes=True)
    shared = pair(shared=True, share=lambda runner: SharedRunner(runner.model, fixed_shapes=True))  # type: ignore[arg-type]
    shared = replace(shared, target=ModelRunner.with_graphs(weights(0)))
    events = together(batch_of(one, 3, 3, target, one.drafter(shared)), GREEDY, shuffled(3))
    assert [Course.of(events[at]) for at in range(len(PROMPTS))] == alone((drafter,), GREEDY)


@pytest.mark.parametrize("fixed_shapes", [False, True])
def test_rows_in_blocks_say_the_same(fixed_shapes: bool) -> None:
    for drafter in ("model", "mtp dynamic tree"):
        one, target = case(drafter, forgetful=True), SharedRunner(weights(0), fixed_shapes=fixed_shapes, blocks=True)
        events = together(batch_of(one, 3, 3, target), SAMPLED[0], shuffled(3))
        assert [Course.of(events[at]) for at in range(len(PROMPTS))] == alone((drafter,), SAMPLED[0])


def begun(size: int, drafter: str = "none") -> tuple[Batch, LiveText]:
    """A batch that reads three rows a round, and a text that goes on."""
    batch = batch_of(case(drafter), size, 3)
    first, told = batch.admit(Request([1], GREEDY, 30, 0))
    assert told is None and not batch.live and batch.texts == [first]
    ((live, event),) = batch.play()
    assert live is first and isinstance(event, Prefilled) and event.chunks == 0, "there was nothing to read"
    return batch, first


def test_a_prompt_is_read_over_as_many_rounds_as_it_has_chunks() -> None:
    batch, first = begun(2)
    second, _ = batch.admit(Request([1, 2, 3, 4, 5, 4, 3], GREEDY, 2, 0))
    kinds = [[(live, type(event)) for live, event in batch.play()] for _ in range(3)]
    assert kinds == [
        [(first, Round)],
        [(first, Round), (second, Prefilled)],
        [(first, Round), (second, Round)],
    ], "six rows, three at a time"


def test_prompts_are_read_at_once_where_more_wait_than_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PREFILL_CHUNK", 512)
    batch, first = begun(3)
    second, _ = batch.admit(Request([1, 2, 3, 4, 5, 4, 3], GREEDY, 2, 0))
    third, _ = batch.admit(Request([5, 4], GREEDY, 2, 0))
    kinds = [[(live, type(event)) for live, event in batch.play()] for _ in range(2)]
    assert kinds[0] == [(first, Round), (second, Prefilled), (third, Prefilled)], "seven rows of two prompts"
    assert [kind for _, kind in kinds[1]] == [Round] * 3


@pytest.mark.parametrize(
    ("rows", "live", "counts"), [(3, 1, [19, 19]), (3, 2, [4]), (3, 4, [8]), (30, 4, [19, 11]), (0, 0, [19, 19])]
)
def test_how_many_rows_a_round_reads(monkeypatch: pytest.MonkeyPatch, rows: int, live: int, counts: list[int]) -> None:
    """Two prompts of 19 rows: two rows for each text that writes, all where more prompts wait."""
    monkeypatch.setattr(reading, "PREFILL_CHUNK", 512)
    batch = batch_of(case("none"), 2, 3)
    readings = [batch.admit(Request(list(range(1, 21)), GREEDY, 2, 0))[0].reading for _ in range(2)]
    assert [chunk.count for chunk in next_chunks([one for one in readings if one], rows, live)] == counts


@pytest.mark.parametrize(("waiting", "live", "burst"), [(3, 5, False), (4, 5, True), (4, 16, False), (5, 16, True)])
def test_a_burst_is_read_first(monkeypatch: pytest.MonkeyPatch, waiting: int, live: int, burst: bool) -> None:
    monkeypatch.setattr(reading, "PREFILL_CHUNK", 512)
    batch = batch_of(case("none"), waiting, 3)
    readings = [batch.admit(Request(list(range(1, 21)), GREEDY, 2, 0))[0].reading for _ in range(waiting)]
    chunks = next_chunks([one for one in readings if one], 3, live)
    assert sum(chunk.count for chunk in chunks) == (19 * waiting if burst else 2 * live)


def test_events_of_a_text_tell_where_its_time_went() -> None:
    """Its share, what it waited for, and the rounds: the clock of the batch has no second beside."""
    batch = batch_of(case("model"), 3, 3)
    events = together(batch, GREEDY, [3, 0, 2, 7, 5])
    rounds_s = prefills_s = 0.0
    for told in events.values():
        read = told[0]
        assert isinstance(read, Prefilled) and read.chunks is not None and read.prefill_s > 0.0
        prefills_s += read.prefill_s
        rounds = [event for event in told if isinstance(event, Round)]
        rounds_s += sum((one.draft_s + one.verify_s + one.other_s) / one.live for one in rounds)
    assert rounds_s + prefills_s == pytest.approx(batch.now_s)
    long = events[3][0]
    assert isinstance(long, Prefilled) and long.chunks == 8, "39 rows, five at a time, as nobody was live"
    assert events[0][0].waited_s > 0.0, "it waited for the long one"  # type: ignore[union-attr]


def test_a_text_waits_for_the_prompts_beside_its_rounds() -> None:
    batch = batch_of(case("none"), 2, 3)
    first, _ = batch.admit(Request([1, 2], GREEDY, 30, 0))
    batch.play()
    before = [event for _, event in batch.play()]
    batch.admit(Request([1, 2, 3, 4, 5, 4, 3], GREEDY, 2, 0))
    beside = [event for live, event in batch.play() if live is first]
    assert isinstance(before[0], Round) and before[0].waited_s == 0.0
    assert isinstance(beside[0], Round) and beside[0].waited_s > 0.0


def test_a_text_that_is_given_up_while_it_is_read_frees_its_place() -> None:
    expected = alone(("eagle",), GREEDY)
    batch = batch_of(case("eagle", forgetful=True), 2, 3)
    live, _ = batch.admit(requests(GREEDY, [2])[0])
    batch.play()
    batch.play()
    long, _ = batch.admit(requests(GREEDY, [3])[0])
    told = batch.play()
    assert long.reading is not None and batch.full
    batch.drop(long)
    assert long.reading is None and batch.texts == [live] and not batch.full
    third, _ = batch.admit(requests(GREEDY, [7])[0])
    while batch.texts:
        told += batch.play()
    course = Course.of([event for own, event in told if own is third])
    assert course.rounds == expected[7].rounds
    assert all(own is not long for own, event in told)


def test_texts_are_learnt_in_the_order_of_admission() -> None:
    one, learnt = case("none"), list[int]()
    batch = batch_of(one, 3, 3)
    batch.learnt = lambda seq: learnt.append(seq.prompt_length)
    order = [3, 1, 0, 2]
    together(batch, GREEDY, order)
    assert learnt == [len(PROMPTS[at]) for at in order]


def test_what_a_round_pays_does_not_depend_on_the_prompts_beside_it() -> None:
    """By the price: twelve rows of prompts beside three rounds of a row."""
    from egag.cost_model import CostModel

    price = CostModel(((1, 2.0), (11, 7.0)), 0.0, 0.0)
    reading_ = Reading(None, 0.0, 0.0, 0.0)  # type: ignore[arg-type]
    chunk = reading.Chunk(reading_, 12)
    rounds: list[Any] = [RuntimeError()] * 3
    share = reading.share_of_prompts(price, rounds, [chunk])
    assert share == pytest.approx(1.0 - 3.0 / 9.0)
    seconds = {"verify": 9.0, "draft": 1.0, "other": 1.0, "prefill": 0.5, "capture": 0.0}
    assert reading.charge(price, rounds, [chunk], [reading_], seconds) == pytest.approx(6.5)
    assert seconds["verify"] == pytest.approx(3.0) and (reading_.read_s, reading_.draft_s) == pytest.approx((6.0, 0.5))
    assert reading.share_of_prompts(price, [], [chunk]) == 1.0
    assert reading.share_of_prompts(price, rounds, []) == 0.0
    flat = CostModel(((1, 1.0),), 0.0, 0.0)
    assert reading.share_of_prompts(flat, rounds, [chunk]) == pytest.approx(12 / 15), "a price that tells nothing"


def test_rounds_attend_side_by_side_beside_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one after the other, though the chunk has many rows."""
    seen, honest = list[Any](), attention_metadata.RoundsAndPrompts.__init__

    def noted(self: Any, *given: Any) -> None:
        seen.append(given)
        honest(self, *given)

    monkeypatch.setattr(attention_metadata.RoundsAndPrompts, "__init__", noted)
    check(("none",), GREEDY, 8, 7)
    assert any(isinstance(rounds, attention_metadata.PaddedAttention) for rounds, _, prompts in seen)
    assert max(len(prompts) for _, _, prompts in seen) > 1, "several prompts share a forward"


class TestPlanted:
    """Faults of chunks, each of which must be seen."""

    @pytest.fixture(autouse=True)
    def expected(self) -> None:
        for drafter in ("none", "eagle"):
            alone((drafter,), GREEDY)

    @staticmethod
    def fails(drafter: str) -> bool:
        try:
            check((drafter,), GREEDY, 3, 3)
        except (AssertionError, RuntimeError, IndexError):
            return True
        return False

    def test_states_of_the_wrong_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = Reading.keep
        turned = lambda self, states: honest(self, {at: rows.flip(0) for at, rows in states.items()})  # noqa: E731
        monkeypatch.setattr(Reading, "keep", turned)
        assert self.fails("eagle")

    def test_ids_of_another_prompt(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = reading.ids_of
        for module in ("sampling.phases", "sampling.scheduling.reading"):
            monkeypatch.setattr(f"{module}.ids_of", lambda *given: honest(*given).flip(0))
        assert self.fails("none")

    def test_a_text_that_begins_a_row_too_early(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Reading, "left", property(lambda self: max(0, len(self.seq.tokens) - 2 - self.slot.length)))
        assert self.fails("none")

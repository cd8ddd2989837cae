"""How a bounded memory is divided among the models of a batch, and who is refused."""

from dataclasses import replace
from typing import Any

import pytest

from sampling.engine import Text
from sampling.forward.caches import blocks
from sampling.forward.caches.blocks import BlockRows
from sampling.forward.sharing import SharedRunner
from sampling.methods.settings import Settings
from sampling.pair import kv_pool
from sampling.pair.pair_engine import PairEngine
from tests.conformance.test_batches import pair
from tests.refusals import refused


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of four rows, and a memory in thousands of bytes."""
    monkeypatch.setattr(blocks, "BLOCK", 4)
    monkeypatch.setattr(kv_pool, "MB", 1000)


def settings(**values: Any) -> dict[str, Any]:
    return {**Settings(), "length": 8, "chat": False, **values}


def held(cache: BlockRows) -> int:
    return (cache.blocks + 1) * cache.block_bytes


def bytes_of(engine: PairEngine) -> list[int]:
    pool = engine._sharing._pool
    assert pool is not None
    return [held(cache) for cache in pool._caches()]


@pytest.mark.parametrize(("method", "thousands"), [("target", 60), ("speculative", 420), ("mtp", 180), ("eagle", 180)])
def test_all_models_together_take_no_more_than_they_may(method: str, thousands: int) -> None:
    engine, values = PairEngine(replace(pair(), share=None)), settings(kv_memory=thousands)
    batch = engine.batch(method, values, 3)
    assert len(bytes_of(engine)) == (1 if method == "target" else 2)
    assert 0.8 * thousands * 1000 < sum(bytes_of(engine)) <= thousands * 1000
    for at in range(3):
        batch.admit(engine.request(method, values, Text(at, [1, 2, 3], 8)))
    before = bytes_of(engine)
    while batch.texts:
        batch.play()
    assert bytes_of(engine) == before


def test_batches_share_the_models_of_a_memory() -> None:
    engine, values = PairEngine(replace(pair(), share=None)), settings(kv_memory=1500)
    first, second = (engine.batch("target", values, 2, run) for run in ("a", "b"))
    assert first.target is second.target and isinstance(first.target, SharedRunner)
    assert engine.batch("target", settings(), 2).target is not first.target


def test_a_new_drafter_waits_until_nothing_is_in_progress() -> None:
    engine, values = PairEngine(replace(pair(), share=None)), settings(kv_memory=1500)
    batch = engine.batch("target", values, 2)
    batch.admit(engine.request("target", values, Text(0, [1, 2, 3], 8)))
    batch.play()
    with refused("kv_memory", 1500):
        engine.batch("mtp", values, 2)
    while batch.texts:
        batch.play()
    engine.batch("mtp", values, 2)
    assert sum(bytes_of(engine)) <= 1500_000


def test_no_more_is_taken_than_texts_can_fill() -> None:
    engine = PairEngine(replace(pair(), share=None))
    engine.batch("target", settings(kv_memory=1500), 3)
    few = sum(bytes_of(engine))
    engine.batch("target", settings(kv_memory=10**9), 3)
    assert sum(bytes_of(engine)) == few < 1500_000


def test_more_texts_have_more_blocks() -> None:
    """A plan of several batch sizes: what was enough for one text is not for eight."""
    engine, values = PairEngine(replace(pair(), share=None)), settings(kv_memory=10**6)
    engine.batch("mtp", values, 1)
    few = bytes_of(engine)
    engine.batch("mtp", values, 8)
    assert all(many > 5 * one for many, one in zip(bytes_of(engine), few, strict=True))


def test_too_little_is_refused_with_what_would_do() -> None:
    engine = PairEngine(replace(pair(), share=None))
    with refused("kv_memory", 1):
        engine.batch("target", settings(kv_memory=1), 2)

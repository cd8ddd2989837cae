"""How long caches and graphs live, how many there are, and what is let go of where memory runs out."""

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from weakref import ref

import pytest
import torch

from sampling.forward.caches.cache import RollbackCache
from sampling.forward.caches.fixed import BUCKET, CachePool, bucket
from sampling.forward.caches.rows import RowsCache
from sampling.forward.caches.rows_transformers import TransformersRowsCache
from sampling.forward.caches.transformers_cache import TransformersCache
from sampling.forward.models import lean
from sampling.forward.models.steps import BlockShape
from sampling.forward.runner import ModelRunner, feed
from sampling.measure.warm_up import warm_up
from sampling.methods.settings import Settings
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from tests.emulated_graphs import emulate
from tests.heads import random_heads
from tests.refusals import refused
from tests.tiny import TOKENS, WIDE, llama, random_model
from utils.device.captured import captured_s
from utils.device.graph_pool import MOST, GraphPool
from utils.device.graphed import Graphed
from utils.device.spare import CACHES, GRAPHS, drop_all
from utils.events import Round

SHAPE = BlockShape(8, 2, 16)
CPU, FORMAT = torch.device("cpu"), torch.bfloat16
LAYERS = 3
TREE = {"draft_tree": "dynamic", "gamma": "4", "tree_width": "4", "tree_tokens": "16"}


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def pair_of(window: int) -> Pair:
    """A pair on graphs, with all heads."""
    model = lean.from_transformers(random_model(llama(max_position_embeddings=window)))
    small = replace(model, blocks=replace(model.blocks, layers=model.layers[:2]))
    info = ModelInfo("tiny", "cpu", "float32", graphs=True)
    heads = random_heads(WIDE["hidden_size"], LAYERS, window, tuple(range(0, TOKENS, 3)), TOKENS)
    target, drafter = (ModelRunner.with_graphs(one) for one in (model, small))
    return Pair(target, drafter, None, frozenset({-7}), info, info, heads=heads)  # type: ignore[arg-type]


def said(engine: PairEngine, method: str, prompt: list[int], length: int = 24, **given: str) -> list[int]:
    settings = Settings()
    settings.assign_all({"length": str(length), **given}.items())
    events = engine.stream(method, settings, prompt)
    return [token for event in events if isinstance(event, Round) for token in event.emitted]


@pytest.mark.parametrize(
    "make",
    [
        lambda: RollbackCache(2, CPU, FORMAT),
        lambda: RowsCache(2, SHAPE, CPU, FORMAT),
        lambda: TransformersCache(2, CPU, FORMAT),
        lambda: TransformersRowsCache(2, SHAPE, CPU, FORMAT),
    ],
    ids=["rollback", "rows", "transformers", "transformers rows"],
)
def test_a_cache_goes_with_its_last_user(make: Callable[[], Any], uncollected: None) -> None:
    held = make()
    gone = ref(held)
    del held
    assert gone() is None


def test_memory_of_before_a_cache_grew_is_free(uncollected: None) -> None:
    runner = ModelRunner.with_graphs(lean.from_transformers(random_model(llama(max_position_embeddings=8192))))
    feed(runner, [5, 6, 7])
    before = ref(runner.cache.owner.keys)
    runner.cache.columns(3000)
    runner.forward([8])
    assert before() is None and runner.cache.owner.keys.shape[3] >= 3000


@pytest.mark.parametrize(
    ("method", "given"),
    [("target", {}), ("speculative", {}), ("mtp", {}), ("eagle", TREE), ("medusa", {}), ("hydra", {}), ("suffix", {})],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_no_cycle_owns_a_graph(
    method: str, given: dict[str, str], uncollected: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collector that destroys a graph while another one is captured ends that capture."""
    emulate(monkeypatch)
    there = set(map(id, GRAPHS)), set(map(id, CACHES))
    engine = PairEngine(pair_of(256))
    assert said(engine, method, [5, 6, 7, 5, 6], **given)
    made = [one for one in GRAPHS if id(one) not in there[0]]
    assert any(len(pool) for pool in made if isinstance(pool, GraphPool))
    del engine, made
    assert not [one for one in GRAPHS if id(one) not in there[0]]
    assert not [one for one in CACHES if id(one) not in there[1]]


@pytest.mark.parametrize(
    ("rows", "most", "columns"),
    [(1, 9000, 256), (256, 9000, 256), (257, 9000, 512), (1025, 9000, 2048), (8193, 9000, 9216), (9000, 9000, 9216)],
)
def test_columns_double(rows: int, most: int, columns: int) -> None:
    assert bucket(rows, most) == columns and columns % BUCKET == 0


LENGTHS = (20, 240, 500, 1000, 2030, 4080, 7900)
"""Of prompts: what follows each passes a border of columns, or is behind the last one."""


@pytest.mark.parametrize(
    ("method", "given", "graphs", "megabytes"),
    [
        ("target", {}, 12, 0.01),
        ("speculative", {"gamma": "4"}, 34, 0.05),
        ("egag", {}, 30, 0.05),
        ("eagle", TREE, 60, 0.25),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_graphs_of_8000_tokens(
    method: str, given: dict[str, str], graphs: int, megabytes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many are captured in all, and what the most of them hold that are there at a time."""
    drop_all()
    made, most, add = 0, 0, GraphPool.add

    def counted(pool: GraphPool, *entry: Any) -> None:
        nonlocal made, most
        add(pool, *entry)
        made += 1
        most = max(most, sum(one.held_bytes for one in GRAPHS if isinstance(one, GraphPool)))
        assert len(pool) <= MOST

    monkeypatch.setattr(GraphPool, "add", counted)
    engine = PairEngine(pair_of(8192))
    for length in LENGTHS:
        said(engine, method, [5 + place % 7 for place in range(length)], 40, **given)
    assert 0 < made <= graphs and most <= megabytes * 1e6


def test_graphs_of_all_widths_over_8000_tokens() -> None:
    """A rule that visits every width finds the graphs of its columns, and those of other columns make room."""
    runner = ModelRunner.with_graphs(lean.from_transformers(random_model(llama(max_position_embeddings=8192))))
    assert runner.graphs is not None
    pool, seen, most = runner.graphs._captured.pool, set[Any](), 0
    for columns in (256, 512, 1024, 2048, 4096, 8192):
        for width in [*range(1, 18)] * 2:
            runner.crop(0)
            runner.cache.advance(columns - 20)
            runner.forward(torch.arange(width))
            seen |= set(pool)
            most = max(most, len(pool))
    assert len(seen) == 6 * 17 and most == MOST


class Short:
    """A device with too little memory: forwards of prompts fail as long as `lacking` says so."""

    def __init__(self, lacking: Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
        self.failed, forward = 0, lean.LeanModel.forward

        def short(model: Any, ids: Any, *given: Any, **named: Any) -> Any:
            if len(ids) > 64 and lacking():
                self.failed += 1
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB.")
            return forward(model, ids, *given, **named)

        monkeypatch.setattr(lean.LeanModel, "forward", short)


def graphs_there() -> int:
    return sum(len(pool) for pool in GRAPHS if isinstance(pool, GraphPool))


def caches_there() -> int:
    return sum(len(pool._free) for pool in CACHES if isinstance(pool, CachePool))


PROMPT = [5 + place % 7 for place in range(90)]


@pytest.mark.parametrize(("lacking", "failures"), [(graphs_there, 1), (caches_there, 2)], ids=["graphs", "caches"])
def test_an_answer_goes_on_where_graphs_or_unused_caches_were_all_that_was_too_much(
    lacking: Callable[[], int], failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulate(monkeypatch)
    drop_all()
    engine = PairEngine(pair_of(256))
    first = said(engine, "speculative", PROMPT)
    engine.renew()
    spare = engine.pair.target.another()
    del spare
    said(engine, "speculative", PROMPT[:3])
    assert graphs_there() and caches_there()
    short = Short(lambda: bool(lacking()), monkeypatch)
    assert said(engine, "speculative", PROMPT) == first and short.failed == failures


def test_the_session_goes_on_after_memory_ran_out(monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch)
    drop_all()
    engine = PairEngine(pair_of(256))
    first = said(engine, "speculative", PROMPT)
    room = ref(engine.pair.target.cache.owner.keys)  # type: ignore[attr-defined]
    with monkeypatch.context() as patched:
        Short(lambda: True, patched)
        with refused("--graphs off", "20 MiB"):
            said(engine, "speculative", PROMPT)
        assert (graphs_there(), caches_there(), room()) == (0, 0, None)
    assert said(engine, "speculative", PROMPT) == first


def test_a_capture_that_runs_out_of_memory_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch)
    drop_all()
    kept, calls = Graphed(lambda one: (one + 1,), CPU), 0
    kept(torch.ones(1))

    def once(one: torch.Tensor) -> tuple[torch.Tensor]:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return (one + 1,)

    called = Graphed(once, CPU)
    assert called(torch.ones(1))[0].tolist() == [2.0]
    assert (called.shapes, called.reason, kept.shapes) == (1, "", 0)
    assert kept(torch.ones(2))[0].tolist() == [2.0, 2.0]


@pytest.mark.parametrize(("method", "given"), [("target", {}), ("speculative", {"gamma": "4"})])
def test_graphs_are_captured_before_the_first_timed_round(
    method: str, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    emulate(monkeypatch)
    monkeypatch.setattr(PairEngine, "tokenise", lambda *about: [5 + place % 7 for place in range(80)])
    engine = PairEngine(pair_of(1024))
    settings = Settings()
    settings.assign_all({**given, "length": "4"}.items())
    for _ in warm_up(engine, settings, [(method, method, {})], longest=700):
        pass
    before = captured_s()
    assert before > 0.0
    for length in (80, 240, 500, 600):
        said(engine, method, [5 + place % 7 for place in range(length)], 40, **given)
    assert captured_s() == before

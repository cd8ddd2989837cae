"""What an account calls the wall clock is what a watch shows, and captures have a share of their own in it."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from sampling.engine import Text
from sampling.forward.models import lean
from sampling.measure.metrics import RunMetrics
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from tests.emulated_graphs import Graph, emulate
from tests.sampling.forward.test_graph_memory import TREE, pair_of
from utils.device import graphed

FORWARD_S, REPLAY_S, CAPTURE_S, PROMPT = 1.0, 0.25, 100.0, [5 + place % 7 for place in range(80)]


class Watch:
    """Time that passes in forwards, replays and captures alone."""

    def __init__(self) -> None:
        self.now, self.captures = 0.0, 0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    emulate(monkeypatch)
    made, forward, replay, recorded = Watch(), lean.LeanModel.forward, Graph.replay, graphed._recorded_on

    def computed(*given: Any) -> Any:
        made.now += FORWARD_S
        return forward(*given)

    def captured(*given: Any) -> Any:
        made.now += CAPTURE_S
        made.captures += 1
        return recorded(*given)

    def replayed(graph: Graph) -> None:
        made.now += REPLAY_S
        replay(graph)

    monkeypatch.setattr(Graph, "replay", replayed)
    monkeypatch.setattr(lean.LeanModel, "forward", computed)
    monkeypatch.setattr(graphed, "_recorded_on", captured)
    monkeypatch.setattr(time, "perf_counter", made)
    yield made


def settings(given: dict[str, str]) -> Settings:
    made = Settings()
    made.assign_all({"length": "24", **given}.items())
    return made


@pytest.mark.parametrize(
    ("method", "given"),
    [("target", {}), ("speculative", {"gamma": "3"}), ("eagle", TREE)],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_the_wall_clock_is_the_watch(method: str, given: dict[str, str], watch: Watch) -> None:
    account = RunMetrics()
    for event in PairEngine(pair_of(256)).stream(method, settings(given), PROMPT):
        account.add(event)
    assert watch.captures and account.capture_s >= watch.captures * CAPTURE_S
    assert account.wall_s == pytest.approx(watch.now)
    rest = account.prefill_s + account.decode_s
    assert 0.0 < rest < CAPTURE_S and account.wall_s == pytest.approx(rest + account.capture_s)
    assert account.tokens_per_s == pytest.approx(account.new_tokens / account.decode_s)
    assert account.e2e_tokens_per_s == pytest.approx(account.new_tokens / watch.now)
    assert account.tpot_ms is not None and account.tpot_ms < CAPTURE_S * 1e3 / account.new_tokens


def test_texts_side_by_side_have_the_watch_until_they_end(watch: Watch) -> None:
    engine, accounts = PairEngine(pair_of(256)), [RunMetrics(), RunMetrics()]
    texts = [Text(place, PROMPT, 24) for place in range(2)]
    for tag, event in engine.stream_many("target", settings({}), texts, 2):
        accounts[tag].add(event)
    assert watch.captures and all(account.capture_s >= CAPTURE_S for account in accounts)
    assert [account.wall_s for account in accounts] == pytest.approx([watch.now] * 2), "both prompts share a forward"

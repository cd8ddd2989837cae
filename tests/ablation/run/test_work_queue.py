"""Parts of a plan handed out to players that are made up here: no part twice, none lost, and an end to every fault."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from ablation.plan.grid import Plan
from ablation.plan.prompts.file import Prompt
from ablation.run.execute import PlayedRow
from ablation.run.on_ray import dispatch
from ablation.run.on_ray.cluster import ClusterDevice, set_up
from ablation.run.on_ray.conduct import refuse_sides
from ablation.run.on_ray.dispatch import Dispatcher
from ablation.run.on_ray.work_queue import WorkItem, WorkQueue
from ablation.run.on_ray.worker_pool import WorkerSlot
from tests.ablation.mock_engine import mock_plan
from tests.refusals import refused
from utils.interrupt import Interrupt

PLAN = mock_plan(prompts=3)


class Died(Exception):
    """A player's process is gone."""


class FakeRay:
    """Promises are functions; the oldest comes first."""

    exceptions = SimpleNamespace(RayError=Died)

    def wait(self, promises: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return promises[:1], promises[1:]


class FakePlayer:
    """play: what comes of a part, by the ids of its prompts, or what it raises."""

    def __init__(self, play: Callable[[str], Any]) -> None:
        self.play = SimpleNamespace(remote=lambda units, done: lambda: play(units[0].id))


@dataclass
class FakePool:
    """A new player for each that died, as long as there are any."""

    play: Callable[[str], Any]
    more: int = 99
    ray: FakeRay = field(default_factory=FakeRay)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.slots = [self._slot(name) for name in "ab"]

    def _slot(self, name: str) -> WorkerSlot:
        return WorkerSlot(ClusterDevice(name, name, 1.0), FakePlayer(self.play))

    def say(self, text: str) -> None:
        self.said.append(text)

    def answer(self, promise: Callable[[], Any]) -> Any:
        return promise()

    def replaced(self, slot: WorkerSlot) -> WorkerSlot:
        return self._slot(slot.place.name)

    def dismiss(self, slot: WorkerSlot) -> None:
        pass

    def arrival(self, slot: WorkerSlot) -> Callable[[], None]:
        return lambda: None

    def begin(self, slot: WorkerSlot) -> Callable[[], None]:
        def ready() -> None:
            self.more -= 1
            if self.more < 0:
                raise Died("no node")

        return ready


def run(pool: FakePool, queue: WorkQueue, stop_after: int | None = None) -> list[str]:
    """What was kept, in order."""
    kept: list[str] = []
    interrupt = Interrupt()

    def keep(slot: WorkerSlot, played: Any) -> None:
        kept.append(played)
        interrupt.asked = interrupt.asked or len(kept) == stop_after

    Dispatcher(pool, queue, keep, lambda slot: None, lambda note: None).play(interrupt)  # type: ignore[arg-type]
    return kept


def queue_of(plan: Plan = PLAN, done: Any = None) -> WorkQueue:
    return WorkQueue(plan, done or {}, ["full"])


def all_of(queue: WorkQueue) -> list[WorkItem]:
    return [queue.take() for _ in range(len(queue))]


def keys(plan: Plan) -> list[Any]:
    return [place.key for one in plan.passes() for place in plan.places(one, ["full"])]


def test_the_largest_parts_come_first_and_what_is_there_does_not() -> None:
    lengths = (5, 300, 40)
    prompts = tuple(Prompt(f"p{i}", ("x",), max_new_tokens=length) for i, length in enumerate(lengths))
    plan = replace(PLAN, prompts=prompts)
    assert [item.units[0].id for item in all_of(queue_of(plan))] == ["p1"] * 4 + ["p2"] * 4 + ["p0"] * 4
    there = {key: PlayedRow("a") for key in keys(plan) if key.id == "p1"}
    assert [item.units[0].id for item in all_of(queue_of(plan, there))] == ["p2"] * 4 + ["p0"] * 4


def test_what_a_torn_part_has_goes_with_it() -> None:
    first = keys(PLAN)[0]
    found = [item for item in all_of(queue_of(done={first: PlayedRow("a")})) if item.done]
    assert [list(item.done) for item in found] == [[first]] and found[0].units[0].id == first.id
    assert not queue_of(done={key: PlayedRow("a") for key in keys(PLAN)})


def test_a_plan_in_batches_goes_by_passes() -> None:
    found = all_of(queue_of(replace(PLAN, batches=(2,))))
    assert [len(item.units) for item in found] == [3, 3, 3, 3] and found[0].text.startswith("all 3 prompts, ")


def test_every_part_is_kept_once() -> None:
    pool = FakePool(play=lambda name: name)
    assert sorted(run(pool, queue_of())) == sorted(["p0", "p1", "p2"] * 4) and not pool.said


def test_what_dies_with_its_player_is_played_again() -> None:
    deaths = iter([Died("killed"), Died("killed")])

    def play(name: str) -> str:
        for death in deaths:
            raise death
        return name

    pool = FakePool(play)
    assert sorted(run(pool, queue_of())) == sorted(["p0", "p1", "p2"] * 4)
    assert sum("will be played again" in text for text in pool.said) == 2


@pytest.mark.parametrize("fault", [Died("killed"), RuntimeError("planted")])
def test_a_part_that_fails_three_times_is_given_up_and_named(fault: Exception) -> None:
    def play(name: str) -> str:
        if name == "p1":
            raise fault
        return name

    pool, queue = FakePool(play), queue_of()
    assert sorted(run(pool, queue)) == ["p0"] * 4 + ["p2"] * 4
    assert {item.units[0].id for item in queue.given_up} == {"p1"} and len(queue.given_up) == 4 and not queue
    assert sum("given up" in text for text in pool.said) == 4 and str(fault) in queue.given_up[0].lost[-1]


def test_it_ends_where_a_device_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine is gone: nobody ever says that the new player is there."""

    class Gone(FakePool):
        def arrival(self, slot: WorkerSlot) -> Callable[[], None]:
            never.add(promise := super().arrival(slot))
            return promise

    class Waiting(FakeRay):
        def wait(self, promises: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
            return [promise for promise in promises if promise not in never][:1], []

    def play(name: str) -> str:
        raise Died("killed")

    never = set[Any]()
    monkeypatch.setattr(dispatch, "PATIENCE_S", 0.0)
    pool, queue = Gone(play, ray=Waiting()), queue_of()
    assert not run(pool, queue) and queue
    assert sum("is lost" in text for text in pool.said) == 2


def test_it_ends_when_no_player_is_left() -> None:
    def play(name: str) -> str:
        raise Died("no network")

    pool, queue = FakePool(play, more=0), queue_of()
    assert not run(pool, queue) and len(queue) == 12 and sum("is lost: no node" in text for text in pool.said) == 2


def test_ctrl_c_lets_the_parts_under_way_end() -> None:
    pool, queue = FakePool(play=lambda name: name), queue_of()
    assert len(run(pool, queue, stop_after=3)) == 4 and len(queue) == 8
    assert "1 part under way will be finished first" in pool.said[0]


def test_ray_is_told_to_be_quiet_and_a_cluster_of_our_own_to_be_closed_to_others() -> None:
    ours: dict[str, str] = {}
    set_up(ours, "local")
    assert ours["RAY_AUTH_MODE"] == "token" and len(ours["RAY_AUTH_TOKEN"]) == 64
    for address, given in (("auto", {}), ("local", {"RAY_AUTH_MODE": "disabled"})):
        environment = dict(given)
        set_up(environment, address)
        assert "RAY_AUTH_TOKEN" not in environment and environment["RAY_USAGE_STATS_ENABLED"] == "0"


def test_a_player_has_the_threads_of_a_run_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    cores, gpu = ClusterDevice("n", "node", 8.0), ClusterDevice("n", "node", gpus=1)
    assert cores.environment()["OMP_NUM_THREADS"] is None and cores.environment()["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in gpu.environment() and gpu.text == "a GPU of node"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert gpu.environment()["OMP_NUM_THREADS"] == "3"


def test_other_engines_are_refused() -> None:
    side: Any = SimpleNamespace(spec=SimpleNamespace(name="vllm"))
    refuse_sides(PLAN)
    with refused("--ray", "[[engines]]", "vllm", "--shard"):
        refuse_sides(replace(PLAN, sides=(side,)))

"""Parts of a plan handed out to players that are made up here: no part twice, none lost, and an end to every fault."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from ablation.plan.grid import Plan
from ablation.plan.prompt_file import Prompt
from ablation.run.execute import Done
from ablation.run.on_ray.cluster import Place, set_up
from ablation.run.on_ray.conduct import refuse_sides
from ablation.run.on_ray.hand_out import HandOut
from ablation.run.on_ray.lots import Lot, Lots
from ablation.run.on_ray.team import Seat
from tests.ablation.mock_engine import mock_plan
from utils.errors import UserError
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
class FakeTeam:
    """A new player for each that died, as long as there are any."""

    play: Callable[[str], Any]
    more: int = 99
    ray: FakeRay = field(default_factory=FakeRay)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.seats = [self._seat(name) for name in "ab"]

    def _seat(self, name: str) -> Seat:
        return Seat(Place(name, name, 1.0), FakePlayer(self.play))

    def say(self, text: str) -> None:
        self.said.append(text)

    def answer(self, promise: Callable[[], Any]) -> Any:
        return promise()

    def replaced(self, seat: Seat) -> Seat:
        return self._seat(seat.place.name)

    def dismiss(self, seat: Seat) -> None:
        pass

    def begin(self, seat: Seat) -> Callable[[], None]:
        def ready() -> None:
            self.more -= 1
            if self.more < 0:
                raise Died("no node")

        return ready


def run(team: FakeTeam, lots: Lots, stop_after: int | None = None) -> list[str]:
    """What was kept, in order."""
    kept: list[str] = []
    interrupt = Interrupt()

    def keep(seat: Seat, played: Any) -> None:
        kept.append(played)
        interrupt.asked = interrupt.asked or len(kept) == stop_after

    HandOut(team, lots, keep, lambda seat: None, lambda note: None).play(interrupt)  # type: ignore[arg-type]
    return kept


def lots_of(plan: Plan = PLAN, done: Any = None) -> Lots:
    return Lots(plan, done or {}, ["full"])


def all_of(lots: Lots) -> list[Lot]:
    return [lots.take() for _ in range(len(lots))]


def keys(plan: Plan) -> list[Any]:
    return [place.key for one in plan.passes() for place in plan.places(one, ["full"])]


def test_the_largest_parts_come_first_and_what_is_there_does_not() -> None:
    lengths = (5, 300, 40)
    prompts = tuple(Prompt(f"p{i}", ("x",), max_new_tokens=length) for i, length in enumerate(lengths))
    plan = replace(PLAN, prompts=prompts)
    assert [lot.units[0].id for lot in all_of(lots_of(plan))] == ["p1"] * 4 + ["p2"] * 4 + ["p0"] * 4
    there = {key: Done("a") for key in keys(plan) if key.id == "p1"}
    assert [lot.units[0].id for lot in all_of(lots_of(plan, there))] == ["p2"] * 4 + ["p0"] * 4


def test_what_a_torn_part_has_goes_with_it() -> None:
    first = keys(PLAN)[0]
    found = [lot for lot in all_of(lots_of(done={first: Done("a")})) if lot.done]
    assert [list(lot.done) for lot in found] == [[first]] and found[0].units[0].id == first.id
    assert not lots_of(done={key: Done("a") for key in keys(PLAN)})


def test_a_plan_in_batches_goes_by_passes() -> None:
    found = all_of(lots_of(replace(PLAN, batches=(2,))))
    assert [len(lot.units) for lot in found] == [3, 3, 3, 3] and found[0].text.startswith("all 3 prompts, ")


def test_every_part_is_kept_once() -> None:
    team = FakeTeam(play=lambda name: name)
    assert sorted(run(team, lots_of())) == sorted(["p0", "p1", "p2"] * 4) and not team.said


def test_what_dies_with_its_player_is_played_again() -> None:
    deaths = iter([Died("killed"), Died("killed")])

    def play(name: str) -> str:
        for death in deaths:
            raise death
        return name

    team = FakeTeam(play)
    assert sorted(run(team, lots_of())) == sorted(["p0", "p1", "p2"] * 4)
    assert sum("will be played again" in text for text in team.said) == 2


@pytest.mark.parametrize("fault", [Died("killed"), RuntimeError("planted")])
def test_a_part_that_fails_three_times_is_given_up_and_named(fault: Exception) -> None:
    def play(name: str) -> str:
        if name == "p1":
            raise fault
        return name

    team, lots = FakeTeam(play), lots_of()
    assert sorted(run(team, lots)) == ["p0"] * 4 + ["p2"] * 4
    assert {lot.units[0].id for lot in lots.given_up} == {"p1"} and len(lots.given_up) == 4 and not lots
    assert sum("given up" in text for text in team.said) == 4 and str(fault) in lots.given_up[0].lost[-1]


def test_it_ends_when_no_player_is_left() -> None:
    def play(name: str) -> str:
        raise Died("no network")

    team, lots = FakeTeam(play, more=0), lots_of()
    assert not run(team, lots) and len(lots) == 12 and sum("is lost: no node" in text for text in team.said) == 2


def test_ctrl_c_lets_the_parts_under_way_end() -> None:
    team, lots = FakeTeam(play=lambda name: name), lots_of()
    assert len(run(team, lots, stop_after=3)) == 4 and len(lots) == 8
    assert "1 part under way will be finished first" in team.said[0]


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
    cores, gpu = Place("n", "node", 8.0), Place("n", "node", gpus=1)
    assert cores.environment()["OMP_NUM_THREADS"] is None and cores.environment()["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in gpu.environment() and gpu.text == "a GPU of node"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert gpu.environment()["OMP_NUM_THREADS"] == "3"


def test_other_engines_are_refused() -> None:
    side: Any = SimpleNamespace(spec=SimpleNamespace(name="vllm"))
    refuse_sides(PLAN)
    with pytest.raises(UserError, match=r"\[\[engines\]\] \(vllm\); expected --shard"):
        refuse_sides(replace(PLAN, sides=(side,)))

"""Timings beside other processes: waited out where asked, and told wherever they are shown."""

from itertools import count
from pathlib import Path
from typing import cast

import pytest

from ablation.plan.grid import PlannedGeneration
from ablation.run import job
from ablation.run.progress.quiet import QuietWatcher
from sampling.proof.selftest import MethodReport, Selftest
from tests.ablation.conftest import Invoke, objects
from tests.ablation.mock_engine import mock_engine, mock_plan
from tests.ablation.playing import Silent, results_file
from utils.device import machine

NOWHERE = cast(PlannedGeneration, None)


class Planted:
    """A sensor that takes a second a look, and the clock that it moves."""

    def __init__(self, *cores: float) -> None:
        self.now, self._cores = 0.0, iter(cores)

    def sense(self) -> float:
        self.now += 1.0
        return next(self._cores)

    def clock(self) -> float:
        return self.now


def begun(limit_s: float, *cores: float) -> tuple[list[str], float]:
    """What was said, and seconds waited, before a generation that may wait so long."""
    said: list[str] = []
    planted = Planted(*cores)
    waiting = QuietWatcher(limit_s, said.append, planted.sense, planted.clock)
    waiting.begin(NOWHERE)
    assert waiting.waited_s == planted.now
    return said, planted.now


def test_a_free_machine_is_looked_at_once() -> None:
    assert begun(60.0, 0.1) == ([], 1.0)


def test_a_busy_machine_is_waited_for() -> None:
    said, seconds = begun(60.0, 1.4, 0.9, 0.3, 0.1)
    assert said == ["waiting for an idle machine: other processes keep 1.4 cores busy"] and seconds == 4.0


def test_time_that_is_up_ends_the_wait() -> None:
    said, seconds = begun(3.0, 1.0, 1.1, 1.2, 1.3)
    assert said[1:] == ["other processes still keep 1.2 cores busy after 3 s: continuing"] and seconds == 3.0


def test_without_a_limit_nobody_looks() -> None:
    assert begun(0.0) == ([], 0.0)


def test_a_run_waits_before_each_generation_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[PlannedGeneration] = []

    class Counted(QuietWatcher):
        def __init__(self, limit_s: float, say: object) -> None:
            planted = Planted(*(1.0 for _ in range(1000)))
            super().__init__(limit_s, say, planted.sense, planted.clock)  # type: ignore[arg-type]

        def begin(self, place: PlannedGeneration) -> None:
            waits.append(place)
            super().begin(place)

    monkeypatch.setattr(job, "QuietWatcher", Counted)
    display = Silent()
    with results_file(tmp_path / "r.csv", mock_plan(prompts=1)) as file:
        outcome = job.PlanJob(mock_engine(), file.plan, file, wait_quiet_s=2.0).play(display)
    assert outcome.rows == len(waits) == mock_plan(prompts=1).generations
    assert len(display.said) == 2 * outcome.rows and "continuing" in display.said[1]
    assert waits == display.places


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the machine finds others at work."""
    readings = count(0.0, 1e6)
    monkeypatch.setattr(machine, "_SHORTEST_S", 0.0)
    monkeypatch.setattr(machine, "_busy_s", lambda: next(readings))


def test_a_one_shot_run_tells_of_other_processes(invoke: Invoke, busy: None) -> None:
    told = invoke("run", "--prompt", "Hello", "--length", 4)
    assert "other processes kept up to" in told.stdout and "during 3 of 3 runs" in told.stdout
    (record,) = objects(invoke("run", "--prompt", "Hello", "--length", 4, "--methods", "target", "--json").stdout)
    assert record["other_cores"] > 1


def test_a_selftest_tells_of_other_processes(invoke: Invoke, busy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Selftest, "report", lambda self, name: MethodReport(name, ()))
    told = invoke("selftest", "--methods", "prompt_lookup", "--target-weights", "full", "--json")
    assert "other processes kept up to" in told.stderr and "verdicts do not depend on that" in told.stderr
    assert len(objects(told.stdout)) == 1


def test_a_free_machine_is_no_news(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_busy_s", lambda: 0.0)
    assert "other processes" not in invoke("run", "--prompt", "Hello", "--length", 4).stdout

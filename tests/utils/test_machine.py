"""What others did meanwhile, and what is said of it."""

from collections.abc import Iterator

import pytest

from utils.device import machine
from utils.device.machine import Machine, disturbance, other_cores


@pytest.mark.parametrize(
    ("cores", "said"),
    [
        ([], None),
        ([None, 0.0, 0.2], None),
        ([0.7], "other processes kept up to 0.7 cores busy: times are longer"),
        ([0.0, 0.7, None, 1.13], "other processes kept up to 1.1 cores busy during 2 of 4 runs: times are longer"),
    ],
)
def test_disturbed_timings_are_told(cores: list[float | None], said: str | None) -> None:
    found = disturbance(cores)
    assert found is None if said is None else found is not None and found.startswith(said)


def test_the_effect_is_the_callers() -> None:
    assert disturbance([1.0], "so what") == "other processes kept up to 1.0 cores busy: so what"


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Iterator[float]]:
    """Readings before and after: of the wall, of this process, of all processes together."""
    readings: dict[str, Iterator[float]] = {}
    monkeypatch.setattr(machine.time, "perf_counter", lambda: next(readings["wall"]))
    monkeypatch.setattr(machine.time, "process_time", lambda: next(readings["own"]))
    monkeypatch.setattr(machine, "_busy_s", lambda: next(readings["all"]))
    return readings


@pytest.mark.parametrize(
    ("wall", "own", "together", "others"),
    [(10.0, 8.0, 23.0, 1.5), (10.0, 8.0, 8.0, 0.0), (10.0, 8.0, 7.9, 0.0), (0.1, 0.1, 0.2, None)],
)
def test_others_are_what_is_busy_beside_this_process(
    clocks: dict[str, Iterator[float]], wall: float, own: float, together: float, others: float | None
) -> None:
    clocks |= {"wall": iter((5.0, 5.0 + wall)), "own": iter((2.0, 2.0 + own)), "all": iter((100.0, 100.0 + together))}
    with Machine() as seen:
        pass
    assert seen.other_cores == (None if others is None else pytest.approx(others))


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [(None, None, None), (None, 1.0, 0.25), (3.0, 7.0, 1.0), (3.0, 7.5, 1.0), (2.0, 2.0, 0.0)],
)
def test_the_share_that_threads_blocked(
    clocks: dict[str, Iterator[float]],
    before: float | None,
    after: float | None,
    share: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = iter((before, after))
    monkeypatch.setattr(machine, "blocked_s", lambda: next(said))
    clocks |= {"wall": iter((0.0, 4.0)), "own": iter((0.0, 0.0)), "all": iter((0.0, 0.0))}
    with Machine() as seen:
        pass
    assert seen.threads_blocked == share


def test_a_look_at_the_machine_takes_as_long_as_asked(
    clocks: dict[str, Iterator[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(machine.time, "sleep", slept.append)
    clocks |= {"wall": iter((0.0, 2.0)), "own": iter((0.0, 0.0)), "all": iter((0.0, 1.0))}
    assert other_cores(2.0) == 0.5 and slept == [2.0]

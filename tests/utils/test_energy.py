"""Joules from counters in files that the tests make, and from a stand-in for NVIDIA's module."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from utils.device import energy
from utils.device.energy import EnergyMeter, EnergyReading, EnergyUse, counters_of, energy_meter
from utils.device.energy_counters import Card, Zone, cards, zones
from utils.device.machine import Machine

RANGE_UJ = 262_143_000_000
CPU = torch.device("cpu")

# As two sockets of a server, a desktop's platform domain and the second way to the first package.
TREE = {
    "intel-rapl": None,
    "intel-rapl:0": "package-0",
    "intel-rapl:0:0": "core",
    "intel-rapl:0:1": "dram",
    "intel-rapl:1": "package-1-die-0",
    "intel-rapl:1:0": "uncore",
    "intel-rapl:1:1": "dram",
    "intel-rapl:2": "psys",
    "intel-rapl-mmio:0": "package-0",
}
COUNTED = ("intel-rapl:0", "intel-rapl:0:1", "intel-rapl:1", "intel-rapl:1:1")


def made(root: Path, joules: float = 1000.0) -> Path:
    for folder, name in TREE.items():
        (root / folder).mkdir()
        if name is not None:
            (root / folder / "name").write_text(f"{name}\n")
            (root / folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
            count(root, folder, joules)
    return root


def count(root: Path, folder: str, joules: float) -> None:
    (root / folder / "energy_uj").write_text(f"{round(joules * 1e6)}\n")


class Clock:
    """Time that only sleeping moves, and counters that grow meanwhile by so many watts each."""

    def __init__(self, root: Path, *watts: tuple[float, ...]) -> None:
        self.now, self._root, self._watts = 0.0, root, iter(watts)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for folder, watts in zip(COUNTED, next(self._watts), strict=True):
            file = self._root / folder / "energy_uj"
            count(self._root, folder, int(file.read_text()) / 1e6 + watts * seconds)


@pytest.fixture(autouse=True)
def unbound(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Alone on all cores, and nothing remembered."""
    monkeypatch.setattr(energy, "_bound", lambda: False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    energy_meter.cache_clear()
    yield
    energy_meter.cache_clear()


def test_packages_and_their_memory_count_and_nothing_counts_twice(tmp_path: Path) -> None:
    found = zones(made(tmp_path))
    assert [zone.file.parent.name for zone in found] == list(COUNTED)
    assert [zone.part for zone in found] == ["package", "dram", "package", "dram"]
    assert EnergyMeter(found).parts == "2 package, 2 dram"


def test_the_example_of_the_page(tmp_path: Path) -> None:
    root = made(tmp_path)
    quiet, awake = (18.0, 3.0, 16.0, 3.0), (20.0, 4.0, 18.0, 3.0)
    clock = Clock(root, awake, quiet, awake)
    meter = EnergyMeter(zones(root), clock)
    meter.measure_idle(clock.sleep)
    assert meter.idle_watts == pytest.approx(40.0), "the least of three spans"
    count(root, "intel-rapl:0", 262_100.0)
    before, clock.now = meter.read(), 110.0
    starts = [int((root / folder / "energy_uj").read_text()) / 1e6 for folder in COUNTED]
    for folder, joules in zip(COUNTED, (257.0, starts[1] + 25, starts[2] + 260, starts[3] + 15), strict=True):
        count(root, folder, joules)
    assert before is not None
    used = meter.used(EnergyReading(before.counts, 100.0), meter.read())
    assert used is not None and used.joules == pytest.approx(600.0) and used.seconds == 10.0
    assert used.per_token(100, 9.9) == pytest.approx(2.0) and used.parts == "2 package, 2 dram"


@pytest.mark.parametrize(
    ("before", "after", "seconds", "joules"),
    [
        (5, 2_000_005, 1.0, 2.0),
        (7, 7, 1.0, 0.0),
        (RANGE_UJ - 1_000_000, 500_000, 1.0, 1.5),
        (0, 1_000_000, 436.0, 1.0),
        (0, 1_000_000, 438.0, None),
    ],
)
def test_a_count_that_came_round_is_put_right_while_it_can_only_be_once(
    before: int, after: int, seconds: float, joules: float | None
) -> None:
    found = Zone("package", Path("unread"), RANGE_UJ).joules(before, after, seconds)
    assert found == (None if joules is None else pytest.approx(joules))


def test_without_rapl_nothing_is_counted_and_nothing_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "zones", lambda: zones(tmp_path / "nowhere"))
    monkeypatch.setattr(energy.time, "sleep", lambda seconds: pytest.fail("it waited"))
    assert energy_meter(CPU) is None
    with Machine(energy_meter(CPU)) as machine:
        pass
    assert machine.energy is None


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a count as another user than root; a test that is root could read every file."""
    read = Path.read_text

    def denied(self: Path, *args: Any, **options: Any) -> str:
        if self.name == "energy_uj":
            raise PermissionError(13, "Permission denied", str(self))
        return read(self, *args, **options)

    monkeypatch.setattr(Path, "read_text", denied)


def test_forbidden_counts_are_told_once_with_what_allows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    root = made(tmp_path)
    forbid(monkeypatch)
    monkeypatch.setattr(energy, "zones", lambda: zones(root))
    with caplog.at_level(logging.WARNING):
        assert energy_meter(CPU) is None and energy_meter(CPU) is None
    (told,) = caplog.messages
    assert f"sudo chmod a+r {root / 'intel-rapl:*/energy_uj'}" in told


@pytest.mark.parametrize("broken", ["", "no number", None])
def test_a_broken_tree_has_no_part_counts(tmp_path: Path, broken: str | None) -> None:
    file = made(tmp_path) / "intel-rapl:1:1" / "energy_uj"
    file.unlink() if broken is None else file.write_text(broken)
    assert zones(tmp_path) == ()


def test_memory_alone_is_no_machine(tmp_path: Path) -> None:
    for folder in ("intel-rapl:0", "intel-rapl:1", "intel-rapl:2"):
        (made(tmp_path) if folder == "intel-rapl:0" else tmp_path).joinpath(folder, "name").write_text("psys")
    assert zones(tmp_path) == ()


def test_a_counter_that_goes_away_leaves_the_run_unknown(tmp_path: Path) -> None:
    meter = EnergyMeter(zones(made(tmp_path)))
    meter.idle_watts = 1.0
    before = meter.read()
    (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    assert before is not None and meter.read() is None
    assert meter.used(before, None) is None and meter.used(None, before) is None


def test_idle_power_that_nobody_knows_leaves_the_run_unknown(tmp_path: Path) -> None:
    meter = EnergyMeter(zones(made(tmp_path)))
    before, after = EnergyReading((0, 0, 0, 0), 0.0), EnergyReading((9, 9, 9, 9), 1.0)
    assert meter.used(before, after) is None


@pytest.mark.parametrize(
    ("use", "tokens", "timed_s"),
    [
        (EnergyUse(500.0, 10.0, 20.0, ""), 0, 10.0),
        (EnergyUse(500.0, 0.1, 20.0, ""), 100, 0.1),
        (EnergyUse(500.0, 10.0, 20.0, ""), 100, 9.0),
        (EnergyUse(500.0, 10.0, 20.0, ""), 100, 11.2),
        (EnergyUse(200.0, 10.0, 20.0, ""), 100, 10.0),
        (EnergyUse(190.0, 10.0, 20.0, ""), 100, 10.0),
    ],
    ids=["no token", "too short", "other work in it", "work before it", "as idle", "below idle"],
)
def test_what_is_not_known_is_never_a_number(use: EnergyUse, tokens: int, timed_s: float) -> None:
    assert use.per_token(tokens, timed_s) is None
    assert EnergyUse(500.0, 10.0, 20.0, "").per_token(100, 10.0) == pytest.approx(3.0)


class FakeNvml:
    """A driver with two cards; `counts`: millijoules by UUID, None for a card that has no counter."""

    class NVMLError(Exception):
        pass

    def __init__(self, **counts: int | None) -> None:
        self.counts, self.begun = {f"GPU-{name}": value for name, value in counts.items()}, 0

    def nvmlInit(self) -> None:
        self.begun += 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in self.counts:
            raise self.NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        value = self.counts[handle]
        if value is None:
            raise self.NVMLError("Not Supported")
        return value


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(a=1000, b=5000, old=None)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_a_card_counts_millijoules(nvml: FakeNvml) -> None:
    (card,) = cards(["GPU-b"])
    before = card.read()
    nvml.counts["GPU-b"] = 7500
    assert card.joules(before, card.read(), 1.0) == pytest.approx(2.5) and nvml.begun == 1
    assert card.joules(7500, 10, 1.0) is None, "the driver began anew"


def test_a_card_without_a_counter_is_none(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cards(["GPU-old"]) == cards(["GPU-a", "GPU-old"]) == cards(["GPU-gone"]) == ()
    monkeypatch.setattr(nvml, "nvmlInit", lambda: (_ for _ in ()).throw(nvml.NVMLError("Driver Not Loaded")))
    assert cards(["GPU-a"]) == ()
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as where nvidia-ml-py is not installed
    assert cards(["GPU-a"]) == ()


def test_a_gpu_run_needs_its_card_and_takes_the_packages_that_can_be_read(
    tmp_path: Path, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda, root = torch.device("cuda:0"), made(tmp_path)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="a"))
    monkeypatch.setattr(energy, "zones", lambda: zones(root))
    assert EnergyMeter(counters_of(cuda)).parts == "2 package, 2 dram, 1 gpu"
    assert EnergyMeter(counters_of(CPU)).parts == "2 package, 2 dram" and counters_of(torch.device("mps")) == ()
    monkeypatch.setattr(energy, "_bound", lambda: True)
    assert counters_of(CPU) == () and counters_of(cuda) == (Card(nvml, "GPU-a"),)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="old"))
    monkeypatch.setattr(energy, "_bound", lambda: False)
    assert counters_of(cuda) == (), "the packages alone would be a part of the work"
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert counters_of(CPU) == ()

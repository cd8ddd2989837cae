"""When threads block and when they spin again, from made trees of /proc and made clocks."""

from functools import partial
from pathlib import Path

import pytest

from tests.utils.waiting.test_load import made
from utils.device.waiting import choice
from utils.device.waiting.choice import CROWDED_S, FREE_S, LOOK_S, Choice
from utils.device.waiting.load import CpuTicks, read

TICKS = 100  # a second
STEP = 0.25


class Machine:
    """Cores, a tree of /proc for them, and a clock; `gathered` are the sizes of teams, 0 where one ended."""

    def __init__(self, folder: Path, cores: int = 2, threads: int = 2) -> None:
        self.folder, self.cores, self.now, self.reads = made(folder), cores, 0.0, 0
        self.busy, self.own = 0.0, 0.0
        self.gathered: list[int] = []
        self.pass_s(1.0, 0.0)
        self.choice = Choice(self.read, (self.now, self.read()), cores, lambda: threads, self, lambda: self.now)

    def read(self) -> CpuTicks | None:
        self.reads += 1
        return partial(read, range(self.cores), self.folder)()

    def gather(self, size: int) -> None:
        self.gathered.append(size)

    def dismiss(self) -> None:
        self.gathered.append(0)

    def pass_s(self, seconds: float, others: float, own: float = 1.0) -> None:
        """Time goes by, in which others keep so many cores busy, and this process its own."""
        self.now += seconds
        self.busy += (others + own) * seconds * TICKS
        self.own += own * seconds * TICKS
        each, whole = self.busy / self.cores, self.now * TICKS
        lines = [f"cpu{core} {each:.0f} 0 0 {whole - each:.0f} 0 0 0 0 0 0" for core in range(self.cores)]
        (self.folder / "stat").write_text("\n".join(["cpu 1 2 3 4 5 6 7 8 9 10", *lines]))
        (self.folder / "self" / "stat").write_text(f"7 (x) R {'0 ' * 10}{self.own:.0f} 0 0")

    def run(self, seconds: float, others: float) -> None:
        """Rounds for so long, a look after each."""
        for _ in range(round(seconds / STEP)):
            self.pass_s(STEP, others)
            self.choice.look()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_threads_spin_while_the_machine_is_free(machine: Machine) -> None:
    machine.run(10, 0.1)
    assert machine.gathered == [] and machine.choice.blocked_s() == 0


def test_they_block_beside_others_and_spin_again_behind_them(machine: Machine) -> None:
    machine.run(CROWDED_S - STEP, 1.0)
    assert not machine.choice.blocks
    machine.run(STEP, 1.0)
    assert machine.choice.blocks and machine.gathered == [2]
    machine.run(5, 0.9)
    assert machine.gathered == [2] and machine.choice.blocked_s() == pytest.approx(5)
    machine.run(FREE_S - STEP, 0.0)
    assert machine.choice.blocks
    machine.run(STEP, 0.0)
    assert not machine.choice.blocks and machine.gathered == [2, 0]
    assert machine.choice.blocked_s() == pytest.approx(5 + FREE_S)


def test_a_load_that_comes_and_goes_changes_nothing(machine: Machine) -> None:
    for _ in range(20):
        machine.run(STEP, 1.0)
        machine.run(STEP, 0.0)
    assert machine.gathered == []


@pytest.mark.parametrize("blocks", [False, True])
def test_between_the_borders_it_stays_as_it_is(machine: Machine, blocks: bool) -> None:
    machine.run(2 if blocks else 0, 1.0)
    machine.run(20, 0.3)
    assert machine.choice.blocks is blocks


def test_what_a_program_saw_while_it_loaded_decides_the_first_text(machine: Machine) -> None:
    machine.pass_s(8.0, 1.0)
    machine.choice.look()
    assert machine.choice.blocks


def test_it_looks_no_more_often_than_it_should(machine: Machine) -> None:
    before = machine.reads
    for _ in range(128):
        machine.pass_s(LOOK_S / 64, 0.0)
        machine.choice.look()
    assert machine.reads - before == 2


def test_cores_that_we_leave_free_may_be_busy(tmp_path: Path) -> None:
    machine = Machine(tmp_path, cores=8, threads=4)
    machine.run(5, 4.0)
    assert machine.gathered == []
    machine.run(5, 5.0)
    assert machine.gathered == [6]  # with the 4 that compute, one more than the cores: see `openmp.py`


def test_one_thread_waits_for_nobody(tmp_path: Path) -> None:
    machine = Machine(tmp_path, threads=1)
    machine.run(5, 2.0)
    assert machine.gathered == []


def test_what_cannot_be_read_changes_nothing(machine: Machine) -> None:
    machine.run(2, 1.0)
    (machine.folder / "stat").unlink()
    for _ in range(20):
        machine.now += STEP
        machine.choice.look()
    assert machine.gathered == [2] and machine.choice.blocks


def test_asking_how_long_they_blocked_chooses_nothing() -> None:
    choice._choice.cache_clear()
    assert choice.blocked_s() is None and choice._choice.cache_info().currsize == 0


def test_a_users_own_setting_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    choice._choice.cache_clear()
    try:
        choice.look()
        assert choice._choice.cache_info().currsize == 1 and choice.blocked_s() is None
    finally:
        choice._choice.cache_clear()


def test_what_ran_before_may_be_forgotten(machine: Machine) -> None:
    machine.pass_s(60, 2.0, own=0.0)
    machine.choice.begin_anew()
    machine.run(5, 0.0)
    assert machine.gathered == [] and machine.choice.blocked_s() == 0
    machine.run(1, 1.0)
    blocked_s = machine.choice.blocked_s()
    machine.choice.begin_anew()
    assert machine.choice.blocks and machine.choice.blocked_s() == blocked_s

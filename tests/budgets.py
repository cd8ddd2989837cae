"""What the tests of a folder take, beside its budget in `tests/README.md`: seconds of CPU, and memory of a worker.

It prints a table and fails nothing: how long something takes is the machine's matter too.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

README = Path(__file__).with_name("README.md")
_ROW = re.compile(r"^\| `(\w+)/?` +\|.*\| +(\d+) +\|$", flags=re.MULTILINE)
_MEMORY = re.compile(r"at most \*\*(\d+) MiB\*\*")
_TOLD = 5
COLLECTING = "collecting"


@dataclass(frozen=True)
class Budgets:
    """CPU seconds of each folder, and the most memory (MiB) of a worker."""

    seconds: Mapping[str, int]
    memory: int

    @classmethod
    def read(cls, text: str) -> "Budgets":
        """Those of a page: the last column of its table, and the sentence on memory."""
        memory = _MEMORY.search(text)
        assert memory, "no sentence on the memory of a worker"
        return cls({folder: int(seconds) for folder, seconds in _ROW.findall(text)}, int(memory[1]))


def used_cpu_s() -> float:
    """CPU of this process, and of those that it started and that ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def peak_mib() -> float:
    """The most memory that this process has had; 0 where the system does not say."""
    from utils.device.memory import process_peak_mb  # with torch, which whoever collects reports does not need

    return (process_peak_mb() or 0.0) * 1e6 / 2**20


class Measurement:
    """A plugin: each worker puts what a test took into its report, and whoever collects reports adds it up."""

    def __init__(self) -> None:
        self._before, self._collecting_s = used_cpu_s(), 0.0
        self.seconds: Counter[str] = Counter()
        self.peaks: dict[str, float] = {}
        self.grown: Counter[str] = Counter()

    def pytest_collection_finish(self) -> None:
        """What was used before the first test is nobody's: a worker's first report takes it along."""
        now = used_cpu_s()
        self._collecting_s, self._before = now - self._before, now

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        """What was used since the last report of this process belongs to this one."""
        report = yield
        now = used_cpu_s()
        report.used_cpu_s, self._before = now - self._before, now  # type: ignore[attr-defined]
        report.collecting_s, self._collecting_s = self._collecting_s, 0.0  # type: ignore[attr-defined]
        report.peak_mib = peak_mib()  # type: ignore[attr-defined]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a report, of this process or of a worker."""
        worker, file = getattr(report, "worker_id", "one process"), report.nodeid.partition("::")[0]
        self.seconds[folder_of(file)] += report.used_cpu_s  # type: ignore[attr-defined]
        self.seconds[COLLECTING] += report.collecting_s  # type: ignore[attr-defined]
        before = self.peaks.get(worker)
        self.peaks[worker] = max(before or 0.0, report.peak_mib)  # type: ignore[attr-defined]
        if before is not None:
            self.grown[file] += self.peaks[worker] - before  # type: ignore[assignment]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """The table, where folders were asked for and not single files."""
        if not self.seconds or any(".py" in argument for argument in config.args):
            return
        terminalreporter.section("budgets (tests/README.md)")
        for line in lines(Budgets.read(README.read_text(encoding="utf-8")), self.seconds, self.peaks, self.grown):
            terminalreporter.write_line(line)


def folder_of(file: str) -> str:
    """The folder of tests that a file lies in, `sampling` of `tests/sampling/verify/test_block.py`, or `tests`."""
    folder, *inner = Path(file).parts[:-1]
    return inner[0] if inner else folder


def lines(
    budgets: Budgets, seconds: Mapping[str, float], peaks: Mapping[str, float], grown: Mapping[str, float]
) -> Iterable[str]:
    """The table: a folder a line, then each worker's memory, and which files brought it there."""
    yield f"{'folder':12} | CPU s | budget"
    for folder, took in sorted(seconds.items(), key=lambda item: -item[1]):
        budget = budgets.seconds.get(folder)
        yield f"{folder:12} | {took:5.0f} | {'none' if budget is None else budget}{_over(took, budget)}"
    whole = sum(seconds.values())
    yield f"{'all':12} | {whole:5.0f} | {sum(budgets.seconds.values())}"
    for worker, peak in sorted(peaks.items()):
        yield f"{worker}: {peak:.0f} of {budgets.memory} MiB at most{_over(peak, budgets.memory)}"
    by_growth = defaultdict(float, grown)
    for file in sorted(by_growth, key=lambda file: -by_growth[file])[:_TOLD]:
        if by_growth[file] >= 1:
            yield f"  + {by_growth[file]:.0f} MiB by {file}"


def _over(took: float, budget: int | None) -> str:
    return "  OVER" if budget is not None and took > budget else ""

"""The shards of a plan on this machine at once: a process each, bound to a device before it imports torch."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ablation.plan.grid import Plan
from ablation.plan.shard import Shard, dealt
from ablation.results.store import count_rows
from ablation.run.shared_choices import VARIABLE, release
from utils.errors import UserError
from utils.interrupt import Interrupt
from utils.text import shown

_LOOKS_S, _PATIENCE_S, _SHOWN_LINES = 1.0, 10.0, 3


@dataclass(frozen=True, slots=True)
class Device:
    """What one worker has to itself: a GPU, or some cores."""

    text: str
    gpu: int | None = None
    cores: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Device":
        """Example: "cuda:1", "cpu:0-3", "cpu:2". Raises `UserError`."""
        kind, _, number = text.strip().partition(":")
        first, dash, last = number.partition("-")
        try:
            if kind == "cuda" and not dash:
                return cls(f"cuda:{int(first)}", gpu=int(first))
            if kind == "cpu" and int(first) <= int(last or first):
                return cls(text.strip(), cores=tuple(range(int(first), int(last or first) + 1)))
        except ValueError:
            pass
        raise UserError(f"--devices {text!r} given; expected GPUs or cores, such as cuda:0,cuda:1 or cpu:0-3,cpu:4-7")

    def environment(self) -> dict[str, str]:
        """What binds a process that has not imported torch yet."""
        if self.gpu is not None:
            return {"CUDA_VISIBLE_DEVICES": str(self.gpu)}
        return {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": str(len(self.cores))}

    def bind(self) -> None:
        """Called in the new process, where the system can keep it to its cores."""
        if self.cores:
            os.sched_setaffinity(0, self.cores)


def read_devices(text: str) -> tuple[Device, ...]:
    """The devices of all workers. Raises `UserError` where two would share one: each would measure the other."""
    devices = tuple(Device.parse(part) for part in text.split(","))
    gpus = [device.gpu for device in devices if device.gpu is not None]
    cores = [core for device in devices for core in device.cores]
    if len(set(gpus)) < len(gpus) or len(set(cores)) < len(cores):
        raise UserError(f"--devices {text!r} given; expected no GPU or core twice: two timed workers would share it")
    known = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if cores and known is None:
        raise UserError(f"--devices {text!r} given, and this system cannot keep a process to its cores; use --shard")
    if known is not None and (strange := sorted(set(cores) - known)):
        raise UserError(
            f"--devices {text!r} given, and there is no core {strange[0]}; expected some of {sorted(known)}"
        )
    return devices


@dataclass(slots=True)
class ShardWorker:
    """One shard on one device."""

    device: Device
    shard: Shard
    results: Path
    generations: int
    process: "subprocess.Popen[bytes] | None" = field(default=None)

    @property
    def log(self) -> Path:
        """What it printed."""
        return self.results.with_suffix(".log")

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        assert self.process is not None
        return self.process.poll()

    @property
    def end(self) -> str:
        """How it ended, in words; a system that is out of memory kills, too."""
        status = self.status
        if status is None or status >= 0:
            return f"ended with status {status}"
        return f"was ended by {signal.Signals(-status).name} (status {status})"

    def said(self) -> str:
        """The last line of what it printed."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((shown(line.strip()) for line in reversed(lines) if line.strip()), "it said nothing")


def play_workers(
    plan: Plan, out: Path, devices: Sequence[Device], command: Sequence[str], err: Console
) -> list[ShardWorker]:
    """Play a plan in as many shards as there are devices; ends when all have ended, or were asked to by Ctrl-C.

    command: what plays a plan, to which `--shard K/N` is added.
    """
    count = len(devices)
    workers = []
    for index, device in enumerate(devices, start=1):
        shard = Shard(index, count)
        workers.append(ShardWorker(device, shard, shard.file(out), dealt(plan, shard).generations))
    with Interrupt(), _shared() as chosen, _running(workers, command, chosen), _bars(err) as bars:
        tasks = {
            worker.shard: bars.add_task(f"{worker.shard.text} on {worker.device.text}", total=worker.generations)
            for worker in workers
        }
        while any(worker.status is None for worker in workers):
            if workers[0].status is not None:
                release(chosen)
            _show(bars, tasks, workers)
            time.sleep(_LOOKS_S)
        _show(bars, tasks, workers)
    return workers


def _show(bars: Progress, tasks: Mapping[Shard, TaskID], workers: Iterable[ShardWorker]) -> None:
    for worker in workers:
        ended = "" if worker.status in (None, 0) else f" {worker.end}"
        line = f"{worker.shard.text} on {worker.device.text}{ended}"
        bars.update(tasks[worker.shard], completed=count_rows(worker.results), description=line)


def _bars(err: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=err
    )


@contextmanager
def _shared() -> Iterator[Path]:
    """Where the first worker says what `auto` came to."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder, "chosen.json")


@contextmanager
def _running(workers: Sequence[ShardWorker], command: Sequence[str], chosen: Path) -> Iterator[None]:
    """All workers started; whatever happens, none is left behind."""
    try:
        for worker in workers:
            with worker.log.open("wb") as log:
                worker.process = subprocess.Popen(
                    [sys.executable, *command, "--shard", worker.shard.text],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **worker.device.environment(), VARIABLE: str(chosen)},
                    preexec_fn=worker.device.bind if worker.device.cores else None,
                )
        yield
    finally:
        started = [worker.process for worker in workers if worker.process is not None]
        for process in started:
            process.terminate()
        for process in started:
            try:
                process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

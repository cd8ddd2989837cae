"""What a stage finds, on disk after each measurement, so that a stage that is killed loses nothing."""

import json
import math
import shlex
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import torch
import typer

from ablation.gpu_check.machine import described
from utils.device.captured import failures
from utils.files import write_atomically
from utils.text import first_line

STAGE_S = 500.0
"""No measurement begins later than this; what is under way then has a limit of its own."""

_TRACE = 8000

T = TypeVar("T")


class LeftOut(Exception):
    """What cannot be measured here, though nothing is wrong."""


class StageRecord:
    """Measurements by name. What no time is left for is left out and named; what fails says why, and the rest goes on.

    found: what a measurement gave, by its name. left_out, failed: why there is none. seconds: of the stage. folder:
    where its file is, beside those of the other stages and nothing else. work: where all else goes that it makes.
    """

    def __init__(
        self,
        stage: str,
        folder: Path,
        device: torch.device,
        tiny: bool = False,
        seconds: float = STAGE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder, self.device, self.tiny = folder, device, tiny
        self.work = folder.with_name(f"{folder.name}-work")
        for place in (self.folder, self.work):
            place.mkdir(parents=True, exist_ok=True)
        self.found: dict[str, Any] = {}
        self.left_out: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self._traces: dict[str, str] = {}
        self.extra: dict[str, Any] = {}
        self._stage, self._seconds, self._clock = stage, seconds, clock
        self._began, self._finished = clock(), False
        words = ["scripts/gpu_check.py", stage, "--out", str(folder), "--device", str(device), *(["--tiny"] * tiny)]
        started = datetime.now(UTC).isoformat(timespec="seconds")
        self._head = {"stage": stage, "command": shlex.join(words), "started": started}
        self._about = described(device)
        self.write()

    @property
    def left_s(self) -> float:
        """Seconds in which a measurement may still begin."""
        return self._seconds - (self._clock() - self._began)

    def measure(self, name: str, call: Callable[[], T], needs_s: float = 0.0) -> T | None:
        """What `call` gives, noted under the name; None where it was left out or failed. needs_s: what it may take."""
        if self.left_s <= needs_s:
            self.leave_out(name, f"{max(0.0, self.left_s):.0f} s were left")
            return None
        typer.echo(f"{self._stage}: {name} ({self.left_s:.0f} s left)", err=True)
        try:
            result = call()
        except LeftOut as reason:
            self.leave_out(name, str(reason))
            return None
        except Exception as error:
            self._broke(name, error)
            return None
        self.found[name] = asdict(result) if is_dataclass(result) and not isinstance(result, type) else result
        self.write()
        return result

    def run(self, stage: Callable[[], object]) -> None:
        """Run the stage itself; what nothing inside it caught is its failure, and not the end of the record."""
        try:
            stage()
        except Exception as error:
            self._broke("stage", error)

    def leave_out(self, name: str, why: str) -> None:
        """There is no such measurement, and nothing is wrong."""
        self.left_out[name] = why
        self.write()

    def fail(self, name: str, why: str) -> None:
        """Something is wrong, and the rest goes on."""
        self.failed[name] = why
        self.write()

    def _broke(self, name: str, error: Exception) -> None:
        """Note an error with the end of its trace."""
        traceback.print_exception(error)
        self._traces[name] = "".join(traceback.format_exception(error))[-_TRACE:]
        self.fail(name, f"{type(error).__name__}: {first_line(error)}")

    def finish(self) -> bool:
        """The stage is over; whether nothing failed."""
        self._finished = True
        self.write()
        return not self.failed

    def write(self) -> None:
        """Replace the stage's file."""
        said = {
            **self._head,
            "finished": self._finished,
            "seconds": round(self._clock() - self._began, 1),
            "tiny": self.tiny,
            **self._about,
            **self.extra,
            "found": self.found,
            "left_out": self.left_out,
            "failed": self.failed,
            "traces": self._traces,
            "not_captured": failures(),
        }
        text = json.dumps(_known(said), indent=2, default=str, allow_nan=False)
        write_atomically(self.folder / f"{self._stage}.json", text + "\n")


def _known(value: Any) -> Any:
    """The value with null for numbers that are none."""
    if isinstance(value, dict):
        return {str(name): _known(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_known(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

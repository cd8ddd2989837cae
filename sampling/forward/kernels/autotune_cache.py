"""What was decided about this machine by trying: asked once, then kept in the user's cache folder.

A choice holds for one processor, one number of threads, one build of torch and one number format. One that was made
while other processes were busy, or that time did not settle, holds for this process only.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sampling.forward.kernels.autotuning import TrialVerdict
from utils.files import cache_folder, write_atomically
from utils.provenance import cpu_name

_FORMAT = 1
_LOOK_S = 0.25


@dataclass(frozen=True, slots=True)
class TunedChoice:
    """An answer and where it comes from, for people."""

    answer: bool
    origin: str

    def __str__(self) -> str:
        return f"{'yes' if self.answer else 'no'}, {self.origin}"


_made: dict[tuple[str, str], TunedChoice] = {}
_given: dict[str, bool] = {}


def give(question: str, answer: bool | None) -> None:
    """Answer a question for the rest of the process, in place of any probe; None: let the probe answer again."""
    if answer is None:
        _given.pop(question, None)
    else:
        _given[question] = answer


def choose(question: str, case: str, probe: Callable[[], TrialVerdict], timed: bool = True) -> bool:
    """What was given, what this process or an earlier one found, else what the probe finds now.

    case: what the answer depends on beside the machine, such as the dtype. timed: whether other processes could change
    the answer.
    """
    if question in _given:
        return _given[question]
    if (question, case) not in _made:
        _made[question, case] = _stored(question, case) or _probed(question, case, probe, timed)
    return _made[question, case].answer


def made() -> dict[str, TunedChoice]:
    """What this process asked, such as "packed kernel, float32", with the answers and where they come from."""
    probed = {f"{question}, {case}": choice for (question, case), choice in _made.items() if question not in _given}
    fixed = {question: TunedChoice(answer, "as given") for question, answer in _given.items()}
    return {**fixed, **probed}


def forget() -> None:
    """Drop what this process found; what is stored stays."""
    _made.clear()


def store_path() -> Path:
    """The file that choices are kept in."""
    return cache_folder() / "kernels.json"


def _stored(question: str, case: str) -> TunedChoice | None:
    answer = _read().get(machine_name(), {}).get(question, {}).get(case)
    return TunedChoice(answer, "as measured earlier") if isinstance(answer, bool) else None


def _probed(question: str, case: str, probe: Callable[[], TrialVerdict], timed: bool) -> TunedChoice:
    if not timed:
        verdict = probe()
        _write(question, case, verdict.answer)
        return TunedChoice(verdict.answer, "as tried now")
    from utils.device.machine import BUSY_CORES, Machine, other_cores  # psutil, which a stored choice does not need

    with Machine() as machine:
        verdict = probe()
    busy = other_cores(_LOOK_S) if machine.other_cores is None else machine.other_cores
    if not verdict.settled:
        return TunedChoice(verdict.answer, f"undecided, while other processes kept {busy:.1f} cores busy")
    if busy > BUSY_CORES:
        return TunedChoice(verdict.answer, f"measured while other processes kept {busy:.1f} cores busy")
    again = ", as the file of earlier choices is damaged" if store_path().is_file() and _machines() is None else ""
    _write(question, case, verdict.answer)
    return TunedChoice(verdict.answer, f"measured now{again}")


def machine_name() -> str:
    """What every choice depends on, and every time."""
    cpu = f"{cpu_name()} ({torch.backends.cpu.get_cpu_capability()}), {os.cpu_count()} cores"
    return f"{cpu}, {torch.get_num_threads()} threads, torch {torch.__version__} {torch.version.git_version}"


def _read() -> dict[str, Any]:
    """The choices of all machines; none where the file is missing, damaged or of another form."""
    return {
        machine: questions
        for machine, questions in (_machines() or {}).items()
        if isinstance(questions, dict) and all(isinstance(answers, dict) for answers in questions.values())
    }


def _machines() -> dict[str, Any] | None:
    """What the file holds; None where it is missing, damaged or of another form."""
    try:
        content = json.loads(store_path().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if (
        not isinstance(content, dict)
        or content.get("format") != _FORMAT
        or not isinstance(content.get("machines"), dict)
    ):
        return None
    return dict(content["machines"])


def _write(question: str, case: str, answer: bool) -> None:
    """Add an answer; a cache folder that cannot be written costs a probe at each start and nothing else."""
    machines = _read()
    machines.setdefault(machine_name(), {}).setdefault(question, {})[case] = answer
    path = store_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"format": _FORMAT, "machines": machines}, indent=2) + "\n")
    except OSError:
        return

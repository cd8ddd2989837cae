"""What `auto` came to in the first of several workers: the others wait for it, so that their rows can be merged."""

import json
import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ablation.results.chosen import Chosen, chosen_in
from ablation.results.manifest import describe
from utils.files import write_atomically

if TYPE_CHECKING:
    from ablation.plan.file import Experiment
    from sampling.engine import Engine

VARIABLE = "SPECULATIVE_WORKBENCH_CHOSEN"
"""Names the file in the environment of the workers of one run."""
_LOOKS_S = 0.1


def taken(experiment: "Experiment", rough: bool | None) -> tuple["Experiment", bool | None]:
    """The experiment as the first worker computes it, and whether drafters are in int8; waits until it has loaded.

    Unchanged in the first worker, and where this process is none.
    """
    path = os.environ.get(VARIABLE)
    if path is None or _is_first(experiment):
        return experiment, rough
    while not Path(path).is_file():
        time.sleep(_LOOKS_S)
    there = Chosen(**json.loads(Path(path).read_text(encoding="utf-8")))
    told = replace(experiment, pair=there.instead_of_auto(experiment.pair))
    return told, there.rough if rough is None else rough


def tell(experiment: "Experiment", engine: "Engine") -> None:
    """Say what `auto` came to, where others wait for this process."""
    path = os.environ.get(VARIABLE)
    if path is not None and _is_first(experiment):
        fixed = describe(experiment.plan, engine, experiment.name)["fixed"]
        _write(Path(path), chosen_in(fixed, experiment.plan))


def release(path: Path) -> None:
    """Let the others choose for themselves, where the first worker has ended and told nothing."""
    if not path.exists():
        _write(path, Chosen())


def _write(path: Path, there: Chosen) -> None:
    write_atomically(path, json.dumps(asdict(there)))


def _is_first(experiment: "Experiment") -> bool:
    part = experiment.plan.part
    return part is not None and part.name.startswith("1/")

"""/ablate and /results: a plan on the session's pair, its results kept in the user's state folder."""

import time
from dataclasses import replace
from pathlib import Path

import matplotlib.backends.backend_agg  # noqa: F401  all that a report loads comes with this module, in one go
import scipy.stats  # noqa: F401

from ablation.plan.file import Experiment
from ablation.report.write import write_report
from ablation.run.conduct import conduct_into
from ablation.run.job import JobOutcome
from repl.files.user_files import state_folder
from repl.replies import Message
from repl.screen.view import View
from repl.session import Session
from utils.errors import UserError


def run_plan(session: Session, experiment: Experiment, command: str, view: View) -> JobOutcome:
    """Run an experiment on the session's pair, then report it; `command` asked for it. Raises `UserError`."""
    if experiment.pair:
        view.reply(Message(f"[pair] of the plan is not used here: {', '.join(experiment.pair)} stay as loaded"))
    results = _folder() / f"{experiment.name}-{time.strftime('%Y%m%d-%H%M%S')}.csv"
    engine = session.engine.fresh()
    experiment = replace(experiment, plan=replace(experiment.plan, formats=()))
    return conduct_into(results, experiment, engine, command=command, out=view.out, err=view.err)


def show_last(view: View) -> None:
    """The short report of the newest results, of this session or an earlier one. Raises `UserError` without any."""
    newest = max(_folder().glob("*.csv"), key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        raise UserError("there are no results yet; run /ablate first")
    write_report(newest).print(view.out)
    view.reply(Message(f"results {newest}"))


def _folder() -> Path:
    folder = state_folder() / "ablations"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{str(folder)!r} cannot be created: {error.strerror}") from None
    return folder

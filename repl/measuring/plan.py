"""The plan of /ablate: a plan file, and for what it leaves open the session's settings and runs."""

from typing import TYPE_CHECKING

from repl.session import Session

if TYPE_CHECKING:
    from ablation.plan.file import Experiment

DEFAULT_PLAN = "quick"


def read(session: Session, plan: str) -> "Experiment":
    """The experiment, checked as a whole. Raises `UserError`.

    A plan that names no method takes what answers a prompt here, each with its values in its name; so does the
    default plan, where runs were added.
    """
    from ablation.plan.file import read_experiment
    from ablation.plan.overrides import Overrides

    runs = tuple(run.explicit for run in session.runs())
    overrides = Overrides(runs=runs if takes_runs(session, plan) else (), open_runs=runs)
    return read_experiment(plan or DEFAULT_PLAN, overrides, session.settings)


def takes_runs(session: Session, plan: str) -> bool:
    """Whether what was added here takes the place of the default plan's methods."""
    return not plan and bool(session.added)

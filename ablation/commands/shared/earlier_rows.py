"""What becomes of the rows that a results file has already."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from utils.errors import UserError

if TYPE_CHECKING:
    from ablation.plan.file import Experiment


@dataclass(frozen=True, slots=True)
class EarlierRows:
    """Whether a run goes on with them or replaces them all, and whether those that failed are played again."""

    resume: bool
    overwrite: bool
    retry_failed: bool

    def check(self, out: Path) -> None:
        """Raises `UserError`, before anything is loaded, where the results could not be written."""
        from ablation.run.results_file import check_output

        if self.retry_failed and not self.resume:
            raise UserError("--retry-failed given; expected --resume beside it: it plays rows of an earlier run again")
        check_output(out, self.resume, self.overwrite)

    def ready(self, experiment: "Experiment", out: Path) -> tuple["Experiment", bool | None]:
        """The experiment as it goes into a results file: computed as the rows that are there were.

        Also whether their drafters were rounded; None where nothing says so. Raises `UserError` where it cannot go
        there, and where another dtype or kernel, or other batch invariance is asked for.
        """
        from ablation.results.chosen import chosen
        from ablation.run.results_file import Files

        self.check(out)
        files = Files(out)
        if not (self.resume and files.results.is_file()):
            return experiment, None
        there = chosen(files.manifest, experiment.plan)
        for name, value in there.options.items():
            wanted, flag = experiment.pair.get(name, "auto"), f"--{name.replace('_', '-')}"
            if wanted not in ("auto", value):
                raise UserError(
                    f"--resume: the rows were made with {name} {value}, and {flag} {wanted} is given; "
                    f"leave {flag} out, or choose another --out"
                )
        return replace(experiment, pair=there.instead_of_auto(experiment.pair)), there.rough

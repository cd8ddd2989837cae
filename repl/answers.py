"""What answers one prompt, one run after the other. Nothing is rendered here."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ablation.plan.methods_table import check_values
from ablation.results.stamp import stamped
from ablation.run.dialogue import DialogueHistory
from repl.files.runs import Run
from repl.files.user_files import log_traceback
from sampling.methods.tables import METHODS
from utils.errors import UserError
from utils.interrupt import Interrupt

if TYPE_CHECKING:
    from sampling.measure.acceptance.place_rates import RoundAt
    from sampling.measure.comparison import Comparison
    from sampling.measure.divergence import Divergence
    from sampling.measure.metrics import RunMetrics
    from sampling.pair.local_engine import LocalEngine
    from utils.device.machine import Machine
    from utils.events import AnyRound, Event


TWICE_S = 2.0
"""Two Ctrl-C within so many seconds are meant for the whole answer."""


class Answers:
    """What answers one prompt, one run after the other; `runs` holds them by name, `prompts` the ids that each reads.

    `stopped`: the user stopped it, and what had not begun has no account. `skips`: a Ctrl-C stops only the run under
    way, which is then `skipped`; a second one soon after it stops the rest. `failures`: what went wrong, by
    name; the others go on. `rounds`: of each run. `machines`: what else went on meanwhile.
    """

    def __init__(
        self,
        engine: "LocalEngine",
        comparison: "Comparison",
        runs: Sequence[Run],
        prompts: Mapping[str, Sequence[int]],
        dialogue: DialogueHistory,
        first: bool,
    ) -> None:
        self.comparison, self.dialogue, self.first = comparison, dialogue, first
        self.runs, self.prompts = {run.name: run for run in runs}, prompts
        self.stopped = self.skips = False
        self.skipped: set[str] = set()
        self._interrupted_at = -TWICE_S
        self.failures: dict[str, str] = {}
        self.rounds: dict[str, list[AnyRound]] = {name: [] for name in self.runs}
        self.machines: dict[str, Machine] = {}
        self._engine = engine

    def title(self, name: str) -> str:
        """What stands over an answer; a lossy one is told as such."""
        return stamped(self.runs[name].title, self.lossless(name))

    def lossless(self, name: str) -> bool | None:
        """Whether its output has the target's own distribution; None for another output."""
        run = self.runs[name]
        values = {**self.comparison.values, **run.parameters}
        return None if METHODS[run.method].other is not None else self._engine.lossless(run.method, values)

    def run(self, name: str) -> Iterator[tuple["Event", "RunMetrics"]]:
        """Events of one run with its account; errors end up in `failures`, an interrupt in `stopped`.

        The first Ctrl-C waits for the round under way, so that the caches stay whole; a second one does not.
        """
        from utils.device.machine import Machine
        from utils.events import AnyRound

        run = self.runs[name]
        machine = self.machines[name] = Machine()
        try:
            check_values(run.explicit, self.comparison.values)
            with Interrupt() as interrupt, machine:
                for event, account in self.comparison.run(
                    name, self.prompts[name], method=run.method, parameters=run.parameters
                ):
                    if isinstance(event, AnyRound):
                        self.rounds[name].append(event)
                    yield event, account
                    if interrupt.asked:
                        self._interrupt(name)
                        return
        except KeyboardInterrupt:
            self.stop()
        except UserError as error:
            self.failures[name] = str(error)
        except Exception as error:
            self.failures[name] = f"{type(error).__name__}: {error} ({log_traceback(error)})"
            self._engine.renew()
        finally:
            if self.rounds[name] and name not in self.failures:
                self.dialogue.answered(name, self._engine.text(self.comparison.metrics[name].output_ids))

    def _interrupt(self, name: str) -> None:
        now = time.monotonic()
        if self.skips and now - self._interrupted_at > TWICE_S:
            self.skipped.add(name)
        else:
            self.stopped = True
        self._interrupted_at = now

    def stop(self) -> None:
        """The user does not wait for the round under way, or stopped where none is."""
        self.stopped = True
        self._engine.renew()

    def finished(self) -> list[str]:
        """Runs with something to show, in the order they ran."""
        metrics = self.comparison.metrics
        return [name for name in self.runs if name in metrics and metrics[name].rounds and name not in self.failures]

    def disturbed(self) -> str | None:
        """What to say where other processes disturbed the runs that are shown."""
        from utils.device.machine import disturbance

        return disturbance(self.machines[name].other_cores for name in self.finished())

    def rounds_at(self, name: str) -> "list[RoundAt]":
        """The rounds of a run that drafted, each with the place where it began."""
        from sampling.measure.acceptance.place_rates import rounds_at
        from utils.events import Round

        rounds = [round for round in self.rounds[name] if isinstance(round, Round)]
        return list(rounds_at(self.runs[name].title, self.prompts[name], rounds, self._engine.pair.piece))

    def left(self) -> list[str]:
        """Runs of which there is nothing to show."""
        names = {*self.finished(), *self.failures}
        return [name for name in self.runs if name not in names]

    def verdicts(self) -> dict[str, "Divergence | None"]:
        """How each output compares with the reference's; may ask the target again, unless it was stopped."""
        if self.stopped:
            return dict.fromkeys(self.finished())
        try:
            return {name: self.comparison.divergence(name) for name in self.finished()}
        except KeyboardInterrupt:
            self.stop()
            return dict.fromkeys(self.finished())

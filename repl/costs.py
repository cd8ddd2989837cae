"""What rounds cost here: measured while the prompt waits for a line, shown by /profile, watched in every answer."""

import threading
import time
from typing import TYPE_CHECKING

from repl.answers import Answers
from repl.files.user_files import log_traceback
from repl.loading import Loading
from repl.replies import SectionSheet, SheetSection

if TYPE_CHECKING:
    from sampling.measure.drift import ProfileDrift
    from sampling.measure.times.profiling import Measuring
    from sampling.pair.profile import LatencyProfile

_LOOK_S = 0.1
GUESSED = (
    "the costs of a round are estimated until they are measured: while the session waits for input, or by /profile"
)
MEASURED = "the costs of forwards and drafts were measured while the session waited for input (/profile shows them)"


class Costs:
    """A first session's measurement: a thread that works between `resume` and `pause`, and at no other time.

    Half a minute of work at most in all; what an answer interrupts goes on at the next prompt. Nothing happens where
    the pair's profile is known.
    """

    def __init__(self, loading: Loading) -> None:
        self._loading = loading
        self._idle = threading.Event()
        self._working = threading.Lock()
        self._thread: threading.Thread | None = None
        self._steps: Measuring | None = None
        self._busy_cores = 0.0
        self._news = ""
        self._guessed = self._ended = False
        self._drift: ProfileDrift | None = None

    def resume(self) -> None:
        """The prompt waits for a line: go on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="costs", daemon=True)
            self._thread.start()
        self._idle.set()

    def pause(self) -> None:
        """A line was entered: returns when nothing is under way, so that no answer shares the machine with it."""
        self._idle.clear()
        with self._working:
            pass

    def end(self) -> None:
        """The models go: nothing is measured any more."""
        self._ended = True
        self.pause()
        self._idle.set()

    def news(self) -> str:
        """What to tell, once; empty where there is nothing."""
        news, self._news = self._news, ""
        return news

    def unknown(self) -> bool:
        """Whether nobody knows yet what rounds cost; once, for whoever tells it."""
        said, self._guessed = self._guessed, True
        return not said and self._loading.engine().profile() is None

    def ensure(self) -> "LatencyProfile":
        """The profile; what is missing of it is measured now. Ctrl-C keeps nothing; another call begins anew."""
        from sampling.measure.times.profiling import BUDGET_S, finished, measuring
        from utils.device.machine import Machine

        engine = self._loading.engine()
        with self._working:
            known = engine.profile()
            if known is not None:
                return known
            steps, self._steps = self._steps or measuring(engine.pair, BUDGET_S), None
            with Machine() as machine:
                profile = finished(steps)
            self._keep(profile, machine.other_cores)
            return profile

    def watch(self, answers: Answers) -> str | None:
        """Compare the times of answers with the profile; what to tell where it no longer holds, once."""
        from sampling.measure.drift import ProfileDrift, settle

        engine = self._loading.engine()
        profile = engine.profile()
        if profile is None:
            return None
        if self._drift is None or self._drift.profile is not profile:
            self._drift = ProfileDrift(profile)
        for name in answers.finished():
            run, account = answers.runs[name], answers.comparison.metrics[name]
            context = account.prompt_tokens + account.new_tokens / 2
            values = {**answers.comparison.values, **run.parameters}
            self._drift.add(run.method, values, account, context, answers.machines[name].other_cores)
        said = settle(engine, self._drift)
        if said is not None:
            self._drift = ProfileDrift(profile)
        return said

    def _run(self) -> None:
        while not (self._loading.done or self._ended):
            time.sleep(_LOOK_S)
        try:
            while self._wanted():
                self._idle.wait()
                with self._working:
                    if self._wanted():
                        self._stretch()
        except Exception as error:
            self._news = f"measuring what rounds cost failed: {type(error).__name__}: {error} ({log_traceback(error)})"

    def _wanted(self) -> bool:
        return not self._ended and self._loading.pair is not None and self._loading.engine().profile() is None

    def _stretch(self) -> None:
        """Work until the measurement is whole or a line is entered."""
        from sampling.measure.times.profiling import BUDGET_S, measuring
        from utils.device.machine import Machine

        engine = self._loading.engine()
        self._steps = self._steps or measuring(engine.pair, BUDGET_S)
        profile = None
        with Machine() as machine:
            while self._idle.is_set() and profile is None:
                try:
                    next(self._steps)
                except StopIteration as end:
                    profile = end.value
        if profile is None:
            self._busy_cores = max(self._busy_cores, machine.other_cores or 0.0)
        else:
            self._keep(profile, machine.other_cores)
            self._news = MEASURED

    def _keep(self, profile: "LatencyProfile", other_cores: float | None) -> None:
        """Use it from now on; later processes too where the machine was quiet in every stretch."""
        from sampling.pair.profile_store import keep
        from utils.device.machine import BUSY_CORES

        engine = self._loading.engine()
        engine.use_profile(profile)
        if max(self._busy_cores, other_cores or 0.0) <= BUSY_CORES:
            keep(engine.pair, profile)


def profile_sheet(profile: "LatencyProfile") -> SectionSheet:
    """/profile: forwards by rows, a value a context; drafters; what it means."""
    from ablation.results.tables import profile as table

    contexts = " / ".join(f"{context:,}" for context in profile.forward)
    forwards = [
        (f"{rows} row{'s' if rows != '1' else ''}", f"{' / '.join(cells[::2])} ms", f"v {' / '.join(cells[1::2])}")
        for rows, *cells in table.forward_rows(profile)
    ]
    drafters = [
        (name, f"{first} ms, each further {step} ms", f"c {c}, finds a draft in {share}, accepted {shares}")
        for name, first, step, c, share, shares in table.drafter_rows(profile)
    ]
    sections = (
        SheetSection(f"The target's forward behind {contexts} tokens", tuple(forwards)),
        SheetSection("Drafters: the first draft of a round", tuple(drafters)),
    )
    return SectionSheet("What rounds cost here", sections, tuple(table.sentences(profile)))

"""The pair of models, loaded behind the prompt: the screen does not wait for torch."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from repl.files.user_files import log_traceback
from sampling.loading.options import LoadOptions
from utils.errors import UserError

if TYPE_CHECKING:
    from sampling.loading.pairs import Progress
    from sampling.pair.local_engine import LocalEngine
    from sampling.pair.pair import Pair

Load = Callable[[LoadOptions, "Progress"], "Pair"]


_DEFAULTS = LoadOptions()


class Loading:
    """A background thread that loads and warms up; read `message` and `fraction` at any time.

    `options`: what is loaded. `refused`: why the models asked for last could not be had, where those before them are
    loaded again; who tells the user drops it. `on_change` is called from that thread after every change; it must be
    safe there.
    """

    def __init__(self, load: Load, options: LoadOptions = _DEFAULTS) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._load = load
        self._reset(options)

    def start(self) -> None:
        """Begin, once."""
        self._thread.start()

    def again(self, options: LoadOptions) -> None:
        """Let the models go and load others, or the same again where those cannot be had.

        There may be no memory for both at a time. Raises `UserError` while some are being loaded.
        """
        if self.running:
            raise UserError(f"the models are still loading ({self.describe()}); wait for them first")
        self._reset(options, before=None if self._engine is None else self.options)
        self.start()

    def _reset(self, options: LoadOptions, before: LoadOptions | None = None) -> None:
        self.options, self.message = options, "starting"
        self.fraction: float | None = None
        self.error: UserError | None = None
        self.refused: str | None = None
        self._before = before
        self._engine: LocalEngine | None = None
        self._wanted = False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    @property
    def done(self) -> bool:
        """Loaded or failed."""
        return self._done.is_set()

    @property
    def running(self) -> bool:
        """Under way in its thread."""
        return self._thread.is_alive()

    @property
    def pair(self) -> "Pair | None":
        """The models, once they are there."""
        return self._engine.pair if self._engine else None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until loaded or failed; False when the time is up first."""
        self._wanted = True
        return self._done.wait(timeout)

    def engine(self) -> "LocalEngine":
        """The engine; waits for it. Raises the `UserError` that loading ended with."""
        self.wait()
        if self._engine is None:
            raise self.error or UserError("no model is loaded")
        return self._engine

    def describe(self) -> str:
        """One line on where loading is: what happens and how much of it is done."""
        share = "" if self.fraction is None else f" {self.fraction:.0%}"
        return f"{self.message}{share}"

    def _tell(self, message: str, fraction: float | None = None) -> None:
        self.message, self.fraction = message, fraction
        self.on_change()

    def _run(self) -> None:
        # Importing torch is seconds of pure Python: a short switch interval keeps the prompt quick meanwhile.
        interval = sys.getswitchinterval()
        sys.setswitchinterval(min(interval, 5e-4))
        try:
            self.error = self._tried()
            if self.error is not None and self._before is not None:
                # The text alone: the error holds on to what was loaded so far.
                self.refused, self.options = str(self.error), self._before
                self.error = self._tried()
        finally:
            sys.setswitchinterval(interval)
            self._done.set()
            self.on_change()

    def _tried(self) -> UserError | None:
        """Load and warm up; why it could not be done."""
        try:
            self._engine = self._prepare()
            self._tell("ready")
        except UserError as error:
            return error
        except Exception as error:
            return UserError(f"loading failed: {type(error).__name__}: {error} ({log_traceback(error)})")
        return None

    def _prepare(self) -> "LocalEngine":
        self._tell("importing torch")
        # Bars and advice of the library would be drawn across the prompt.
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        from sampling.pair.pair_engine import PairEngine

        engine = PairEngine(self._load(self.options, self._tell))
        self._tell("warming up")
        for _ in _warm_up(engine):
            if self._wanted:  # somebody waits: answer sooner, and note that timings are not settled yet
                break
        return engine


def _warm_up(engine: "LocalEngine") -> "Iterator[object]":
    """A round of both models, event by event, so that the first method measured does not pay for first calls."""
    from sampling.measure.warm_up import warm_up
    from sampling.methods.settings import Settings
    from sampling.methods.tables import AR

    names = (AR, "speculative") if engine.describe().drafter else (AR,)
    values = {**Settings(), "length": 2, "gamma": 1, "chat": False}
    if engine.describe().target.graphs:  # of the widths that the settings ask for, too
        values = {**Settings(), "length": 16, "chat": False}
    return warm_up(engine, values, [(name, name, {}) for name in names])

"""The state of an interactive session, and one prompt's way through the methods. Nothing is rendered here."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ablation.results.stamp import stamped
from repl.loading import Loading
from repl.user_files import log_traceback
from sampling.methods import METHODS
from sampling.settings import PARAMETERS, Settings
from utils.errors import UserError
from utils.interrupt import Interrupt
from utils.parameter import Parameter, toggle
from utils.registry import Registry

if TYPE_CHECKING:
    from sampling.events import Event
    from sampling.measure.comparison import Comparison
    from sampling.measure.divergence import Divergence
    from sampling.measure.metrics import RunMetrics
    from sampling.pair import Pair
    from sampling.pair_engine import PairEngine
    from utils.machine import Machine

DEBUG = toggle("debug", False, "one line a round: each draft with q, p and its verdict, and the target's token")
STATE = Registry[Parameter]("setting", *PARAMETERS.values(), DEBUG)


class Session:
    """Settings, the engine once it is loaded, and the last comparison."""

    def __init__(self, loading: Loading) -> None:
        self.loading = loading
        self.settings = Settings()
        self.debug = False
        self.answers: Answers | None = None
        self.notes: tuple[str, ...] = ()
        self._engine: PairEngine | None = None

    @property
    def engine(self) -> "PairEngine":
        """The engine; waits for it. Raises the `UserError` that loading ended with."""
        if self._engine is None:
            self._engine = self.loading.engine()
            pair = self._engine.pair
            self.notes = (*pair.notes, *self._switch_off(pair))
        return self._engine

    def memories(self) -> list[tuple[str, str]]:
        """What each method keeps in memory, once something ran."""
        return self._engine.memories() if self._engine is not None else []

    def _switch_off(self, pair: "Pair") -> Iterator[str]:
        """Methods that start switched on and lack what drafts; one switched on later says so itself."""
        for method in METHODS.values():
            needed = method.needs(self.settings)
            if self.settings[method.name] and needed is not None and not pair.has(needed):
                self.settings.assign(method.name, "off")
                yield f"{method.title} is switched off: {pair.lack(needed)}"

    def show(self, name: str) -> str:
        """A setting's value as text that `assign` takes back."""
        return DEBUG.show(self.debug) if name == DEBUG.name else self.settings.show(name)

    def assign(self, name: str, text: str) -> None:
        """Set a setting from text. Raises `UserError`, and then nothing has changed."""
        if name == DEBUG.name:
            self.debug = DEBUG.parse(text)
        else:
            self.settings.assign(name, text)

    def ask(self, prompt: str) -> "Answers":
        """A prompt for every enabled method; waits for the models. Raises `UserError`."""
        self._refuse_nothing()
        engine = self.engine
        methods = self._refuse_nothing()
        from sampling.measure.comparison import Comparison

        ids = engine.pair.encode([prompt], self.settings["chat"])
        first = self.answers is None
        self.answers = Answers(self, Comparison(engine, self.settings, ids), tuple(methods), first)
        return self.answers

    def _refuse_nothing(self) -> list[str]:
        """The enabled methods; asked before loading too, so that nobody waits for a refusal."""
        methods = self.settings.enabled()
        if not methods:
            why = "".join(f" ({note})" for note in self.notes)
            raise UserError(f"no method is on; allowed: {', '.join(f'/{name} on' for name in METHODS)}{why}")
        return methods

    def renew_engine(self) -> None:
        """New caches and drafters on the same weights: whatever an interrupted forward left is gone."""
        self._engine = self.engine.renewed()


class Answers:
    """The runs of the enabled methods on one prompt, one after the other.

    `stopped`: the user stopped it, and methods that had not begun have no run. `failures`: what went wrong,
    by method; the others go on.
    """

    def __init__(self, session: Session, comparison: "Comparison", methods: tuple[str, ...], first: bool) -> None:
        self.comparison, self.methods, self.first = comparison, methods, first
        self.stopped = False
        self.failures: dict[str, str] = {}
        self._machines: dict[str, Machine] = {}
        self._session = session

    def title(self, name: str) -> str:
        """What stands over a method's answer; a lossy one is told as such."""
        method = METHODS[name]
        lossless = method.other is not None or self.comparison.engine.lossless(name, self.comparison.values)
        return stamped(method.title, lossless)

    def run(self, name: str) -> Iterator[tuple["Event", "RunMetrics"]]:
        """Events of one method with its account; errors end up in `failures`, an interrupt in `stopped`.

        The first Ctrl-C waits for the round under way, so that the caches stay whole; a second one does not.
        """
        from utils.machine import Machine

        machine = self._machines[name] = Machine()
        try:
            with Interrupt() as interrupt, machine:
                for event, account in self.comparison.run(name):
                    yield event, account
                    if interrupt.asked:
                        self.stopped = True
                        return
        except KeyboardInterrupt:
            self.stop()
        except UserError as error:
            self.failures[name] = str(error)
        except Exception as error:
            self.failures[name] = f"{type(error).__name__}: {error} ({log_traceback(error)})"
            self._renew_engine()

    def stop(self) -> None:
        """The user does not wait for the round under way, or stopped where none is."""
        self.stopped = True
        self._renew_engine()

    def finished(self) -> list[str]:
        """Methods with something to show, in the order they ran."""
        metrics = self.comparison.metrics
        return [name for name in self.methods if name in metrics and metrics[name].rounds and name not in self.failures]

    def disturbed(self) -> str | None:
        """What to say where other processes disturbed the runs that are shown."""
        from utils.machine import disturbance

        return disturbance(self._machines[name].other_cores for name in self.finished())

    def left(self) -> list[str]:
        """Methods of which there is nothing to show."""
        told = {*self.finished(), *self.failures}
        return [name for name in self.methods if name not in told]

    def verdicts(self) -> dict[str, "Divergence | None"]:
        """How each output compares with the reference's; may ask the target again, unless it was stopped."""
        if self.stopped:
            return dict.fromkeys(self.finished())
        try:
            return {name: self.comparison.divergence(name) for name in self.finished()}
        except KeyboardInterrupt:
            self.stop()
            return dict.fromkeys(self.finished())

    def _renew_engine(self) -> None:
        self._session.renew_engine()
        self.comparison.engine = self._session.engine

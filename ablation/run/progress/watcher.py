"""Who looks on while a plan is played."""

from collections.abc import Sequence
from typing import Protocol

from ablation.plan.grid import PlannedGeneration
from sampling.engine import Engine
from utils.events import Round
from utils.parameter import Values


class Watcher(Protocol):
    """Is told what happens, always outside the measured time."""

    def begin(self, place: PlannedGeneration) -> None: ...

    def prompted(self, place: PlannedGeneration, engine: Engine, values: Values, ids: Sequence[int]) -> None: ...

    def round(self, place: PlannedGeneration, round: Round) -> None: ...

    def ended(self, place: PlannedGeneration) -> None: ...

    def failed(self, place: PlannedGeneration, error: str) -> None: ...


class NullWatcher:
    """Nobody looks."""

    def begin(self, place: PlannedGeneration) -> None:
        """A generation starts, or a batch of them with its first text."""

    def prompted(self, place: PlannedGeneration, engine: Engine, values: Values, ids: Sequence[int]) -> None:
        """What it goes by is known: every setting, and the prompt's ids."""

    def round(self, place: PlannedGeneration, round: Round) -> None:
        """A round is over."""

    def ended(self, place: PlannedGeneration) -> None:
        """A text is whole."""

    def failed(self, place: PlannedGeneration, error: str) -> None:
        """A text is given up; the others go on."""

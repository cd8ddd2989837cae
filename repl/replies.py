"""What a command answers: plain records. Whoever owns the screen renders them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ablation.plan.file import Experiment


@dataclass(frozen=True, slots=True)
class Message:
    """One line that confirms."""

    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """Rows under a heading: name, value, explanation."""

    heading: str
    rows: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Sheet:
    """Sections on one page: /help and /status."""

    title: str
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Clear:
    """Clear the screen."""


@dataclass(frozen=True, slots=True)
class Quit:
    """Leave the session."""


@dataclass(frozen=True, slots=True)
class Play:
    """Lines of a script to execute, with their numbers in the file."""

    path: Path
    lines: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """A prompt for every enabled method."""

    prompt: str


@dataclass(frozen=True, slots=True)
class WithModels:
    """Something to do once the models are loaded; returns a line that confirms, or raises `UserError`."""

    job: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Ablate:
    """A plan to run on the loaded pair, read and checked; `command` is how it was asked for."""

    experiment: "Experiment"
    command: str


@dataclass(frozen=True, slots=True)
class Results:
    """The table of the last ablation."""


Reply = Message | Sheet | Clear | Quit | Play | Ask | WithModels | Ablate | Results | None

"""What a command leaves to whoever plays the lines: it takes the screen, the models or more lines."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ablation.plan.file import Experiment
    from ablation.plan.prompt_file import Prompt
    from repl.replies import Sheet
    from sampling.profile import LatencyProfile


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
class WithCosts:
    """A page to show once it is known what rounds cost here."""

    page: Callable[["LatencyProfile"], "Sheet"]


@dataclass(frozen=True, slots=True)
class Replace:
    """A file that only a person may replace: what of theirs it is or holds, and what writes it and confirms."""

    path: Path
    why: str
    job: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Ablate:
    """A plan to run on the loaded pair, as it was named, and as it was read before the pair was waited for."""

    plan: str
    experiment: "Experiment"


@dataclass(frozen=True, slots=True)
class Batch:
    """Prompts for every enabled method, `size` at a time."""

    prompts: "tuple[Prompt, ...]"
    size: int


@dataclass(frozen=True, slots=True)
class Results:
    """Show the table of the last ablation."""


@dataclass(frozen=True, slots=True)
class Why:
    """Show where the time of the last answer went; of one run, where one is named."""

    run: str


Order = Clear | Quit | Play | Ask | WithModels | WithCosts | Replace | Ablate | Batch | Results | Why

"""What a call of the benchmark asks for: peers, comparisons, formats."""

from collections.abc import Iterable
from dataclasses import dataclass

from ablation.plan.choice import choose_runs
from ablation.plan.grid import Configuration
from sampling.forward.formats import FULL
from sampling.loading.options import WEIGHTS
from sampling.methods import METHODS, REFERENCE
from sampling.settings import Settings
from scripts.benchmarks.llama import LOOKUP
from utils.errors import UnknownName, UserError

TRANSFORMERS, LLAMA = "transformers", "llama.cpp"
PEERS = (TRANSFORMERS, LLAMA)
AGAIN, GROWTH = "again", "growth"
DUELS = ("AR", "SD", "NASD", "Prompt lookup", "Suffix", AGAIN)
SHARED = {"AR": REFERENCE, "Prompt lookup": LOOKUP}


@dataclass(frozen=True, slots=True)
class Asked:
    """duels: comparisons with transformers. runs: what plays against llama.cpp. growth: whether v(n) is measured.

    formats: of the target's weights, for `runs` and `growth`.
    """

    duels: tuple[str, ...]
    runs: tuple[Configuration, ...]
    growth: bool
    formats: tuple[str, ...]

    @property
    def loaded(self) -> tuple[str, ...]:
        """Formats in which the target is needed: transformers is met with full weights."""
        full = (FULL,) if self.duels else ()
        return tuple(dict.fromkeys((*full, *(self.formats if self.runs or self.growth else ()))))


def read_asked(peers: str, only: str | None, weights: str) -> Asked:
    """The options as they were given. Raises `UserError` for what nothing is called, or no chosen peer takes."""
    met, formats = _names(peers, "peer", PEERS), _names(weights, "format", WEIGHTS)
    if only is None:
        text = ",".join((*(DUELS if TRANSFORMERS in met else SHARED), *([GROWTH] if LLAMA in met else [])))
        return read_asked(peers, text, weights)
    duels: list[str] = []
    runs: list[str] = []
    for piece in only.split(","):
        name = piece.strip()
        if TRANSFORMERS in met and name in DUELS:
            duels.append(name)
        if LLAMA in met and (name in SHARED or name not in (*DUELS, GROWTH)):
            runs.append(SHARED.get(name, piece))
        elif name and name != GROWTH and name not in duels:
            raise _unmet(name, met)
    asked = Asked(tuple(duels), choose_runs(",".join(runs), Settings()), GROWTH in _stripped(only), formats)
    if not asked.loaded:
        raise UserError("--only: nothing to compare given; expected " + ", ".join((*DUELS, GROWTH)))
    return asked


def _names(text: str, kind: str, allowed: Iterable[str]) -> tuple[str, ...]:
    allowed, given = tuple(allowed), _stripped(text)
    for name in given:
        if name not in allowed:
            raise UnknownName(kind, name, allowed)
    return given


def _stripped(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",")))


def _unmet(name: str, met: Iterable[str]) -> UserError:
    """No chosen peer takes part in this comparison: another would, or there is none of this name."""
    needed = TRANSFORMERS if name in DUELS else LLAMA if name.split()[0] in METHODS else None
    if needed:
        return UserError(f"--only {name} given with --peer {','.join(met)}; it needs --peer {needed}")
    return UnknownName("comparison", name, (*DUELS, GROWTH))

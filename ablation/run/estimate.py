"""What a plan costs before it runs: how much there is to generate, and how long that takes at most."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from ablation.plan.grid import Plan
from sampling.settings import PARAMETERS
from utils.text import counted, shown

_MINUTE, _HOUR = 60.0, 3600.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """An upper bound: an answer may stop early, and then takes less."""

    seconds: float
    generations: int
    tokens: int

    @property
    def text(self) -> str:
        """For people: "about 12 min (at most; 160 generations of 10,240 tokens in all)"."""
        return f"about {_duration(self.seconds)} (at most; {_amount(self.generations, self.tokens)})"


def estimate(plan: Plan, speeds: Mapping[str, tuple[float, float]]) -> Estimate:
    """How long a plan takes at most.

    speeds: for each configuration, by its name, seconds a token and seconds a prefill, as a short warm-up
    prompt shows them; prefill of longer prompts takes longer.
    """
    each = [speeds[configuration.name] for configuration in plan.configurations]
    token_s, prefill_s = (sum(column) for column in zip(*each, strict=True))
    prompts = sum(len(prompt.turns) for prompt in plan.prompts)
    seconds = (_tokens_once(plan) * token_s + prompts * prefill_s) * _passes(plan)
    return Estimate(seconds, plan.generations, most_tokens(plan))


def most_tokens(plan: Plan) -> int:
    """Tokens of all generations when none stops early."""
    return _tokens_once(plan) * len(plan.configurations) * _passes(plan)


def grid_table(plan: Plan) -> Table:
    """What would run, for people."""
    tasks = Counter(shown(prompt.task or "no task") for prompt in plan.prompts)
    rows = {
        "configurations": "\n".join(configuration.name for configuration in plan.configurations),
        "processors": "\n".join(PARAMETERS["processor"].show(processor) for processor in plan.processors),
        "prompts": f"{len(plan.prompts)}: " + ", ".join(f"{task} {count}" for task, count in tasks.items()),
        "seeds": ", ".join(str(seed) for seed in plan.seeds),
        "repeats": str(plan.repeats),
        "at most": _amount(plan.generations, most_tokens(plan)),
    }
    table = Table(show_header=False, show_lines=True)
    for name, value in rows.items():
        table.add_row(Text(name, style="bold"), Text(value))
    return table


def _tokens_once(plan: Plan) -> int:
    """Tokens of one configuration in one pass over the prompts."""
    return sum(len(prompt.turns) * plan.length(prompt) for prompt in plan.prompts)


def _passes(plan: Plan) -> int:
    return len(plan.processors) * len(plan.seeds) * plan.repeats


def _amount(generations: int, tokens: int) -> str:
    return f"{counted(generations, 'generation')} of {counted(tokens, 'token')} in all"


def _duration(seconds: float) -> str:
    if seconds < 1.5 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 1.5 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.1f} h"

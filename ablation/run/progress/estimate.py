"""What a plan costs before it runs: how much there is to generate, and between which times that will take."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.table import Table
from rich.text import Text

from ablation.plan.grid import EngineSide, Plan
from sampling.measure.metrics import RunMetrics
from sampling.methods.settings import PARAMETERS
from utils.events import Event, Round
from utils.text import counted, shown

_MINUTE, _HOUR = 60.0, 3600.0


@dataclass(frozen=True, slots=True)
class TokenPace:
    """Seconds of a prefill, and seconds a token: if every draft is accepted, if none is, and as it was measured.

    rounds: how many were timed; 0 where a profile's prices tell.
    """

    prefill_s: float
    accepted_s: float
    rejected_s: float
    rounds: int
    expected_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TimedPrompt:
    """AR behind two prompts of so many tokens: short, as every configuration was timed, and as the longest text."""

    short_tokens: int
    long_tokens: int
    short: TokenPace
    long: TokenPace

    @property
    def growth(self) -> float:
        """A round behind the long prompt over one behind the short one, 1 at least."""
        return max(1.0, self.long.rejected_s / self.short.rejected_s) if self.short.rejected_s else 1.0

    def prefill_growth(self, tokens: int) -> float:
        """A prefill of so many tokens over the short one, on a line through both: above the truth between them."""
        if not self.short.prefill_s or self.long_tokens <= self.short_tokens:
            return 1.0
        slope = (self.long.prefill_s / self.short.prefill_s - 1.0) / (self.long_tokens - self.short_tokens)
        return 1.0 + max(0.0, slope) * max(0, tokens - self.short_tokens)

    @property
    def least_prefill(self) -> float:
        """The fastest prefill over the short one."""
        return min(1.0, self.long.prefill_s / self.short.prefill_s) if self.short.prefill_s else 1.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """Between which times a plan's generations take: `low_s` if all drafts pass, `high_s` if none does.

    Both for answers that use their whole length. basis: what was timed. expected_s: with drafts as good as on the texts
    of a profile; None where there is none.
    """

    low_s: float
    high_s: float
    generations: int
    tokens: int
    basis: str
    expected_s: float | None = None

    @property
    def text(self) -> str:
        """For people: the range and what it means, and what was timed; a line each."""
        expected = "" if self.expected_s is None else f"about {_duration(self.expected_s)} expected, "
        return (
            f"{expected}{_range(self.low_s, self.high_s)} for {_amount(self.generations, self.tokens)} "
            "(if all drafts are accepted, if none is); less where answers stop early\n"
            f"{self.basis}"
        )


def pace(events: Iterable[Event], account: RunMetrics) -> TokenPace:
    """The pace of a generation, from its rounds but the first, which pays for what no later one does.

    Full acceptance: the fastest round, by the most tokens that one asked for. None: nine rounds in ten are as fast.
    """
    rounds = [event for event in events if isinstance(event, Round)]
    if not rounds:  # a search
        token_s = account.decode_s / max(account.new_tokens, 1)
        return TokenPace(account.prefill_s, token_s, token_s, account.rounds, token_s)
    rounds = rounds[1:] or rounds
    times = sorted(round.draft_s + round.verify_s + round.other_s for round in rounds)
    most = 1 + max(round.gamma for round in rounds)
    token_s = sum(times) / max(1, sum(len(round.emitted) for round in rounds))
    return TokenPace(account.prefill_s, times[0] / most, times[9 * len(times) // 10], len(times), token_s)


def estimate(
    plan: Plan,
    paces: Sequence[Mapping[str, TokenPace]],
    timed: TimedPrompt,
    lengths: Mapping[str | int, Sequence[int]],
    measured: str = "",
) -> Estimate:
    """Between which times a plan takes.

    paces: for each processor, by a configuration's name, on the short prompt. lengths: tokens of each turn's
    prompt, by the prompt's id. measured: when the profile was whose prices stand for runs; empty: everything was run.
    """
    each = [by_name[configuration.name] for by_name in paces for configuration in plan.configurations]
    share = most_tokens(plan) / most_tokens(replace(plan, part=None))
    repeats = share * len(plan.seeds) * plan.repeats * max(1, len(plan.loads))
    tokens = _tokens_once(plan) * repeats
    turns = [length for of_prompt in lengths.values() for length in of_prompt]
    prefills = [[pace_of.prefill_s for pace_of in by_name.values()] for by_name in paces]
    prefill_s = sum(map(max if plan.share_prefill else sum, prefills)) * repeats
    low = tokens * sum(pace_of.accepted_s for pace_of in each) + len(turns) * timed.least_prefill * prefill_s
    all_prefills_s = prefill_s * sum(timed.prefill_growth(length) for length in turns)
    high = tokens * sum(pace_of.rejected_s for pace_of in each) * timed.growth + all_prefills_s
    if measured:
        expected = tokens * sum(pace_of.expected_s for pace_of in each) + all_prefills_s
        basis = _priced(paces[0], measured) + _of_batches(plan)
        return Estimate(low, high, plan.own_generations, most_tokens(plan), basis, expected)
    rounds = sum(pace_of.rounds for by_name in paces[:1] for pace_of in by_name.values())
    basis = (
        f"timed: {counted(rounds, 'round')} of {counted(len(plan.configurations), 'configuration')} behind a prompt of "
        f"{counted(timed.short_tokens, 'token')}, AR also behind one as long as the longest text, "
        f"{timed.long_tokens:,}; loading the models is not in it{_of_batches(plan)}"
    )
    return Estimate(low, high, plan.own_generations, most_tokens(plan), basis)


def _of_batches(plan: Plan) -> str:
    """What an estimate leaves out where texts share their rounds."""
    several = any(load.batch > 1 for load in plan.loads)
    return "; texts of a batch are counted as if they came one after the other, which takes longer" if several else ""


def _priced(paces: Mapping[str, TokenPace], measured: str) -> str:
    """What an estimate by prices rests on."""
    run = [name for name, pace_of in paces.items() if pace_of.rounds]
    also = f"; run for a moment, as it does not know them: {', '.join(run)}" if run else ""
    return (
        f"by the profile measured {measured} (infer.py profile), expected as on its texts{also}; loading the models is "
        "not in it"
    )


def together(each: Mapping[str, Estimate]) -> Estimate:
    """What formats of the target's weights, by their names, take one beside the other: the sum of all."""
    several = tuple(each.values())
    return Estimate(
        low_s=sum(part.low_s for part in several),
        high_s=sum(part.high_s for part in several),
        generations=sum(part.generations for part in several),
        tokens=sum(part.tokens for part in several),
        expected_s=_sum([part.expected_s for part in several]),
        basis=several[0].basis + (f"; the same in each format, {', '.join(each)}" if len(several) > 1 else ""),
    )


def _sum(seconds: Sequence[float | None]) -> float | None:
    known = [second for second in seconds if second is not None]
    return sum(known) if len(known) == len(seconds) else None


def most_tokens(plan: Plan) -> int:
    """Tokens of all generations when none stops early."""
    once = sum(len(p.turns) * plan.length(p) for each_pass in plan.passes() for _, p in plan.played(each_pass))
    return once * len(plan.configurations) * max(1, len(plan.formats)) * max(1, len(plan.loads))


def grid_table(plan: Plan) -> Table:
    """What would run, for people."""
    tasks = Counter(shown(prompt.task or "no task") for prompt in plan.prompts)
    rows = {
        "configurations": "\n".join(configuration.name for configuration in plan.configurations),
        **({"target's weights": "\n".join(plan.formats)} if plan.formats else {}),
        **({"engines": "\n".join(_side(side) for side in plan.sides)} if plan.sides else {}),
        **({"load": "\n".join(load.text for load in plan.loads)} if plan.loads else {}),
        "processors": "\n".join(PARAMETERS["processor"].show(processor) for processor in plan.processors),
        "prompts": f"{len(plan.prompts)}: " + ", ".join(f"{task} {count}" for task, count in tasks.items()),
        "seeds": ", ".join(str(seed) for seed in plan.seeds),
        "repeats": str(plan.repeats),
        "at most": _amount(
            plan.generations, most_tokens(plan) + sum(most_tokens(plan.of(side)) for side in plan.sides)
        ),
    }
    table = Table(show_header=False, show_lines=True)
    for name, value in rows.items():
        table.add_row(Text(name, style="bold"), Text(value))
    return table


def _side(side: EngineSide) -> str:
    """Example: `vllm: target, suffix`."""
    return f"{side.spec.name}: {', '.join(configuration.name for configuration in side.configurations)}"


def _tokens_once(plan: Plan) -> int:
    """Tokens of one configuration in one pass over the prompts."""
    return sum(len(prompt.turns) * plan.length(prompt) for prompt in plan.prompts)


def _amount(generations: int, tokens: int) -> str:
    return f"{counted(generations, 'generation')} of {counted(tokens, 'token')} in all"


def _range(low_s: float, high_s: float) -> str:
    """Example: 130 and 540 -> "2 to 9 min"; 50 and 540 -> "50 s to 9 min"; 3.1 and 3.3 -> "about 3 s"."""
    low, high = _duration(low_s), _duration(high_s)
    if low == high:
        return f"about {high}"
    (number, unit), (_, other) = low.split(), high.split()
    return f"{number if unit == other else low} to {high}"


def _duration(seconds: float) -> str:
    if seconds < 1.5 * _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 1.5 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.1f} h"

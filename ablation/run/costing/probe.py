"""The warm-up of a plan, and the short runs that tell how long the plan will take."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, cycle, islice
from typing import Any

from ablation.plan.grid import Configuration, Plan
from ablation.plan.prompts.file import Prompt
from ablation.run.costing.priced import priced_pace
from ablation.run.progress.estimate import Estimate, TimedPrompt, TokenPace, estimate, pace, together
from sampling.engine import Engine, in_formats
from sampling.measure.comparison import Comparison
from sampling.measure.warm_up import warm_up, warm_up_prompt
from sampling.methods.chat_template import TemplateVariables
from sampling.methods.settings import Settings
from sampling.methods.tables import AR
from sampling.pair.profile import LatencyProfile
from utils.parameter import ChosenPart, Values

FIRST_TOKENS, TIMED_TOKENS = 4, 16


def estimated(engine: Engine, plan: Plan) -> Estimate:
    """Run each configuration, first unmeasured and then timed, on a prompt of the warm-up: how long the plan takes.

    AR is also timed behind a text as long as the plan's longest: rounds and prefills get slower with the text.
    """
    alone = replace(plan, formats=())
    engines = in_formats(engine, plan.formats).items()
    return together({name: _estimated(each, alone, None) for name, each in engines})


def foreseen(engine: Engine, plan: Plan) -> Estimate:
    """How long a plan takes, for a look: by the prices of each format's profile; what that does not know is run.

    Without a profile as `estimated`, under the first processor alone, the others taken for as fast.
    """
    alone = replace(plan, formats=())
    engines = in_formats(engine, plan.formats).items()
    return together(
        {
            name: _estimated(each, alone, 1) if (profile := each.profile()) is None else _priced(each, alone, profile)
            for name, each in engines
        }
    )


def _priced(engine: Engine, plan: Plan, profile: LatencyProfile) -> Estimate:
    """By prices, of an engine as it is."""
    short, lengths, longest = _prompts(engine, plan)
    turns = [length + plan.length(prompt) // 2 for prompt in plan.prompts for length in lengths[prompt.id]]
    usual = sum(turns) // max(1, len(turns))
    priced = {c.name: priced_pace(profile, c, plan.values, len(short), usual) for c in plan.configurations}
    paces = {name: pace for name, pace in priced.items() if pace is not None}
    rest = tuple(c for c in plan.configurations if c.name not in paces)
    if rest:
        paces |= _run(engine, plan, plan.processors[0], rest, short)
    both = [_reference(profile, len(prompt)) for prompt in (short, longest)]
    timed = TimedPrompt(len(short), len(longest), *both)
    return estimate(plan, [paces] * len(plan.processors), timed, lengths, profile.measured)


def _reference(profile: LatencyProfile, tokens: int) -> TokenPace:
    """AR behind so many tokens."""
    pace = priced_pace(profile, Configuration(AR), Settings(), tokens, tokens)
    assert pace is not None, "every profile prices plain decoding"
    return pace


def _run(
    engine: Engine,
    plan: Plan,
    processor: ChosenPart,
    configurations: Sequence[Configuration],
    prompt: list[int],
    longest: int = 0,
) -> dict[str, TokenPace]:
    """The pace of configurations under a processor, first unmeasured and then timed; longest: see `warm_up`."""
    values = {**plan.values, "processor": processor, "length": FIRST_TOKENS}
    runs = [(c.name, c.method, dict(c.parameters)) for c in configurations]
    for _ in warm_up(engine, values, runs, longest):
        pass
    return dict(_timed(engine, {**values, "length": TIMED_TOKENS}, configurations, prompt))


def _estimated(engine: Engine, plan: Plan, processors: int | None) -> Estimate:
    """By runs under the first so many processors, of an engine as it is."""
    short, lengths, longest = _prompts(engine, plan)
    timed = len(longest) if processors is None else 0
    paces = [
        _run(engine, plan, processor, plan.configurations, short, timed) for processor in plan.processors[:processors]
    ]
    values = {**plan.values, "processor": plan.processors[0], "length": TIMED_TOKENS}
    both = [_timed_reference(engine, values, prompt, short) for prompt in (short, longest)]
    paces += paces[-1:] * (len(plan.processors) - len(paces))
    return estimate(plan, paces, TimedPrompt(len(short), len(longest), *both), lengths)


def _timed_reference(engine: Engine, values: Values, prompt: list[int], other: list[int]) -> TokenPace:
    """AR behind a prompt, or where that one cannot be answered, behind as many ids of another."""
    reference = (Configuration(AR),)
    try:
        return next(_timed(engine, values, reference, prompt))[1]
    except Exception:
        return next(_timed(engine, values, reference, [*islice(cycle(other), len(prompt))]))[1]


def _prompts(engine: Engine, plan: Plan) -> tuple[list[int], dict[str | int, list[int]], list[int]]:
    """A short prompt; the tokens of each turn's prompt, by id; and as many ids as the plan's longest text has.

    A later turn's prompt is taken to hold full answers to the earlier ones, and a text ends with a full answer.
    """
    values, most = plan.values, max(1, engine.describe().window - TIMED_TOKENS - 1)
    lengths: dict[str | int, list[int]] = {}
    ids: list[int] = []
    longest = 0
    for prompt in plan.prompts:
        turns = [_ids(engine, prompt, number, values) for number in range(1, len(prompt.turns) + 1)]
        sums = accumulate(len(turn) + (place > 0) * plan.length(prompt) for place, turn in enumerate(turns))
        lengths[prompt.id] = [min(most, tokens) for tokens in sums]
        longest = max(longest, min(most, lengths[prompt.id][-1] + plan.length(prompt)))
        ids = max(ids, *turns, key=len)
    short = warm_up_prompt(engine, values["chat"], TemplateVariables.of(values))
    return short, lengths, list(islice(cycle(ids or short), longest))


def _ids(engine: Engine, prompt: Prompt, turn: int, values: Values) -> list[int]:
    """A turn's ids with what was given before it; none of one that cannot run: that is told where it is generated."""
    try:
        turns = [*prompt.before(turn), prompt.turns[turn - 1]]
        return engine.tokenise(turns, values["chat"], prompt.system, TemplateVariables.of(values))
    except Exception:
        return []


def _timed(
    engine: Engine, values: Values, configurations: Sequence[Configuration], prompt: list[int]
) -> Iterator[tuple[str, TokenPace]]:
    """The pace of each configuration on a prompt; leaves no memory."""
    comparison = Comparison(engine, values, prompt)
    for configuration in configurations:
        parameters: dict[str, Any] = dict(configuration.parameters)
        events = [
            event for event, _ in comparison.run(configuration.name, method=configuration.method, parameters=parameters)
        ]
        engine.forget()
        yield configuration.name, pace(events, comparison.metrics[configuration.name])

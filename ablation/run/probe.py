"""The warm-up of a plan, and the short runs that tell how long the plan will take."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, cycle, islice
from typing import Any

from ablation.plan.grid import Configuration, Plan
from ablation.plan.prompt_file import Prompt
from ablation.run.estimate import Estimate, Pace, Timed, estimate, pace, together
from sampling.engine import Engine, in_formats
from sampling.measure.comparison import Comparison
from sampling.measure.warm_up import warm_up, warm_up_prompt
from sampling.methods import REFERENCE
from utils.errors import UserError
from utils.parameter import Values

FIRST_TOKENS, TIMED_TOKENS = 4, 16


def estimated(engine: Engine, plan: Plan, processors: int | None = None) -> Estimate:
    """Run each configuration, first unmeasured and then timed, on a prompt of the warm-up: how long the plan takes.

    AR is also timed behind a text as long as the plan's longest: rounds and prefills get slower with the text.
    processors: only under the first so many of them, the others taken for as fast: quicker, for a look.
    """
    alone = replace(plan, formats=())
    engines = in_formats(engine, plan.formats).items()
    return together({name: _estimated(each, alone, processors) for name, each in engines})


def _estimated(engine: Engine, plan: Plan, processors: int | None) -> Estimate:
    """The same of an engine as it is."""
    short, lengths, longest = _prompts(engine, plan)
    runs = [(c.name, c.method, dict(c.parameters)) for c in plan.configurations]
    paces: list[dict[str, Pace]] = []
    for processor in plan.processors[:processors]:
        values = {**plan.values, "processor": processor, "length": FIRST_TOKENS}
        for _ in warm_up(engine, values, runs):
            pass
        values["length"] = TIMED_TOKENS
        paces.append(dict(_timed(engine, values, plan.configurations, short)))
    values = {**plan.values, "processor": plan.processors[0], "length": TIMED_TOKENS}
    reference = (Configuration(REFERENCE),)
    both = [next(_timed(engine, values, reference, prompt))[1] for prompt in (short, longest)]
    paces += paces[-1:] * (len(plan.processors) - len(paces))
    return estimate(plan, paces, Timed(len(short), len(longest), *both), lengths)


def _prompts(engine: Engine, plan: Plan) -> tuple[list[int], dict[str | int, list[int]], list[int]]:
    """A short prompt; the tokens of each turn's prompt, by id; and as many ids as the plan's longest text has.

    A later turn's prompt is taken to hold full answers to the earlier ones, and a text ends with a full answer.
    """
    chat, most = plan.values["chat"], max(1, engine.describe().window - TIMED_TOKENS - 1)
    lengths: dict[str | int, list[int]] = {}
    ids: list[int] = []
    longest = 0
    for prompt in plan.prompts:
        turns = [_ids(engine, prompt, number, chat) for number in range(1, len(prompt.turns) + 1)]
        sums = accumulate(len(turn) + (place > 0) * plan.length(prompt) for place, turn in enumerate(turns))
        lengths[prompt.id] = [min(most, tokens) for tokens in sums]
        longest = max(longest, min(most, lengths[prompt.id][-1] + plan.length(prompt)))
        ids = max(ids, *turns, key=len)
    short = warm_up_prompt(engine, chat)
    return short, lengths, list(islice(cycle(ids or short), longest))


def _ids(engine: Engine, prompt: Prompt, turn: int, chat: bool) -> list[int]:
    """A turn's ids with what was given before it; none of one that cannot run: that is told where it is generated."""
    try:
        return engine.tokenise([*prompt.before(turn), prompt.turns[turn - 1]], chat, prompt.system)
    except UserError:
        return []


def _timed(
    engine: Engine, values: Values, configurations: Sequence[Configuration], prompt: list[int]
) -> Iterator[tuple[str, Pace]]:
    """The pace of each configuration on a prompt; leaves no memory."""
    comparison = Comparison(engine, values, prompt)
    for one in configurations:
        parameters: dict[str, Any] = dict(one.parameters)
        events = [event for event, _ in comparison.run(one.name, method=one.method, parameters=parameters)]
        engine.forget()
        yield one.name, pace(events, comparison.metrics[one.name])

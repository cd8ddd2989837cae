"""Generations that nobody measures: first calls pay for what no later one does."""

from collections.abc import Generator, Iterable, Mapping
from itertools import cycle, islice
from typing import Any

from sampling.engine import Engine
from sampling.forward.caches.fixed import BUCKET
from sampling.measure.comparison import Comparison
from sampling.measure.metrics import RunMetrics
from sampling.methods.chat_template import UNTOLD, TemplateVariables
from utils.device import graphed
from utils.parameter import Values

# Not a sentence that anybody would measure with.
_SENTENCE = "Seven grey herons stood in the shallow water and waited for the tide to turn."

_CAPTURED = 24
"""Tokens that bring some rounds of every method: the first round of a kind is not captured."""


def warm_up_prompt(engine: Engine, chat: bool, variables: TemplateVariables = UNTOLD) -> list[int]:
    """Ids of a short prompt that nobody measures, `[n]`. Raises `UserError` for variables that no template takes."""
    return engine.tokenise([_SENTENCE], chat, None, variables)[: engine.describe().window // 2]


def warm_up(
    engine: Engine, values: Values, runs: Iterable[tuple[str, str, Mapping[str, Any]]], longest: int = 0
) -> Generator[tuple[str, RunMetrics]]:
    """Generate once for each run: its name, its method and its values in place of the common ones.

    Yields (name, account so far) at each event, so that whoever has no time may stop between two. Leaves no
    memory. Raises `UserError` when a method cannot run on this pair at all. longest: tokens of the longest text that
    will be timed. Where forwards are captured, each run is made for each number of columns up to it, so that the graphs
    of its widths are there before its first timed round.
    """
    short, each = warm_up_prompt(engine, values["chat"], TemplateVariables.of(values)), list(runs)
    if borders := _borders(engine, longest):
        values = {**values, "length": max(values["length"], _CAPTURED)}
    try:
        for count in (*borders, len(short)):
            comparison = Comparison(engine, values, list(islice(cycle(short), count)))
            for name, method, parameters in each:
                for _, account in comparison.run(name, method=method, parameters=parameters):
                    yield name, account
    finally:
        engine.forget()


def _borders(engine: Engine, longest: int) -> list[int]:
    """Lengths of prompts behind which forwards attend over more columns, the longest first: a cache grows once."""
    about = engine.describe()
    if not (about.target.graphs and graphed.captures(about.device)):
        return []
    most = min(longest, about.window - _CAPTURED)
    return [BUCKET << step for step in reversed(range(32)) if BUCKET << step < most]

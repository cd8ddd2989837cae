"""Generations that nobody measures: first calls pay for what no later one does."""

from collections.abc import Generator, Iterable, Mapping
from typing import Any

from sampling.engine import Engine
from sampling.measure.comparison import Comparison
from sampling.measure.metrics import RunMetrics
from sampling.methods.chat_template import UNTOLD, TemplateVariables
from utils.parameter import Values

# Not a sentence that anybody would measure with.
_SENTENCE = "Seven grey herons stood in the shallow water and waited for the tide to turn."


def warm_up_prompt(engine: Engine, chat: bool, variables: TemplateVariables = UNTOLD) -> list[int]:
    """Ids of a short prompt that nobody measures, `[n]`. Raises `UserError` for variables that no template takes."""
    return engine.tokenise([_SENTENCE], chat, None, variables)[: engine.describe().window // 2]


def warm_up(
    engine: Engine, values: Values, runs: Iterable[tuple[str, str, Mapping[str, Any]]]
) -> Generator[tuple[str, RunMetrics]]:
    """Generate once for each run: its name, its method and its values in place of the common ones.

    Yields (name, account so far) at each event, so that whoever has no time may stop between two. Leaves no
    memory. Raises `UserError` when a method cannot run on this pair at all.
    """
    comparison = Comparison(engine, values, warm_up_prompt(engine, values["chat"], TemplateVariables.of(values)))
    try:
        for name, method, parameters in runs:
            for _, account in comparison.run(name, method=method, parameters=parameters):
                yield name, account
    finally:
        engine.forget()

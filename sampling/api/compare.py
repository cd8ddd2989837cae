"""Methods side by side on one prompt, from Python: plain decoding, each method, and plain decoding once more."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sampling.measure.comparison import Comparison
from sampling.measure.metrics import RunMetrics
from sampling.measure.warm_up import warm_up
from sampling.methods.chat_template import TemplateVariables
from sampling.methods.settings import PARAMETERS, Settings, check_bounds
from sampling.methods.tables import AR, CONTROL, METHODS
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from utils.events import Round

_WARM_UP_TOKENS = 4
_CONTROL_LABEL = "AR again (control)"


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One run of a comparison.

    speedup: its tokens/s over those of plain decoding in the same call; None for another output. verdict: its output
    against plain decoding's, `exact`, `tie` or `BUG`; None where nothing can be compared, as under sampling.
    """

    name: str
    label: str
    text: str
    metrics: RunMetrics
    rounds: tuple[Round, ...]
    speedup: float | None
    verdict: str | None

    @property
    def row(self) -> dict[str, str | float | None]:
        """What a table shows of it: a column for each figure, which says what it is measured against."""
        return {
            "method": self.label,
            "tokens/s": self.metrics.tokens_per_s,
            "speedup over AR": self.speedup,
            "tokens/round": self.metrics.tokens_per_round,
            "drafts kept": self.metrics.acceptance_rate,
            "output against AR": self.verdict,
        }


def compare(pair: Pair, prompt: str, methods: Iterable[str], **settings: Any) -> dict[str, ComparedRun]:
    """The runs of some methods on a prompt, by name, between two runs of plain decoding.

    `target`, the first, is what all others are measured against. `control`, the last, is plain decoding once more: how
    far its speedup is from 1 is the noise of the machine. Each method runs once before that, where nobody measures.
    Nothing is remembered from one call to the next.

    pair: of `load_pair`. methods: names of `infer.py methods`, and those that `register` entered. settings: of all
    runs, such as `length=24, gamma=2, processor="topk 1.0 8", seed=0`. Raises `UserError` for an unknown name or value,
    and for a method that lacks what drafts for it.
    """
    chosen = [METHODS[name].name for name in dict.fromkeys(methods) if name != AR]
    values = _values(settings, chosen)
    engine = PairEngine(pair)
    short = {**values, "length": min(values["length"], _WARM_UP_TOKENS)}
    for _ in warm_up(engine, short, [(name, name, {}) for name in (AR, *chosen)]):
        pass
    comparison = Comparison(
        engine, values, engine.tokenise([prompt], values["chat"], None, TemplateVariables.of(values))
    )
    rounds = {name: _run(comparison, name, METHODS[name].name) for name in (AR, *chosen)}
    rounds[CONTROL] = _run(comparison, CONTROL, AR)
    return {name: _compared(comparison, name, told) for name, told in rounds.items()}


def _values(settings: Mapping[str, Any], methods: Iterable[str]) -> dict[str, Any]:
    values = {**Settings(), **{name: PARAMETERS[name].checked(value) for name, value in settings.items()}}
    for method in methods:
        check_bounds(values, METHODS[method].bounds)
    return values


def _run(comparison: Comparison, name: str, method: str) -> tuple[Round, ...]:
    return tuple(event for event, _ in comparison.run(name, method=method) if isinstance(event, Round))


def _compared(comparison: Comparison, name: str, rounds: tuple[Round, ...]) -> ComparedRun:
    metrics, divergence = comparison.metrics[name], comparison.divergence(name)
    label = _CONTROL_LABEL if name == CONTROL else METHODS[name].label
    text = comparison.engine.text(metrics.output_ids)
    verdict = None if divergence is None else divergence.verdict
    return ComparedRun(name, label, text, metrics, rounds, comparison.speedup(name), verdict)

"""Methods side by side on one prompt: each run measured against the target's plain autoregression."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sampling.divergence import Divergence, judge
from sampling.engine import Engine
from sampling.events import Event
from sampling.methods import METHODS
from sampling.metrics import RunMetrics, cost_ratio, speedup

REFERENCE = "target"


class Comparison:
    """The runs of several methods on one prompt (ids) with one set of values, and how they compare.

    Iterate `run(name)` for each method; then read `metrics`, `speedup`, `cost_ratio` and `divergence`.
    A run that was abandoned half-way stays in `metrics` with `finish_reason` None.
    """

    def __init__(self, engine: Engine, values: Mapping[str, Any], prompt: Sequence[int] = ()) -> None:
        self.engine, self.values, self.prompt = engine, dict(values), list(prompt)
        self.metrics: dict[str, RunMetrics] = {}
        self._prompts: dict[str, list[int]] = {}

    def run(self, name: str, prompt: Sequence[int] | None = None) -> Iterator[tuple[Event, RunMetrics]]:
        """Events of one method with its account so far; the clock stands still at each of them.

        prompt: ids in place of the common ones, where each method continues its own conversation.
        """
        account = self.metrics[name] = RunMetrics()
        ids = self._prompts[name] = self.prompt if prompt is None else list(prompt)
        for event in self.engine.stream(name, self.values, ids):
            account.add(event)
            yield event, account

    def lossless(self, name: str) -> bool:
        """Whether the method's output has the target's law under the processor in use."""
        return self.engine.lossless(name, self.values["processor"])

    def speedup(self, name: str) -> float | None:
        """tokens/s over the reference's; 1.0 for the reference, None without one or for another model."""
        reference = self._reference(name)
        return None if reference is None else speedup(self.metrics[name], reference)

    def cost_ratio(self, name: str) -> float | None:
        """c: time a drafted token over the reference's one-token forward."""
        reference = self._reference(name)
        return None if reference is None else cost_ratio(self.metrics[name], reference)

    def divergence(self, name: str) -> Divergence | None:
        """The output against the reference's: only under greedy, where a lossless method must equal it.

        Costs two passes of the target where they part. None where the question does not arise, as when
        the two continued different conversations.
        """
        reference = self._reference(name)
        greedy = self.values["processor"].name == "greedy"
        if reference is None or name == REFERENCE or not greedy or not self.lossless(name):
            return None
        own, prompt = self.metrics[name], self._prompts[name]
        if not self.finished(name) or prompt != self._prompts[REFERENCE]:
            return None
        return judge(self.engine.pair.target, prompt, reference.output_ids, own.output_ids)

    def finished(self, name: str) -> bool:
        """Whether the method has run to its end."""
        return name in self.metrics and self.metrics[name].finish_reason is not None

    def _reference(self, name: str) -> RunMetrics | None:
        comparable = self.finished(REFERENCE) and METHODS[name].runs == "target"
        return self.metrics[REFERENCE] if comparable else None

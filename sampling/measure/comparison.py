"""Methods side by side on one prompt: each run measured against the target's plain autoregression."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from egag.cost_model import CostModel
from egag.rollback_price import FREE
from sampling.engine import Engine, price_on
from sampling.forward.referee import RefereeResult
from sampling.measure.divergence import Divergence, judge
from sampling.measure.ledger import Ledger, PlainRound, ledger, plain_at, plain_of, predicted
from sampling.measure.metrics import RunMetrics
from sampling.methods.tables import AR, METHODS
from utils.events import Event
from utils.token_ids import alike


@dataclass(frozen=True, slots=True)
class _Run:
    """One generation: what ran with which values on which ids, and its account."""

    method: str
    values: Mapping[str, Any]
    prompt: Sequence[int]
    metrics: RunMetrics = field(default_factory=RunMetrics)


class Comparison:
    """The runs of several methods on one prompt (ids), and how they compare with plain autoregression.

    Iterate `run(name)` for each; then read `metrics`, `speedup`, `cost_ratio` and `divergence`. A run is
    named by its method, or by any other name where a method runs more than once with different values; what
    drafters remember of earlier prompts is kept apart by it.
    A run that was abandoned half-way stays in `metrics` with `finish_reason` None. before: what each run's prompt and
    answer were in the turn before (ids), by its name.
    """

    def __init__(self, engine: Engine, values: Mapping[str, Any], prompt: Sequence[int] = ()) -> None:
        self.engine, self.values, self.prompt = engine, dict(values), list(prompt)
        self._runs: dict[str, _Run] = {}
        self._judged: dict[str, Divergence] = {}
        self.before: dict[str, list[int]] = {}

    @property
    def metrics(self) -> dict[str, RunMetrics]:
        """The account of each run, by its name."""
        return {name: run.metrics for name, run in self._runs.items()}

    def run(
        self,
        name: str,
        prompt: Sequence[int] | None = None,
        *,
        method: str | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> Iterator[tuple[Event, RunMetrics]]:
        """Events of one run with its account so far; the clock stands still at each of them.

        prompt: ids in place of the common ones, where each run continues its own conversation.
        method: what runs, where the name is not its name. parameters: values in place of the common ones.
        """
        values = {**self.values, **(parameters or {})}
        run = _Run(method or name, values, self.prompt if prompt is None else list(prompt))
        self._runs[name] = run
        self._judged.pop(name, None)
        for event in self.engine.stream(run.method, run.values, run.prompt, name):
            run.metrics.add(event)
            yield event, run.metrics

    def add(
        self, name: str, prompt: Sequence[int], metrics: RunMetrics, *, method: str, parameters: Mapping[str, Any]
    ) -> None:
        """A run that was made elsewhere, with its account: see `run`."""
        self._runs[name] = _Run(method, {**self.values, **parameters}, list(prompt), metrics)
        self._judged.pop(name, None)

    def values_of(self, name: str) -> Mapping[str, Any]:
        """Every setting as the run had it."""
        return self._runs[name].values

    def spoken(self) -> dict[str, list[int]]:
        """The prompt and the answer of each run (ids), for the turn behind it."""
        return {name: [*run.prompt, *run.metrics.output_ids] for name, run in self._runs.items()}

    def known(self, name: str) -> int | None:
        """Of how many tokens a run's prompt begins as the turn before was; None in a first turn."""
        before, prompt = self.before.get(name), self._runs[name].prompt[:-1]
        return None if before is None else alike(before, prompt)

    def lossless(self, name: str) -> bool:
        """Whether the run's output has the target's distribution under its processor."""
        run = self._runs[name]
        return self.engine.lossless(run.method, run.values)

    def speedup(self, name: str) -> float | None:
        """tokens/s over the reference's; 1.0 for the reference, None without one or for another output."""
        reference = self._reference(name)
        return None if reference is None else speedup(self._runs[name].metrics, reference.metrics)

    def cost_ratio(self, name: str) -> float | None:
        """c: time a drafted token over the reference's one-token forward."""
        reference = self._reference(name)
        return None if reference is None else cost_ratio(self._runs[name].metrics, reference.metrics)

    def ledger(self, name: str) -> Ledger | None:
        """Where the time of its tokens went; None for another output, and where nobody knows what AR takes."""
        plain = None if self._runs[name].metrics.opaque else self._plain(name)
        price = self._price(name)
        return None if plain is None else ledger(self._runs[name].metrics, plain, price.rollback if price else FREE)

    def predicted(self, name: str) -> Ledger | None:
        """The same by the prices of the engine's profile; None where there is none, and for another output."""
        price = None if self._runs[name].metrics.opaque else self._price(name)
        return None if price is None else predicted(self._runs[name].metrics, price)

    def divergence(self, name: str) -> Divergence | None:
        """The output against the reference's: only under greedy, where a lossless method must equal it.

        Costs two passes of the target where they part, once. None where the question does not arise, as when
        the two continued different conversations.
        """
        reference, run = self._reference(name), self._runs[name]
        greedy = run.values["processor"].name == "greedy"
        if reference is None or reference is run or not greedy or not self.lossless(name):
            return None
        if not self.finished(name) or run.prompt != reference.prompt:
            return None
        if name not in self._judged:
            ids = reference.metrics.output_ids, run.metrics.output_ids
            target = self.engine.describe().target
            under = {name: run.values[name] for name in ("processor", "grammar")}
            ask = partial(self.engine.reference, run.prompt, **under)
            self._judged[name] = judge(ask, *ids, target.batch_invariant)
        return self._judged[name]

    def referee(self, name: str) -> RefereeResult | None:
        """What our target says of another engine's greedy answer; None where the question does not arise."""
        run = self._runs[name]
        greedy = run.values["processor"].name == "greedy" and METHODS[run.method].other is None
        if run.metrics.answered is None or not greedy or not self.lossless(name):
            return None
        return self.engine.referee(run.prompt, run.metrics.output_ids)

    def finished(self, name: str) -> bool:
        """Whether the run has come to its end."""
        return name in self._runs and self._runs[name].metrics.finish_reason is not None

    def _plain(self, name: str) -> PlainRound | None:
        """AR's round as the reference had it, else as the profile has it."""
        reference = self._reference(name)
        if reference is not None:
            return plain_of(reference.metrics)
        price = self._price(name)
        return None if price is None else plain_at(price)

    def _price(self, name: str) -> CostModel | None:
        run = self._runs[name]
        if METHODS[run.method].other is not None:
            return None
        return price_on(self.engine, run.method, run.values, run.metrics.prompt_tokens + run.metrics.new_tokens // 2)

    def _reference(self, name: str) -> _Run | None:
        comparable = self.finished(AR) and METHODS[self._runs[name].method].other is None
        return self._runs[AR] if comparable else None


def speedup(run: RunMetrics, reference: RunMetrics) -> float | None:
    """tokens/s of a run over that of the reference on the same prompt, settings and machine state."""
    if run.tokens_per_s is None or not reference.tokens_per_s:
        return None
    return run.tokens_per_s / reference.tokens_per_s


def cost_ratio(run: RunMetrics, reference: RunMetrics) -> float | None:
    """c: time a drafted token over the time of the reference's one-token target forward (2211.17192).

    None where no forward is one text's.
    """
    if run.opaque or reference.opaque:
        return None
    if not run.drafted or not reference.rounds or not reference.verify_s:
        return None
    return (run.draft_s / run.drafted) / (reference.verify_s / reference.rounds)

"""The sample: what plain decoding and each drafter do on a user's prompts, measured once, replayed often."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from statistics import fmean

from ablation.advise.candidates import CandidateDrafter, bases, run_as_they_are
from ablation.plan.grid import Configuration
from egag.cost_model import CostModel
from sampling.engine import price_on
from sampling.measure.metrics import RunMetrics
from sampling.measure.replay import DraftWalk, Sample, fitted, oracle, scaled, walk
from sampling.measure.replay.walk import sample_of
from sampling.measure.warm_up import warm_up
from sampling.methods.tables import AR
from sampling.pair.local_engine import LocalEngine
from utils.events import Round
from utils.parameter import Values

_WARM_TOKENS = 8
_WALK = "walk"
# A walk drafts and verifies several tokens for each one of the answer: about so many plain ones.
_WALK_COST = 4.0
_LEAST, _PROMPTS = 16, 8
# Prompts after which walks are enough and a drafter that cannot win is left out, and about how many then are left.
_ENOUGH, _LEFT = 2, 4

Logs = dict[str, list[float]]
Over = Callable[[int], bool]


@dataclass
class DrafterMeasurement:
    """What was measured of one drafter: a walk a prompt, and rounds that were really run."""

    base: CandidateDrafter
    walks: list[DraftWalk] = field(default_factory=list)
    own: list[Sample] = field(default_factory=list)


class SampleRuns:
    """Plays prompts one by one: `play`; then `logs` are the candidates' logarithms of predicted speedups by prompt.

    A prompt counts where plain decoding and every drafter that is still in have answered it.
    """

    def __init__(self, engine: LocalEngine, common: Values) -> None:
        self.engine, self.common = engine, dict(common)
        self.live = [DrafterMeasurement(base) for base in bases(engine.pair, common)]
        self.run = {run.name: run for run in run_as_they_are(engine.pair, common)}
        self.measured: Logs = {name: [] for name in self.run}
        self.left_out: list[str] = []
        self.prompts = 0
        self.candidates: dict[str, Configuration] = dict(self.run)
        self._plain: list[Sample] = []
        self._taken_back: dict[str, list[float]] = {}

    def warm_up(self, over: Callable[[], bool]) -> float:
        """First calls pay for what no later one does. The seconds that plain decoding takes for a token."""
        walked = [
            (measurement.base.configuration.name, measurement.base.method, measurement.base.values({}))
            for measurement in self.live
        ]
        runs = [(AR, AR, {}), *walked, *((name, run.method, {}) for name, run in self.run.items())]
        values = {**self.common, "length": _WARM_TOKENS}
        accounts: dict[str, RunMetrics] = {}
        with closing(warm_up(self.engine, values, runs)) as warming:
            for name, account in warming:
                accounts[name] = account
                if over():
                    break
        return accounts[AR].decode_s / max(1, accounts[AR].new_tokens)

    def length_for(self, seconds: float, token_s: float, prompts: int) -> int:
        """Tokens of an answer with which a few prompts fit into so many seconds, at most what was asked for."""
        first, later = min(prompts, _ENOUGH), max(0, min(prompts, _PROMPTS) - _ENOUGH)
        plain = (first + later) * (1 + len(self.run))
        passes = plain + first * len(self.live) * (1 + _WALK_COST) + later * min(len(self.live), _LEFT) * _WALK_COST
        fitting = seconds / (max(1.0, passes) * max(token_s, 1e-6))
        return int(min(self.common["length"], max(_LEAST, fitting)))

    def play(self, ids: Sequence[int], length: int, over: Over) -> bool:
        """Measure everything on a prompt (ids); whether it counts.

        over: asked before each drafter, with how many have been measured, earlier prompts included.
        """
        self.engine.forget()
        values = {**self.common, "length": length}
        plain, rounds = self._run(Configuration(AR), values, ids)
        kept: list[tuple[DrafterMeasurement, DraftWalk, list[Sample]]] = []
        for of_drafter in self.live:
            if over(len(kept) + self.prompts):
                if self.prompts or not kept:
                    return False
                break
            samples = self._run(of_drafter.base.configuration, values, ids)[1] if self.prompts < _ENOUGH else []
            # Under a name of its own: from the memory of the run before it, the walk would know the answer.
            walked = walk(self.engine, of_drafter.base.method, of_drafter.base.values(values), ids, run=_WALK)
            kept.append((of_drafter, walked, samples))
        logs = self._others(values, ids, plain)
        if not self.prompts:  # what time did not reach is no candidate
            self.live = [measurement for measurement, _, _ in kept]
        self._plain += rounds
        for of_drafter, walked, samples in kept:
            of_drafter.walks.append(walked)
            of_drafter.own += samples
        for name, log in logs.items():
            self.measured[name].append(log)
        self.prompts += 1
        self._drop_hopeless()
        return True

    def _others(self, values: Values, ids: Sequence[int], plain: RunMetrics) -> dict[str, float]:
        """What is run and not replayed: the logarithms of its speedups."""
        runs = {name: self._run(configuration, values, ids)[0] for name, configuration in self.run.items()}
        return {name: math.log(_token_s(plain) / _token_s(account)) for name, account in runs.items()}

    def _run(self, configuration: Configuration, values: Values, ids: Sequence[int]) -> tuple[RunMetrics, list[Sample]]:
        """A generation, measured: its account, and what its rounds took."""
        account, samples = RunMetrics(), []
        for event in self.engine.stream(
            configuration.method, {**values, **dict(configuration.parameters)}, ids, configuration.name
        ):
            account.add(event)
            if isinstance(event, Round):
                samples.append(sample_of(event))
        return account, samples

    def cost_model(self, measurement: DrafterMeasurement) -> CostModel:
        """What rounds with this drafter cost: by the pair's profile at the level of today's rounds, else fitted."""
        values = measurement.base.values(self.common)
        profiled = price_on(self.engine, measurement.base.method, values, measurement.walks[0].prompt_tokens)
        if profiled is not None:
            return scaled(profiled, [*self._plain, *measurement.own])
        others = [sample for other in self.live if other is not measurement for sample in other.own]
        walked = [sample for walked in measurement.walks for sample in walked.samples]
        return fitted(measurement.own, walked, [*self._plain, *others])

    def plain_s(self) -> float:
        """Seconds of a token of plain decoding."""
        return fmean(round.draft_s + round.verify_s + round.other_s for round in self._plain)

    def logs(self) -> Logs:
        """By candidate, one a prompt; `candidates` are their configurations."""
        logs_of: Logs = {name: list(values) for name, values in self.measured.items() if values}
        self._taken_back.clear()
        for measurement in self.live:
            for configuration, values in self._replays(measurement):
                self.candidates[configuration.name] = configuration
                logs_of[configuration.name] = values
        return logs_of

    def taken_back_s(self, name: str) -> float | None:
        """Seconds a round that taking tokens back costs a candidate on the sample; None for one that has no replay."""
        seconds = self._taken_back.get(name)
        return fmean(seconds) if seconds else None

    def bounds(self) -> Logs:
        """By drafter, one a prompt: what knowing beforehand what is accepted would bring."""
        highest: Logs = {}
        for measurement in self.live:
            price = self.cost_model(measurement)
            highest[measurement.base.configuration.name] = [
                self._log(oracle(walked, price)) for walked in measurement.walks
            ]
        return highest

    def _replays(self, measurement: DrafterMeasurement) -> Iterator[tuple[Configuration, list[float]]]:
        """What can be told of every answer; of one of two tokens no rule can be replayed."""
        price, speedups = self.cost_model(measurement), dict[Configuration, list[float]]()
        for walked in measurement.walks:
            for configuration, account in measurement.base.replays(walked, price, self.common):
                speedups.setdefault(configuration, []).append(self._log(account))
                self._taken_back.setdefault(configuration.name, []).append(account.rollback_s / max(1, account.rounds))
        yield from ((made, logs) for made, logs in speedups.items() if len(logs) == len(measurement.walks))

    def _log(self, account: RunMetrics) -> float:
        return math.log(self.plain_s() / _token_s(account))

    def _drop_hopeless(self) -> None:
        """Leave out each drafter whose oracle is below the best candidate: no length and no rule can make up for it."""
        if self.prompts < _ENOUGH or not self.live:
            return
        logs, bounds = self.logs(), self.bounds()
        best = max(logs, key=lambda name: sum(logs[name]))
        hopeless = [
            measurement
            for measurement in self.live
            if sum(bounds[measurement.base.configuration.name]) < sum(logs[best])
        ]
        self.left_out += [measurement.base.configuration.name for measurement in hopeless]
        self.live = [measurement for measurement in self.live if measurement not in hopeless]


def _token_s(account: RunMetrics) -> float:
    return max(account.decode_s / max(1, account.new_tokens), 1e-9)

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
from sampling.measure.replay.walk import sample
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
        self.run = {one.name: one for one in run_as_they_are(engine.pair, common)}
        self.measured: Logs = {name: [] for name in self.run}
        self.left_out: list[str] = []
        self.prompts = 0
        self.candidates: dict[str, Configuration] = dict(self.run)
        self._plain: list[Sample] = []

    def warm_up(self, over: Callable[[], bool]) -> float:
        """First calls pay for what no later one does. The seconds that plain decoding takes for a token."""
        walked = [(one.base.configuration.name, one.base.method, one.base.values({})) for one in self.live]
        runs = [(AR, AR, {}), *walked, *((name, one.method, {}) for name, one in self.run.items())]
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
        found: list[tuple[DrafterMeasurement, DraftWalk, list[Sample]]] = []
        for one in self.live:
            if over(len(found) + self.prompts):
                if self.prompts or not found:
                    return False
                break
            own = self._run(one.base.configuration, values, ids)[1] if self.prompts < _ENOUGH else []
            # Under a name of its own: from the memory of the run before it, the walk would know the answer.
            walked = walk(self.engine, one.base.method, one.base.values(values), ids, run=_WALK)
            found.append((one, walked, own))
        logs = self._others(values, ids, plain)
        if not self.prompts:  # what time did not reach is no candidate
            self.live = [one for one, _, _ in found]
        self._plain += rounds
        for one, walked, own in found:
            one.walks.append(walked)
            one.own += own
        for name, log in logs.items():
            self.measured[name].append(log)
        self.prompts += 1
        self._drop_hopeless()
        return True

    def _others(self, values: Values, ids: Sequence[int], plain: RunMetrics) -> dict[str, float]:
        """What is run and not replayed: the logarithms of its speedups."""
        runs = {name: self._run(one, values, ids)[0] for name, one in self.run.items()}
        return {name: math.log(_token_s(plain) / _token_s(account)) for name, account in runs.items()}

    def _run(self, one: Configuration, values: Values, ids: Sequence[int]) -> tuple[RunMetrics, list[Sample]]:
        """A generation, measured: its account, and what its rounds took."""
        account, samples = RunMetrics(), []
        for event in self.engine.stream(one.method, {**values, **dict(one.parameters)}, ids, one.name):
            account.add(event)
            if isinstance(event, Round):
                samples.append(sample(event.drafts, event.parents, event.draft_s, event.verify_s, event.other_s))
        return account, samples

    def cost_model(self, one: DrafterMeasurement) -> CostModel:
        """What rounds with this drafter cost: by the pair's profile at the level of today's rounds, else fitted."""
        values = one.base.values(self.common)
        profiled = price_on(self.engine, one.base.method, values, one.walks[0].prompt_tokens)
        if profiled is not None:
            return scaled(profiled, [*self._plain, *one.own])
        others = [sample for other in self.live if other is not one for sample in other.own]
        walked = [sample for walked in one.walks for sample in walked.samples]
        return fitted(one.own, walked, [*self._plain, *others])

    def plain_s(self) -> float:
        """Seconds of a token of plain decoding."""
        return fmean(one.draft_s + one.verify_s + one.other_s for one in self._plain)

    def logs(self) -> Logs:
        """By candidate, one a prompt; `candidates` are their configurations."""
        found: Logs = {name: list(values) for name, values in self.measured.items() if values}
        for one in self.live:
            for configuration, values in self._replays(one):
                self.candidates[configuration.name] = configuration
                found[configuration.name] = values
        return found

    def bounds(self) -> Logs:
        """By drafter, one a prompt: what knowing beforehand what is accepted would bring."""
        found: Logs = {}
        for one in self.live:
            price = self.cost_model(one)
            found[one.base.configuration.name] = [self._log(oracle(walked, price)) for walked in one.walks]
        return found

    def _replays(self, one: DrafterMeasurement) -> Iterator[tuple[Configuration, list[float]]]:
        """What can be told of every answer; of one of two tokens no rule can be replayed."""
        price, found = self.cost_model(one), dict[Configuration, list[float]]()
        for walked in one.walks:
            for configuration, account in one.base.replays(walked, price, self.common):
                found.setdefault(configuration, []).append(self._log(account))
        yield from ((made, logs) for made, logs in found.items() if len(logs) == len(one.walks))

    def _log(self, account: RunMetrics) -> float:
        return math.log(self.plain_s() / _token_s(account))

    def _drop_hopeless(self) -> None:
        """Leave out each drafter whose oracle is below the best candidate: no length and no rule can make up for it."""
        if self.prompts < _ENOUGH or not self.live:
            return
        logs, bounds = self.logs(), self.bounds()
        best = max(logs, key=lambda name: sum(logs[name]))
        hopeless = [one for one in self.live if sum(bounds[one.base.configuration.name]) < sum(logs[best])]
        self.left_out += [one.base.configuration.name for one in hopeless]
        self.live = [one for one in self.live if one not in hopeless]


def _token_s(account: RunMetrics) -> float:
    return max(account.decode_s / max(1, account.new_tokens), 1e-9)

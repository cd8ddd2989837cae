"""Is this pair's output unchanged? Checks of each method, each with numbers that a doubter can ask for.

greedy        the output equals plain autoregression, id by id; a tie within the dtype's rounding is told apart
redraft       the drafts of a method with a drafter model equal those of a drafter with a fresh cache; of a drafter of
              another tokenizer in float32 and under a fixed gamma alone
rows          of a batch-invariant target: a row has the same bits whatever is fed with it; products that take one
              scale over all rows must be caught. There the greedy output is `exact`, and a tie is none
distribution  sampled tokens follow the target's distribution; the same test on a verifier that is wrong on
              purpose must be caught, else nothing was tested (it ends early once it is, a thousandfold below
              the level)
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

import torch

from egag.length_rule import FixedGamma
from sampling.drafter import Drafter, proposal_of
from sampling.forward.models.lean import LeanModel
from sampling.forward.noise_floor import noise_floor
from sampling.forward.runner import WholeRunner
from sampling.measure.comparison import Comparison
from sampling.measure.divergence import judge
from sampling.methods.choices import make_processor
from sampling.methods.method import Method
from sampling.methods.settings import Settings
from sampling.methods.tables import AR, DRAFTERS, METHODS
from sampling.methods.verifiers import make_verifier
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from sampling.proof.distribution import PROCESSOR, DistributionTest, smallest, tests_per_method
from sampling.proof.rows import compare_rows, faulty
from sampling.start import begin
from sampling.verify.lossy import UnadjustedVerifier
from utils.errors import UserError, one_of
from utils.events import FORCED, Round
from utils.parameter import ChosenPart

FALSE_ALARM = 1e-3
PROMPTS = (
    "Repeat this sentence three times: the quick brown fox jumps over the lazy dog.",
    "List the days of the week, then list them again.",
    "Why is the sky blue?",
)
_GREEDY = ChosenPart("greedy", (1.0,))
_TOKENS = 40
_DRAWS = 500
_MOST = 4
_MARGIN = 0.1
_REDRAFTED_ROUNDS = 8

Grade = Literal["PASS", "FAIL", "WEAK"]


@dataclass(frozen=True, slots=True)
class Check:
    """One check of one method. WEAK: nothing wrong was seen, and nothing wrong could have been."""

    name: str
    verdict: Grade
    numbers: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class MethodReport:
    """All checks of a method; its verdict is the worst of theirs. target_weights: the target's format."""

    method: str
    checks: tuple[Check, ...]
    target_weights: str = "full"

    @property
    def verdict(self) -> Grade:
        verdicts = {check.verdict for check in self.checks}
        return "FAIL" if "FAIL" in verdicts else "WEAK" if "WEAK" in verdicts else "PASS"


def testable(pair: Pair) -> tuple[str, ...]:
    """The methods that the checks apply to: lossless ones on the target, which this pair can run without a grammar."""
    engine, values = PairEngine(pair), {**Settings(), "processor": PROCESSOR}
    return tuple(
        name
        for name, method in METHODS.items()
        if name != AR
        and method.other is None
        and method.drafter != FORCED
        and pair.lacks(method, values) is None
        and engine.lossless(name, values)
    )


class Selftest:
    """The checks for a pair and some methods (default: all `testable` ones); `report` runs them for one.

    `level` is that of a single distribution test: `FALSE_ALARM` over the number of tests of the whole run
    (Bonferroni), so that a run in which nothing is wrong sees a distribution FAIL with at most that probability.
    draws: for a distribution test; 0 = none, where another format of the same target has been tested: it runs on rows
    that are computed once, so that rounding plays no part in it. sampled: the methods whose distribution is tested;
    None: all.
    Raises `UserError` for a method that the checks do not apply to.
    """

    def __init__(
        self,
        pair: Pair,
        methods: Sequence[str] | None = None,
        draws: int = _DRAWS,
        sampled: Sequence[str] | None = None,
    ) -> None:
        allowed = testable(pair)
        self.pair, self.methods = pair, tuple(methods or allowed)
        for name in self.methods:
            if METHODS[name].name not in allowed:
                raise UserError(f"{name} cannot be checked against plain autoregression; expected {one_of(allowed)}")
        self.values = {**Settings(), "processor": _GREEDY, "length": _TOKENS}
        self.sampled = () if not draws else self.methods if sampled is None else tuple(sampled)
        self.level = FALSE_ALARM / (max(1, len(self.sampled)) * tests_per_method())
        self._distribution_test, self._draws = DistributionTest(pair, self.values) if self.sampled else None, draws
        self._comparisons = self._references()

    def report(self, name: str) -> MethodReport:
        """All checks of one method."""
        method = METHODS[name]
        rounds = [[event for event, _ in c.run(name) if isinstance(event, Round)] for c in self._comparisons]
        checks = [self._greedy(name)]
        if method.drafter == "model" and self.pair.drafter is not None and self._redraws(method, self.pair.drafter):
            checks.append(self._redraft(method, self.pair.drafter, rounds))
        if self._rows is not None:
            checks.append(self._rows)
        if self._distribution_test is not None and name in self.sampled:
            checks.append(self._distribution(method, self._distribution_test))
        return MethodReport(name, tuple(checks), self.pair.target_info.stored)

    def _redraws(self, method: Method, drafter: WholeRunner) -> bool:
        """Whether drafts can be compared.

        Of another vocabulary in float32 alone, as nobody can tell a tie there, and where the length is fixed: text that
        a rule ended elsewhere is cut into other tokens.
        """
        return self.pair.crossing is None or (drafter.model.dtype == torch.float32 and not method.adapts)

    @cached_property
    def _batch_invariant(self) -> LeanModel | None:
        model = self.pair.target.model
        return model if isinstance(model, LeanModel) and model.batch_invariant else None

    @cached_property
    def _rows(self) -> Check | None:
        if self._batch_invariant is None:
            return None
        texts = [comparison.prompt for comparison in self._comparisons]
        rows_same, control = (
            compare_rows(self._batch_invariant, texts),
            compare_rows(faulty(self._batch_invariant), texts),
        )
        verdict: Grade = "FAIL" if rows_same.different else "PASS" if control.different else "WEAK"
        numbers = {
            "compared": rows_same.compared,
            "different": rows_same.different,
            "control_different": control.different,
            "rows_alike": rows_same.alike,
        }
        return Check("rows", verdict, numbers)

    def _references(self) -> list[Comparison]:
        engine = PairEngine(self.pair)
        prompts = [self.pair.encode([text], chat=True) for text in PROMPTS]
        comparisons = [Comparison(engine, self.values, prompt) for prompt in prompts]
        for comparison in comparisons:
            for _ in comparison.run(AR):
                pass
        return comparisons

    def _greedy(self, name: str) -> Check:
        verdicts: Counter[str] = Counter(d.verdict for c in self._comparisons if (d := c.divergence(name)) is not None)
        check = _judged("greedy", verdicts, sum(c.metrics[name].drafted for c in self._comparisons))
        return replace(check, verdict="FAIL") if self._batch_invariant and verdicts["tie"] else check

    def _redraft(self, method: Method, runner: WholeRunner, rounds: Sequence[Sequence[Round]]) -> Check:
        """Later rounds only: the first has nothing to roll back."""
        fresh = replace(self.pair, drafter=runner.another())
        drafter: Drafter = DRAFTERS[method.drafter].build(fresh, self.values)
        verdicts: Counter[str] = Counter()
        for comparison, rounds_there in zip(self._comparisons, rounds, strict=True):
            seq = begin(
                self.pair.target, FixedGamma(0), make_processor(_GREEDY), comparison.prompt, _TOKENS, (), seed=0
            )
            start, first = seq.tokens, seq.position
            output = comparison.metrics[method.name].output_ids
            for round in [round for round in rounds_there[1:] if round.drafts][:_REDRAFTED_ROUNDS]:
                said = output[: round.position - first]
                seq.tokens = [*start, *said]
                drafter.begin(seq)
                if self.pair.crossing is not None:
                    again = proposal_of(
                        drafter.propose(seq, FixedGamma(round.gamma), _TOKENS - len(said) - 1)
                    ).tokens.tolist()
                    verdicts["exact" if again == [*round.drafts] else "BUG"] += 1
                    continue
                again = proposal_of(
                    drafter.propose(seq, FixedGamma(len(round.drafts)), len(round.drafts))
                ).tokens.tolist()
                ask = partial(noise_floor, runner, comparison.prompt)
                verdicts[judge(ask, [*said, *again], [*said, *round.drafts]).verdict] += 1
        return _judged("redraft", verdicts, verdicts.total())

    def _distribution(self, method: Method, test: DistributionTest) -> Check:
        """As many draws as it takes to notice a wrong verifier, at most `_MOST` times those asked for."""
        draws = self._draws
        control = smallest(test.p_values(method, UnadjustedVerifier(), draws, seed=1, until=self.level * _MARGIN))
        if control >= self.level:
            draws *= _MOST
            control = smallest(test.p_values(method, UnadjustedVerifier(), draws, seed=1, until=self.level * _MARGIN))
        p_value = smallest(test.p_values(method, make_verifier(method, self.values), draws, seed=0))
        verdict: Grade = "FAIL" if p_value < self.level else "PASS" if control < self.level else "WEAK"
        numbers = {"p_value": p_value, "control_p_value": control, "level": self.level, "draws": draws}
        return Check("distribution", verdict, {**numbers, "temperature": test.temperature})


def _judged(name: str, verdicts: Counter[str], seen: int) -> Check:
    """FAIL with any BUG, WEAK when nothing was drafted."""
    numbers = {"drafted": seen, "exact": verdicts["exact"], "tie": verdicts["tie"], "BUG": verdicts["BUG"]}
    return Check(name, "FAIL" if verdicts["BUG"] else "PASS" if seen else "WEAK", numbers)

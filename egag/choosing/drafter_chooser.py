"""Choice among several drafters: the one with the most expected tokens per second."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from egag.choosing.goodput import Goodput
from egag.cost_model import ASSUMED_COSTS, CostModel
from egag.estimates.acceptance import AcceptanceEstimator
from egag.estimates.estimator_state import EstimatorState
from egag.estimates.online_cost_model import OnlineCostModel
from egag.expected_round import ExpectedRound, ExplorationBudget
from egag.length_rule import LengthRule
from egag.survival import SurvivalGamma
from utils.events import Round


@dataclass(slots=True)
class ChooserState:
    """The estimates for several drafters, by name; they share the correction factor of the target's cost.

    live: the cost model of rounds without drafts.
    """

    live: OnlineCostModel
    budget: ExplorationBudget
    drafters: dict[str, EstimatorState] = field(default_factory=dict)
    rounds: int = 0

    @classmethod
    def fresh(cls, cost_model: CostModel, explore: float) -> "ChooserState":
        """A state that holds measured costs only."""
        return cls(OnlineCostModel.of(cost_model), ExplorationBudget(explore))

    def drafter(self, name: str) -> EstimatorState:
        """The state of one drafter; exploration is left to the chooser."""
        if name not in self.drafters:
            live = OnlineCostModel.of(ASSUMED_COSTS, self.live.target)
            self.drafters[name] = EstimatorState(live, AcceptanceEstimator(), ExplorationBudget(0.0))
        return self.drafters[name]

    def chosen(self, expected: Mapping[str, ExpectedRound]) -> str:
        """The drafter with the best expected tokens per second, or one to explore.

        The drafter to explore has the most unused rounds per second of expected loss. Rounds between trials thus grow
        with the loss.
        """
        best = max(expected, key=lambda name: expected[name].rate)
        rate = expected[best].rate
        others = [name for name in expected if name != best and name in self.drafters]
        if others:
            other = max(others, key=lambda name: self.drafters[name].unused / (expected[name].loss(rate) + 1e-9))
            if self.drafters[other].unused and self.budget.tries(expected[other], rate):
                return other
        return best

    def passed(self, round: Round) -> None:
        """Count a finished round, whoever drafted."""
        self.budget.passed(self.live.caused_by(round))
        self.rounds += 1
        for state in self.drafters.values():
            state.unused += 1

    def forget_times(self) -> None:
        """Use the cost models unchanged, and drop the corrections from past rounds."""
        self.live = OnlineCostModel.of(self.live.cost_model)
        for state in self.drafters.values():
            state.forget_times()


class DrafterChooser(LengthRule):
    """The rule for several drafters: each has its own survival rule (`rule_for`).

    The drafter with the best expected tokens per second drafts, or one that was unused for long, within the exploration
    budget. The drafters that a round's `source` names learn from it. watch: wraps the rules that drafters receive, to
    record their calls.
    """

    watch: Callable[[LengthRule], LengthRule] | None = None

    def __init__(
        self,
        survival_gamma_max: int = 16,
        survival_explore: float = 0.01,
        survival_live: bool = True,
        survival_remember: bool = True,
    ) -> None:
        self.gamma, self.explore = survival_gamma_max, survival_explore
        self.live, self.remember = survival_live, survival_remember
        self.state = ChooserState.fresh(self.cost_model, self.explore)
        self._goodput: Goodput | None = None
        self._texts, self._drafted = 1, True
        self.begin()

    def use_cost_model(self, cost_model: CostModel) -> None:
        super().use_cost_model(cost_model)
        self.state.live = self.state.live.on(cost_model, bool(self.state.rounds))

    def begin(self) -> None:
        if not self.remember:
            self.state = ChooserState.fresh(self.cost_model, self.explore)
        self._rules: dict[str, SurvivalGamma] = {}
        for state in self.state.drafters.values():
            state.sure.begin()

    def rule_for(self, name: str) -> SurvivalGamma:
        """The rule of one of the drafters."""
        if name not in self._rules:
            rule = self._rules[name] = SurvivalGamma(self.gamma, self.explore, self.live)
            rule.learnt = self.state.drafter(name)
        return self._rules[name]

    def handed(self, name: str) -> LengthRule:
        """The rule that one of the drafters receives, wrapped by `watch` if set."""
        rule = self.rule_for(name)
        return rule if self.watch is None else self.watch(rule)

    def may_draft(self, goodput: Goodput | None, texts: int = 1) -> bool:
        """Whether to draft in this round, as all texts do that share its forward and a `Goodput`."""
        self._goodput, self._texts = goodput if self.live else None, texts
        self._drafted = self._goodput is None or self._goodput.drafting
        return self._drafted

    def without_drafts(self) -> ExpectedRound:
        """The expected round without drafts."""
        return self.state.live.without_drafts()

    def choose(self, expected: Mapping[str, ExpectedRound]) -> str:
        """The name of the drafter to use, from the expected round of each."""
        return self.state.chosen(expected)

    def update(self, round: Round) -> None:
        names = round.source.split("+")
        if self._goodput is not None:
            gain, plain_s = ExpectedRound.of(round), self.cost_model.seconds(0)
            self._goodput.learn(self._drafted, gain.tokens, plain_s, gain.seconds, self._texts)
        if self.live:
            first = self._rules.get(names[0])
            (self.state.live if first is None else first.learnt.live).see_target(round)
        else:
            round = self.state.live.priced(round)
        for name in filter(self._rules.__contains__, names):
            self._rules[name].learn(round, timed=name == names[0])
        self.state.passed(round)

    def adopt(self, earlier: LengthRule) -> None:
        if isinstance(earlier, DrafterChooser) and self.remember and earlier.state.rounds:
            self.state = earlier.state
            self.state.budget.share = self.explore
            if self.cost_model.measured:
                self.use_cost_model(self.cost_model)
            if not self.live:
                self.state.forget_times()

    def memory(self) -> str:
        drafters = self.state.drafters.items() if self.remember else ()
        return ", ".join(f"{name} {state.described()}" for name, state in drafters if state.rounds)

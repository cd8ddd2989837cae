"""Rules that set the next round's length from verdicts and costs; the pages work the same examples."""

from collections.abc import Callable
from typing import Any

import pytest

from egag.bandits.ucb_rules import UcbRules
from egag.cost_model import CostModel
from egag.cost_ratio import CostRatioGamma
from egag.feedback.anpd import AnpdGamma
from egag.feedback.cascade import CascadeGamma
from egag.feedback.gammatune import GammaTune
from egag.feedback.heuristic import HeuristicGamma
from egag.length_rule import FixedGamma, LengthRule
from egag.stopping.specdec_pp import SpecDecPpGamma
from egag.stopping.svip import SvipGamma
from sampling.drafters import growth
from sampling.drafters.draft_tree import grow_tree
from sampling.methods.rules import CONTROLLERS, UCB_ARMS
from sampling.methods.settings import Settings
from sampling.methods.tables import METHODS
from sampling.verify.rejection import RejectionVerifier
from tests.conformance import suite
from tests.conformance.matrix import build_drafter
from tests.conformance.suite import Case
from tests.conformance.toy import toy_pair
from tests.refusals import refused
from tests.rules import Told, drafts, judged, lengths
from utils.errors import UnknownName
from utils.events import Round
from utils.logits_processor import GreedyProcessor

FLAT = CostModel(((1, 1.0),), first_s=0.2, step_s=0.2)  # rows cost nothing, a draft a fifth of the target
DEAR = CostModel(((1, 1.0),), first_s=0.9, step_s=0.9)


def test_gammatune_steps_up_or_takes_the_average() -> None:
    """3 of 3 -> 5; 1 of 5 -> 0.7 * 3 + 0.3 * 1 = 2.4, so 3; 0 of 3 -> 1.68, so 2."""
    assert lengths(GammaTune(), [(3, 3), (5, 1), (0, 0), (3, 0)]) == [5, 3, 3, 2]
    assert lengths(GammaTune(gammatune_gamma=2), [(2, 1)]) == [2]
    assert lengths(GammaTune(gammatune_eta=1.0), [(3, 1)]) == [1]
    assert lengths(GammaTune(gammatune_delta=1), [(3, 3)]) == [4]
    assert lengths(GammaTune(gammatune_gamma_max=4), [(3, 3)]) == [4]
    assert lengths(GammaTune(gammatune_eta=1.0), [(3, 0)]) == [1]


def rate(emitted: int, gamma: int, per_second: float) -> Round:
    """A round that emitted so many tokens at so many a second."""
    drafts = tuple(range(gamma))
    path = tuple(range(emitted - 1))
    return Round(0, 0, gamma, drafts, None, (1.0,) * gamma, (1.0,) * gamma, path, 1, None, 9,
                 verify_s=emitted / per_second)  # fmt: skip


def played(rule: CascadeGamma, speed: Callable[[int], float], rounds: int) -> list[int]:
    """The lengths of rounds whose tokens per second are a function of the length."""
    gammas = []
    for _ in range(rounds):
        gammas.append(rule.gamma)
        rule.update(rate(1 + rule.gamma // 2, rule.gamma, speed(rule.gamma)))
    return gammas


def test_cascade_holds_the_best_length() -> None:
    """The example of its page, then a drafter that never pays: drafting rests, each time for twice as long."""
    speeds = {0: 20.0, 2: 25.0, 3: 26.0, 4: 24.0}
    rule = CascadeGamma(cascade_test=2, cascade_hold=5)
    assert played(rule, speeds.__getitem__, 15) == [0, 0, 3, 3, 4, 4, 2, 2, 3, 3, 3, 3, 3, 0, 0]
    rising = CascadeGamma(cascade_test=1, cascade_hold=3, cascade_gamma_max=5)
    assert played(rising, lambda gamma: 20.0 + gamma, 8) == [0, 3, 4, 5, 5, 5, 5, 0]
    dear = CascadeGamma(cascade_test=1, cascade_hold=3, cascade_gamma_max=3)
    gammas = played(dear, lambda gamma: 20.0 - gamma, 200)
    rests = [len(rest) for rest in "".join("x" if gamma else "." for gamma in gammas).split("x") if rest]
    assert rests[:5] == [1, 4, 7, 13, 25] and max(rests) <= 1 + 3 * 8


def test_anpd_goes_one_up_or_halfway_down() -> None:
    """4 of 4 -> 5; 1 of 5 -> (5 + 1 + 1) // 2 = 3; 0 of 3 -> 2."""
    assert lengths(AnpdGamma(), [(4, 4), (5, 1), (0, 0), (3, 0)]) == [5, 3, 3, 2]
    assert lengths(AnpdGamma(anpd_gamma=2), [(2, 2)]) == [3]
    assert lengths(AnpdGamma(anpd_gamma_max=4), [(4, 4)]) == [4]
    assert lengths(AnpdGamma(anpd_gamma=1), [(1, 0)] * 3) == [1, 1, 1]


@pytest.mark.parametrize("rule", [GammaTune(), AnpdGamma(), HeuristicGamma()])
def test_a_proposal_that_was_cut_short_and_a_tree_can_be_accepted_whole(rule: LengthRule) -> None:
    """What counts is what was proposed: two drafts of gamma, and the three levels of a tree of five."""
    first = rule.gamma
    rule.update(judged(2, 2, first))
    second = rule.gamma
    assert second > first
    rule.update(judged(5, 3, second, parents=(-1, 0, 1, -1, 0)))
    assert rule.gamma > second
    rule.begin()
    assert rule.gamma == first


def cost_ratio(price: CostModel = FLAT, **values: Any) -> CostRatioGamma:
    rule = CostRatioGamma(**values)
    rule.use_cost_model(price)
    rule.begin()
    return rule


def test_the_cost_ratio_weighs_tokens_against_costs() -> None:
    """a 0.7, v 1, c 0.2: 1, 1.7 / 1.2 = 1.417, 2.19 / 1.4 = 1.564, 2.533 / 1.6 = 1.583, 2.773 / 1.8 = 1.541."""
    rule = cost_ratio()
    tokens = [1.0, 1.7, 2.19, 2.533, 2.7731]
    gains = [tokens[gamma] / rule._cost(gamma, 0.7) for gamma in range(5)]
    assert gains == pytest.approx([1, 1.417, 1.564, 1.583, 1.541], abs=1e-3)
    assert rule.gamma == 3
    assert cost_ratio(cost_ratio_gamma_max=2).gamma == 2
    assert cost_ratio(DEAR).gamma == 0


def test_verifying_more_rows_and_a_dear_first_draft_count() -> None:
    """Rows that cost a tenth: 1.7 / 1.3, 2.19 / 1.6 = 1.369, 2.533 / 1.9 = 1.333. A first draft at 2: none pays."""
    assert cost_ratio(CostModel(((1, 1.0), (2, 1.1)), 0.2, 0.2)).gamma == 2
    assert cost_ratio(CostModel(((1, 1.0), (2, 1.1)), 2.0, 0.2)).gamma == 0


def test_acceptance_is_of_what_was_judged_and_fades() -> None:
    """From 2.8 of 4: one accepted and one rejected of five drafts is (0.95 * 2.8 + 1) / (0.95 * 4 + 2) = 0.631 -> 2."""
    rule = cost_ratio()
    assert lengths(rule, [(5, 1)]) == [2]
    assert rule._accepted / rule._judged == pytest.approx(0.631, abs=1e-3)
    assert lengths(cost_ratio(), [(9, 9)] * 5)[-1] > 5
    assert lengths(cost_ratio(), [(0, 0)]) == [3]
    forgets, keeps = cost_ratio(cost_ratio_decay=0.5), cost_ratio(cost_ratio_decay=1.0)
    verdicts = [(3, 3)] * 6 + [(3, 0)] * 2
    assert lengths(forgets, verdicts)[-1] < lengths(keeps, verdicts)[-1]


def rounds_until_drafts(rule: CostRatioGamma) -> int:
    """Rounds without drafts before the rule asks for one again."""
    for waited in range(5000):
        if rule.gamma:
            return waited
        rule.update(judged(0, 0, 0))
    return -1


def test_where_drafts_do_not_pay_one_is_tried_now_and_then() -> None:
    """A draft that costs 0.9 of a forward and is rejected: every 90 rounds it is one hundredth of the time."""
    rule = cost_ratio(DEAR)
    assert rounds_until_drafts(rule) == 90 and rule.gamma == 1
    rule.update(judged(1, 0, 1))
    assert rounds_until_drafts(rule) == 90
    assert rounds_until_drafts(cost_ratio(DEAR, cost_ratio_probe=0.1)) == 9
    assert rounds_until_drafts(cost_ratio(DEAR, cost_ratio_probe=0.0)) == -1


def test_a_drafter_that_has_become_good_is_found_again() -> None:
    """At c 0.5 a draft must be right in more than half of the cases: after rejections, probes that are accepted."""
    rule = cost_ratio(CostModel(((1, 1.0),), 0.5, 0.5))
    for _ in range(30):
        rule.update(judged(1, 0, 1))
    probes = 0
    while rule.gamma < 2 and probes < 100:
        probes += rounds_until_drafts(rule) > 0
        rule.update(judged(rule.gamma, rule.gamma, rule.gamma))
    assert rule.gamma >= 2 and 1 < probes < 30


def bandit(exploration: float = 0.0, remember: bool = True) -> UcbRules:
    return UcbRules({"fixed": FixedGamma(2), "svip": SvipGamma()}, exploration, remember)


def pay(rule: UcbRules, rounds: int) -> list[str]:
    """Who decides: rounds of 3 tokens in 0.15 s (20 a second) for fixed, of 4 in 0.16 s (25) for svip."""
    seen = []
    for _ in range(rounds):
        seen.append(rule.playing)
        drafted, seconds = (2, 0.15) if rule.playing == "fixed" else (3, 0.16)
        rule.update(judged(drafted, drafted, rule.gamma, seconds))
    return seen


def test_the_rule_that_brings_most_decides() -> None:
    """Each once, then the better one: 20 against 25 tokens a second."""
    rule = bandit()
    assert rule.gamma == 2
    assert pay(rule, 5) == ["fixed", "svip", "svip", "svip", "svip"]
    assert rule.gamma == 40
    assert drafts(rule, [Told(0.7)] * 5) == 1
    assert pay(bandit(exploration=1.0), 12).count("fixed") > 2


def test_a_rule_hears_only_the_rounds_that_it_decided() -> None:
    heard: list[int] = []

    class Listening(FixedGamma):
        def update(self, round: Any) -> None:
            heard.append(round.gamma)

    rule = UcbRules({"a": Listening(1), "b": Listening(2)}, 0.0)
    for _ in range(4):
        rule.update(judged(rule.gamma, 0, rule.gamma, 0.1 / rule.gamma))
    assert heard == [1, 2, 2, 2]


@pytest.mark.parametrize("remember", [True, False])
def test_the_bandit_of_rules_goes_on_with_the_next_prompt(remember: bool) -> None:
    earlier, later = bandit(remember=remember), bandit(remember=remember)
    pay(earlier, 4)
    assert earlier.memory() == ("fixed: 20.0 tokens/s in 1, svip: 25.0 tokens/s in 3" if remember else "")
    later.adopt(earlier)
    later.begin()
    assert pay(later, 2) == (["svip", "svip"] if remember else ["fixed", "svip"])
    other = UcbRules({"fixed": FixedGamma(2)}, 0.0)
    other.adopt(earlier)
    assert other.memory() == ""


def test_prices_and_memories_reach_the_rules_inside() -> None:
    inside = CostRatioGamma()
    UcbRules({"cost_ratio": inside}).use_cost_model(DEAR)
    assert inside.cost_model is DEAR and inside.gamma == 0
    taught, fresh = (UcbRules({"specdec_pp": SpecDecPpGamma()}) for _ in range(2))
    drafts(taught, [Told(drawn=0.95)] * 3)
    taught.update(judged(3, 1, seconds=0.1))
    fresh.adopt(taught)
    assert "2 drafts" in fresh.memory()


def test_the_arms_are_named_and_their_parameters_matter() -> None:
    settings, mtp = Settings(), METHODS["mtp"]
    settings.assign_all([("draft_rule", "ucb_rules"), ("ucb_arms", "fixed  svip"), ("gamma", "3")])
    names = [parameter.name for parameter in mtp.relevant(settings)]
    assert {"ucb_arms", "ucb_exploration", "ucb_remember", "gamma", "svip_threshold"} < set(names)
    assert not {"egag_ema", "ucb_gamma_max", "num_speculative_tokens"} & set(names)
    built = mtp.rule.build(None, settings)
    assert isinstance(built, UcbRules) and list(built.rules) == ["fixed", "svip"] and built.gamma == 3
    assert list(CONTROLLERS["ucb_rules"].build(None, {}).rules) == UCB_ARMS.default.split()
    assert [memory.parameter for memory in mtp.memories(settings)] == ["ucb_remember"]
    for wrong in ("svip svip", ""):
        with refused("ucb_arms", repr(wrong), *UCB_ARMS.default.split()):
            settings.assign("ucb_arms", wrong)
    for wrong, unknown, near in (("fixed svp", "svp", "svip"), ("ucb_rules", "ucb_rules", None)):
        with refused("ucb_arms", repr(unknown), "svip", error=UnknownName) as caught:
            settings.assign("ucb_arms", wrong)
        assert caught.value.near == near


def test_a_tree_is_grown_no_deeper_than_it_has_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that stop at doubt have long limits, and each level of a tree costs a forward of the head."""
    depths = []

    def watched(shape: Any, depth: int, *rest: Any) -> Any:
        depths.append(depth)
        return grow_tree(shape, depth, *rest)

    monkeypatch.setattr(growth, "grow_tree", watched)
    one = Case(lambda pair: build_drafter("eagle dynamic tree", pair), SvipGamma, RejectionVerifier)
    suite.run(one, toy_pair(), GreedyProcessor(), 20)
    assert max(depths) == 6

"""Rules that stop while they draft, on beliefs that are written down; the pages work the same examples."""

from collections.abc import Callable
from typing import Any

import pytest

from egag.length_rule import LengthRule
from egag.stopping.adaedl import AdaEdlGamma
from egag.stopping.calibration import Calibration
from egag.stopping.draft_verify import DraftVerifyGamma
from egag.stopping.saturation import SaturationGamma
from egag.stopping.specdec_pp import SpecDecPpGamma
from egag.stopping.svip import SvipGamma
from egag.stopping.threshold import AdaptiveThreshold
from sampling.methods.rules import CONTROLLERS
from tests.rules import Told, drafts, judged

LIMITS = [
    (SvipGamma, "svip_gamma_max", 40),
    (AdaEdlGamma, "adaedl_gamma_max", 8),
    (SaturationGamma, "saturation_gamma_max", 8),
    (DraftVerifyGamma, "draft_verify_gamma_max", 8),
    (SpecDecPpGamma, "specdec_gamma_max", 20),
]


@pytest.mark.parametrize(("rule", "limit", "most"), LIMITS)
def test_a_drafter_without_a_distribution_and_a_sure_one_draft_to_the_limit(
    rule: Callable[..., LengthRule], limit: str, most: int
) -> None:
    assert drafts(rule(), [None] * 50) == most == rule().gamma
    for distribution in (None, Told()):
        assert drafts(rule(**{limit: 3}), [distribution] * 50) == 3


def test_svip_keeps_the_spread_out_draft_and_stops() -> None:
    """sqrt(0.15 * 0.5) = 0.274 goes on, sqrt(0.15 * 0.7) = 0.324 stops."""
    spread = [Told(0.5), Told(0.7), Told(0.0)]
    assert drafts(SvipGamma(), spread) == 2
    assert drafts(SvipGamma(svip_threshold=0.25), spread) == 1
    assert drafts(SvipGamma(svip_threshold=0.35), spread) == 3


def test_saturation_stops_behind_the_draft_whose_path_is_improbable() -> None:
    """0.9, 0.54, 0.162: below 0.2 with the third; each round begins anew, and the drawn token is not read."""
    path = [Told(top=top, drawn=0.0) for top in (0.9, 0.6, 0.3, 0.8)]
    rule = SaturationGamma()
    assert [drafts(rule, path) for _ in range(2)] == [3, 3]
    assert drafts(SaturationGamma(saturation_threshold=0.6), path) == 2
    assert drafts(SaturationGamma(saturation_threshold=0.1), path) == 4


def test_saturation_ends_trees_and_copies_at_their_threshold() -> None:
    growth, truncation = SaturationGamma().tree_growth, SaturationGamma().truncation
    assert growth.start_tree(Told(top=0.1)), "the first layer is paid for"
    assert growth.expand_layer(1, [0.5, 0.3], [0.5, 0.3]) and growth.expand_layer(2, [], [0.21, 0.01])
    assert not growth.expand_layer(2, [], [0.19, 0.18]) and not growth.expand_layer(8, [], [0.9])
    assert truncation.truncate([0.9, 0.2, 0.19, 0.1]) == 3
    assert truncation.truncate([0.1, 0.05]) == 1 and truncation.truncate([]) == 0


def test_adaedl_stops_before_the_draft_it_doubts() -> None:
    """1 - sqrt(0.2 * 0.45) = 0.7 drafts, 1 - sqrt(0.2 * 0.8) = 0.6 does not; the first draft is always drawn."""
    assert drafts(AdaEdlGamma(), [Told(3.0), Told(0.449), Told(0.8), Told(0.0)]) == 2
    assert drafts(AdaEdlGamma(adaedl_threshold=0.5), [Told(), Told(0.8), Told()]) == 3
    assert drafts(AdaEdlGamma(adaedl_k=0.6), [Told(), Told(0.449)]) == 1


def test_the_threshold_follows_the_share_that_is_accepted() -> None:
    """Shares 0.5 and 1: r 0.25 and 0.625, both below 0.9, so that t rises by 0.001 each."""
    threshold = AdaptiveThreshold(0.7)
    seen = []
    for share in (0.5, 1.0):
        threshold.learn(share, hold=False)
        seen.append((threshold.rate, threshold.value))
    assert seen == [(0.25, pytest.approx(0.701)), (0.625, pytest.approx(0.702))]
    for _ in range(3):  # r 0.8125, 0.90625, 0.953
        threshold.learn(1.0, hold=False)
    assert threshold.value == pytest.approx(0.702 + 0.001 - 2 * 0.001)
    threshold.learn(1.0, hold=True)
    assert threshold.value == pytest.approx(0.701)


def test_adaedl_holds_its_threshold_after_full_acceptance() -> None:
    """r 0.5, 0.75, 0.875 raise t to 0.703; 0.9375 of a round accepted whole holds it, 0.9+ of another lowers it."""
    rule = AdaEdlGamma()
    for _ in range(3):
        rule.update(judged(4, 4))
    assert rule.threshold.value == pytest.approx(0.703)
    rule.update(judged(4, 4))
    assert rule.threshold.value == pytest.approx(0.703)
    rule.update(judged(20, 19))
    assert rule.threshold.value == pytest.approx(0.702)
    rule.update(judged(0, 0))
    assert rule.threshold.value == pytest.approx(0.702)
    rule.begin()
    assert rule.threshold.value == 0.7


def test_draft_and_verify_keeps_the_unsure_draft_and_stops() -> None:
    unsure = [Told(top=0.9), Told(top=0.7), Told(top=0.9)]
    assert drafts(DraftVerifyGamma(), unsure) == 2
    assert drafts(DraftVerifyGamma(draft_verify_threshold=0.5), unsure) == 3


def test_draft_and_verify_holds_its_threshold_where_it_drafted_to_the_limit() -> None:
    """Four whole rounds of 8: r 0.5, 0.75, 0.875, 0.9375, so t is held at 0.803; a whole one of 4 lowers it."""
    rule = DraftVerifyGamma()
    for _ in range(4):
        rule.update(judged(8, 8))
    assert rule.threshold.value == pytest.approx(0.803)
    rule.update(judged(4, 4))
    assert rule.threshold.value == pytest.approx(0.802)
    rule.update(judged(0, 0))
    assert rule.threshold.value == pytest.approx(0.802)


def test_specdec_stops_where_a_rejection_is_likely() -> None:
    """0.85 * 0.75 * 0.55: 0.15, 0.36 and 0.65 that one is rejected."""
    sure = [Told(drawn=0.85), Told(drawn=0.75), Told(drawn=0.55), Told(drawn=0.95)]
    assert drafts(SpecDecPpGamma(), sure) == 3
    assert drafts(SpecDecPpGamma(specdec_threshold=0.3), sure) == 2
    assert drafts(SpecDecPpGamma(specdec_threshold=0.7), sure) == 4


def test_the_calibration_pools_what_would_fall() -> None:
    """Four rejections at 0.95: 3.8 / 8 = 0.475; pooled with 0.85, 0.75 and 0.65 it is 12.8 / 20 = 0.64."""
    calibration = Calibration()
    assert [calibration.acceptance(q) for q in (0.95, 1.0, 0.1, 0.0)] == pytest.approx([0.95, 0.95, 0.15, 0.05])
    for _ in range(4):
        calibration.learn(0.95, False)
    assert [calibration.acceptance(q) for q in (0.55, 0.65, 0.75, 0.85, 0.95)] == pytest.approx([0.55, *[0.64] * 4])
    for _ in range(8):
        calibration.learn(0.35, True)
    assert calibration.acceptance(0.35) == calibration.acceptance(0.45) > 0.6
    rates = [calibration.acceptance(place / 100) for place in range(100)]
    assert rates == sorted(rates) and calibration.judged == 12


def played(rule: SpecDecPpGamma, rounds: int = 40) -> SpecDecPpGamma:
    """The rule after rounds of three sure drafts, of which the first was accepted and the last not judged."""
    for _ in range(rounds):
        drafts(rule, [Told(drawn=0.95)] * 3)
        rule.update(judged(3, 1))
    return rule


def test_specdec_learns_from_the_drafts_that_were_judged() -> None:
    """Accepted and rejected drafts of 0.95: every other, so that after two the chance of a rejection is over a half."""
    rule = played(SpecDecPpGamma())
    assert rule._calibration.judged == 80
    assert drafts(rule, [Told(drawn=0.95)] * 9) == 2
    assert drafts(SpecDecPpGamma(), [Told(drawn=0.95)] * 20) == 14
    rule.update(judged(0, 0))
    assert rule._calibration.judged == 80


@pytest.mark.parametrize("remember", [True, False])
def test_specdec_goes_on_with_the_next_prompt(remember: bool) -> None:
    earlier, later = played(SpecDecPpGamma(specdec_remember=remember)), SpecDecPpGamma(specdec_remember=remember)
    later.adopt(earlier)
    later.begin()
    assert drafts(later, [Told(drawn=0.95)] * 20) == (2 if remember else 14)
    assert ("80 drafts" in earlier.memory()) == remember


def test_without_beliefs_specdec_learns_nothing() -> None:
    rule: Any = SpecDecPpGamma()
    drafts(rule, [None] * 5)
    rule.update(judged(5, 2))
    assert rule._calibration.judged == 0


def test_specdec_ends_at_its_most_drafts() -> None:
    rule = SpecDecPpGamma(0.5, 5)
    rule.begin()
    assert rule.before(0, None) and rule.after(4, None, None)
    assert not rule.after(5, None, None) and not rule.before(5, None)


@pytest.mark.parametrize("name", [name for name, part in CONTROLLERS.items() if part.limits and name != "survival"])
def test_behind_the_last_draft_none_is_asked_for(name: str) -> None:
    """However sure the drafter is: a drafter that was told to go on would pay for a forward that nobody reads."""
    rule = CONTROLLERS[name].build(None, {"specdec_threshold": 1.0} if name == "specdec_pp" else {})
    sure = Told(entropy=0.0, top=1.0, drawn=1.0)
    rule.begin()
    drawn = 1
    while rule.before(drawn - 1, sure) and rule.after(drawn, sure, 0):
        drawn += 1
    assert drawn == rule.gamma and not rule.before(drawn, sure)

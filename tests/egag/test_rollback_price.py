"""What taking tokens back costs: expected of a chain, counted in rounds, weighed by every rule that weighs costs."""

import random
from dataclasses import replace
from itertools import accumulate
from operator import mul

import pytest

from egag.choosing.drafter_chooser import DrafterChooser
from egag.cost_model import CostModel
from egag.cost_ratio import CostRatioGamma
from egag.estimates.online_cost_model import OnlineCostModel, TargetCorrection
from egag.expected_round import ExpectedRound, best_length
from egag.rollback_price import FREE, RollbackPrice, TakenBack
from egag.survival import SurvivalGamma
from tests.egag.test_survival import Told, judged

FREELY = CostModel(((1, 20.0), (9, 20.8)), first_s=1.0, step_s=0.5)
DEARLY = replace(FREELY, rollback=RollbackPrice(12.0, 1.0))


def test_what_a_chain_takes_back_by_hand() -> None:
    taken = TakenBack.of_chain((0.8, 0.5))
    assert (taken.rejections, taken.reread) == pytest.approx((0.5, 0.2 * 1 + 0.3 * 2))
    assert RollbackPrice(2.0, 0.5).seconds(taken) == pytest.approx(1.4)
    assert TakenBack.of_chain(()) == TakenBack() and TakenBack.of_chain((1.0, 1.0)) == TakenBack()
    half = TakenBack.of_chain((0.4, 0.25), drafting=0.5)
    assert (half.rejections, half.reread) == pytest.approx((0.25, 0.4))


def test_what_is_expected_is_the_mean_of_what_rounds_take_back() -> None:
    chance, drawn = random.Random(3), [TakenBack(), TakenBack()]
    for _ in range(20_000):
        accepted = next((m for m, share in enumerate((0.9, 0.6, 0.7)) if chance.random() >= share), 3)
        one = TakenBack.of_round(judged(3, accepted))
        drawn.append(one)
    taken = TakenBack.of_chain(tuple(accumulate((0.9, 0.6, 0.7), mul)))
    assert taken.rejections == pytest.approx(sum(one.rejections for one in drawn) / 20_000, abs=0.02)
    assert taken.reread == pytest.approx(sum(one.reread for one in drawn) / 20_000, abs=0.03)


def test_a_price_is_none_where_a_crop_is_free() -> None:
    assert not FREE and RollbackPrice(0.1) and RollbackPrice(0.0, 0.1)
    assert FREE.seconds(TakenBack(1.0, 9.0)) == 0.0 and OnlineCostModel.of(FREELY).rolls_back is None


def test_the_best_length_is_shorter_where_a_rejection_costs() -> None:
    survival = (0.9, 0.5, 0.25)
    assert best_length(survival, FREELY.seconds)[0] == 3
    count, expected = best_length(survival, DEARLY.seconds, rollback_s=DEARLY.rollback_s)
    assert count == 1 and expected.seconds == pytest.approx(20.1 + 1.0 + 0.1 * 13.0)


def test_the_cost_ratio_counts_what_it_takes_back() -> None:
    """a 0.7: b(1) = .3 (12 + 1) / 20 = .195 forwards, b(2) = (.51 x 12 + (1 + .7 - .98)) / 20 = .342."""
    rule = CostRatioGamma()
    rule.use_cost_model(FREELY)
    free = rule._cost(1, 0.7), rule._cost(2, 0.7)
    assert rule.gamma > 4
    rule.use_cost_model(DEARLY)
    assert rule._cost(1, 0.7) - free[0] == pytest.approx(0.195)
    assert rule._cost(2, 0.7) - free[1] == pytest.approx(0.342)
    dear = CostRatioGamma()
    dear.use_cost_model(replace(FREELY, rollback=RollbackPrice(50.0, 2.0)))
    assert dear.gamma == 0 and dear._apart() > rule._apart()


@pytest.mark.parametrize(("price", "drafts"), [(FREELY, 3), (replace(DEARLY, rollback=RollbackPrice(60.0, 1.0)), 0)])
def test_survival_stops_where_a_rejection_eats_the_gain(price: CostModel, drafts: int) -> None:
    rule = SurvivalGamma(survival_live=False)
    rule.use_cost_model(price)
    rule.begin()
    chances = (0.35, 0.3, 0.25)
    rule.learnt.copies = True
    assert rule.evaluate(chances).count == drafts
    drawn = 0
    while drawn < 3 and rule.before(drawn, Told(chances[drawn], acceptance=0.5)):  # type: ignore[arg-type]
        drawn += 1
    assert (drawn > 0) == (drafts > 0)


def test_a_round_pays_for_the_one_before_and_is_not_blamed_for_it() -> None:
    """Plain rounds of 20 s behind a rejection take 33: the forward has not become slower."""
    live = OnlineCostModel.of(DEARLY)
    plain = judged(0, 0, 33.0, number=1, reread=1)
    for _ in range(50):
        live.see_target(plain)
    assert live.verify_s(0) == pytest.approx(20.0, rel=0.01)
    assert live.caused_by(plain) == ExpectedRound(1.0, pytest.approx(20.0, rel=0.02))
    rejected = live.caused_by(judged(2, 1, 20.2))
    assert rejected.seconds == pytest.approx(20.2 + 12.0 + 2.0, rel=0.02)


def test_a_price_that_is_too_low_is_learnt_from_the_rounds_that_pay() -> None:
    """Behind a rejection a plain round takes 46 s in place of 20: twice the price of 13, and no slower a target."""
    live = OnlineCostModel.of(DEARLY)
    for _ in range(100):
        live.see_target(judged(0, 0, 46.0, number=1, reread=1))
    assert live.rollback_s(TakenBack(1.0, 1.0)) == pytest.approx(26.0, rel=0.03)
    assert live.verify_s(0) == 20.0
    live.see_target(judged(0, 0, 30.0, number=1))
    assert live.verify_s(0) > 20.0, "which a round that pays nothing tells"


def test_rejections_in_a_row_that_read_more_again_are_learnt() -> None:
    target = TargetCorrection()
    live = OnlineCostModel(DEARLY, target)
    assert live.rollback_s(TakenBack(1.0, 1.0)) == pytest.approx(13.0)
    for number in range(200):
        live.see_target(judged(2, 0, 20.2 + 12.0 + 4.0, number=number + 1, reread=4))
    assert target.again.value == pytest.approx(4.0, rel=0.05)
    assert live.rollback_s(TakenBack(1.0, 1.0)) == pytest.approx(16.0, rel=0.05)
    before = target.again.value
    live.see_target(judged(2, 0, number=0))  # another text owes nothing to the one before
    assert target.again.value == before


def simulated(price: CostModel, accepted: float) -> float:
    """Seconds of a token under a chooser that is told this price, on a target that costs what `DEARLY` says."""
    chance, seconds, tokens, owed = random.Random(1), 0.0, 0, TakenBack()
    chooser = DrafterChooser()
    chooser.use_cost_model(replace(price, first_s=0.0, step_s=0.0))
    chooser.begin()
    rule = chooser.rule_for("model")
    rule.use_cost_model(replace(price, acceptance=(accepted,)))
    for number in range(1500):
        source = chooser.choose({"none": chooser.without_drafts(), "model": rule.expected()})
        count = 0
        if source == "model":
            rule.start_tree(None)
            while count < 8 and rule.before(count, Told(accepted, acceptance=accepted)):  # type: ignore[arg-type]
                count += 1
        right = next((place for place in range(count) if chance.random() >= accepted), count)
        verify_s = DEARLY.verify_s(count) + DEARLY.rollback_s(owed)
        more = {"number": number, "reread": int(owed.reread), "source": source}
        round = judged(count, right, verify_s, DEARLY.draft_s(count), **more)
        chooser.update(round)
        seconds, tokens, owed = seconds + verify_s + round.draft_s, tokens + 1 + right, TakenBack.of_round(round)
    return seconds / tokens


def test_a_chooser_that_knows_the_price_is_no_slower_than_plain_decoding() -> None:
    """Drafts that are right in 4 of 10 gain .4 tokens for 1.1 s, and lose .6 x 13 s: planted, the price is left out."""
    assert simulated(DEARLY, 0.4) < 1.03 * 20.0
    assert simulated(FREELY, 0.4) > 1.06 * 20.0, "the price left out"


def test_sure_drafts_are_drafted_whatever_a_rejection_costs() -> None:
    assert simulated(DEARLY, 0.95) < 0.4 * 20.0

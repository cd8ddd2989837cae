"""Where the time of a token goes, against numbers worked out by hand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from egag.cost_model import CostModel
from egag.rollback_price import FREE, RollbackPrice, TakenBack
from sampling.measure.ledger import (
    PARTS,
    Ledger,
    PlainRound,
    ledger,
    needed_alpha,
    plain_at,
    plain_of,
    predicted,
    taken_back,
)
from sampling.measure.metrics import RunMetrics


def run(draft_ms: float, verify_ms: float, other_ms: float, tokens: float, drafted: int = 40) -> SimpleNamespace:
    """Ten rounds; at every fourth draft of each the first is judged alone."""
    times = {"draft_ms": draft_ms, "verify_ms": verify_ms, "other_ms": other_ms}
    accepted = round(10 * (tokens - 1.0))
    judged = {"accept_hist": [10 - accepted, accepted], "tested_at": [10]} if drafted else {}
    counts = {"rounds": 10, "drafted": drafted, "new_tokens": 10 * tokens, "tokens_per_round": tokens}
    more = {"alpha": accepted / 10 if drafted else None, "mean_gamma": drafted / 10, "max_gamma": drafted // 10}
    return SimpleNamespace(
        **{
            "accept_hist": None,
            "tested_at": None,
            "rollback_ms": None,
            "reread": None,
            "experts_per_round": None,
            "expert_share": None,
            "experts_ms": None,
        }
        | times
        | judged
        | counts
        | more
    )


AR = run(0.0, 40.0, 0.4, 1.0, drafted=0)
PLAIN = PlainRound(0.040, 0.0004)


def parts(found: Ledger) -> list[float]:
    return [1e3 * getattr(found, part) for part in PARTS]


def test_a_round_is_split_into_five_parts_a_token() -> None:
    """4 drafts in 9.6 ms, 5 rows in 52.4 ms where one takes 40, 0.8 ms else where AR has 0.4; 1.2 tokens."""
    assert plain_of(AR) == PLAIN
    found = ledger(run(9.6, 52.4, 0.8, 1.2), PLAIN)
    assert found is not None
    assert parts(found) == pytest.approx([40 / 1.2, 12.4 / 1.2, 9.6 / 1.2, 0.4 / 1.2, 0.4 / 1.2])
    assert (found.rows, found.total, found.plain) == pytest.approx((5.0, 0.0628 / 1.2, 0.0404))
    assert found.break_even == pytest.approx(62.8 / 40.4)
    assert found.speedup == pytest.approx(1.2 * 40.4 / 62.8)
    assert found.saved == pytest.approx(0.0404 - 0.0404 / 1.2)


def test_the_parts_of_measured_rounds_are_their_seconds_a_token() -> None:
    reference = RunMetrics(output_ids=[1] * 4, rounds=4, verify_s=0.4, other_s=0.1, draft_s=0.001)
    sd = RunMetrics(output_ids=[1] * 4, rounds=2, verify_s=0.3, draft_s=0.2, other_s=0.1, drafted=6)
    plain = plain_of(reference)
    assert plain is not None
    for account in (reference, sd):
        found = ledger(account, plain)
        assert found is not None
        assert sum(parts(found)) == pytest.approx(1e3 * account.decode_s / account.new_tokens, rel=1e-12)
        assert found.total == pytest.approx(account.decode_s / account.new_tokens, rel=1e-12)
    own = ledger(sd, plain)
    assert own is not None and sd.tokens_per_s is not None and reference.tokens_per_s is not None
    assert own.speedup == pytest.approx(sd.tokens_per_s / reference.tokens_per_s)


def test_plain_decoding_has_a_forward_and_a_rest() -> None:
    found = ledger(AR, PLAIN)
    assert found is not None and parts(found) == pytest.approx([40.0, 0.0, 0.0, 0.0, 0.4])
    assert (found.break_even, found.needed_alpha) == (1.0, None)


@pytest.mark.parametrize(
    ("round_ms", "speedup"),
    [((0.0, 40.0, 0.4), 1.0), ((16.0, 40.0, 0.4), 2.8 * 40.4 / 56.4), ((0.0, 80.0, 20.8), 2.8 * 40.4 / 100.8)],
)
def test_the_speedup_is_what_the_parts_leave(round_ms: tuple[float, float, float], speedup: float) -> None:
    """gamma c = 0.4 and verifying for free is the paper's formula, 2.8 / 1.4, but for the rest of a round."""
    found = ledger(run(*round_ms, 1.0 if speedup == 1.0 else 2.8), PLAIN)
    assert found is not None and found.speedup == pytest.approx(speedup)


def test_a_sentence_says_what_is_saved_and_what_takes_it_back() -> None:
    assert str(ledger(run(9.6, 52.4, 0.8, 1.2), PLAIN)) == (
        "1.20 tokens a round, 20% of what was judged accepted, save 6.7 of AR's 40.4 ms a token; verifying more rows "
        "takes 10.3, drafting takes 8.0, judging takes 0.3: 11.9 ms slower; break-even needs 1.55 tokens a round "
        "(alpha 0.36)"
    )
    fast = str(ledger(run(4.0, 40.0, 0.4, 1.6), PLAIN))
    assert fast.endswith(
        "60% of what was judged accepted, save 15.2 of AR's 40.4 ms a token; drafting takes 2.5: 12.7 ms faster"
    )
    never = str(ledger(run(9.6, 40.0, 0.4, 1.0, drafted=0), PLAIN))
    assert never.startswith("1.00 tokens a round save 0.0 of AR's 40.4 ms a token; drafting takes 9.6: 9.6 ms slower")
    assert "alpha" not in never, "no draft was judged, so that no alpha would help"


def test_break_even_alpha_by_hand() -> None:
    """One draft a round: alpha is what is beyond one token. Of two, each judged, a + a b: half of the way to 1."""
    assert needed_alpha(1.5, [8, 2], [10], 1) == pytest.approx(0.5)
    assert needed_alpha(1.1, [8, 2], [10], 1) == pytest.approx(0.1)
    # 0.5, then 0.2 of 5: at 0.75 and 0.6 it is 1 + 0.75 + 0.45 tokens, 1.2 of 1.75 judged positions.
    assert needed_alpha(2.2, [5, 4, 1], [10, 5], 2) == pytest.approx(1.2 / 1.75)
    assert needed_alpha(2.0, [8, 2], [10], 1) == pytest.approx(1.0)
    assert needed_alpha(2.1, [8, 2], [10], 1) is None, "not even if all were accepted"


def test_a_run_at_break_even_needs_the_alpha_that_it_has() -> None:
    hist, tested = [4, 3, 2, 1], [10, 6, 3]
    tokens = 1.0 + (3 + 4 + 3) / 10
    assert needed_alpha(tokens, hist, tested, 3) == pytest.approx(10 / 19)


def test_what_no_round_reached_is_as_the_last_position() -> None:
    """Nothing was accepted, so that position 2 was never judged: with four drafts a round 2.5 tokens can be had."""
    assert needed_alpha(2.5, [10], [10], 1) is None
    wanted = needed_alpha(2.5, [10], [10], 4)
    assert wanted is not None and sum(wanted**i for i in range(5)) == pytest.approx(2.5, abs=1e-6)


def test_a_profile_predicts_the_parts_of_the_rounds_as_they_were() -> None:
    """40 ms and 3 more a row; 2 ms the first draft, 1 each further one; 0.4 ms else."""
    price = CostModel(((1, 0.040), (9, 0.064)), first_s=0.002, step_s=0.001, rest_s=0.0004)
    assert plain_at(price) == PLAIN
    found = predicted(run(9.6, 52.4, 0.8, 1.2), price)
    assert found is not None and parts(found) == pytest.approx([40 / 1.2, 12 / 1.2, 5 / 1.2, 0.0, 0.4 / 1.2])
    # Copies in half of the rounds, four each: 2 drafts a round on average.
    seldom = run(9.6, 52.4, 0.8, 1.2, drafted=20)
    seldom.tested_at = [5]
    copied = predicted(seldom, price)
    assert copied is not None and copied.draft == pytest.approx((0.5 * 2 + 1.5 * 1) / 1.2e3)


def test_what_is_not_known_has_no_ledger() -> None:
    assert plain_of(RunMetrics()) is None
    assert ledger(RunMetrics(), PLAIN) is None
    assert ledger(RunMetrics(output_ids=[1], rounds=1, verify_s=0.1, searches=True), PLAIN) is None


def test_what_more_acceptance_spares_lowers_the_alpha_of_break_even() -> None:
    """One draft a round, 2 of 10 accepted, 1.5 rounds of AR, .2 of them rejections: 1 + a = 1.3 + .25 (1 - a)."""
    price = RollbackPrice(0.20, 0.05)  # of a rejection at the first draft: restoring, and the root that is read again
    assert needed_alpha(1.5, [8, 2], [10], 1, price) == pytest.approx(0.44)
    assert needed_alpha(1.5, [8, 2], [10], 1) == pytest.approx(0.5)
    assert needed_alpha(2.1, [8, 2], [10], 1, price) == pytest.approx((2.1 - 0.2 - 1.0 + 0.25) / 1.25), "1.9 are enough"


def test_what_is_taken_back_is_part_of_a_round() -> None:
    """20 ms for a rejection and 5 a token: .8 rejections and .8 tokens a round are 20 of 52.4 ms of verifying."""
    account = run(9.6, 52.4, 0.8, 1.2, drafted=10)
    account.reread = 8
    assert taken_back(account) == TakenBack(0.8, 0.8)
    free, dear = ledger(account, PLAIN), ledger(account, PLAIN, RollbackPrice(0.020, 0.005))
    assert free is not None and dear is not None and parts(free) == parts(dear) and free.break_even == dear.break_even
    assert dear.rollback == pytest.approx(0.020 / 1.2) and "taking tokens back is 16.7 of it" in str(dear)
    assert free.needed_alpha == pytest.approx(62.8 / 40.4 - 1.0)
    assert dear.needed_alpha == pytest.approx((62.8 - 20.0 + 25.0 - 40.4) / (40.4 + 25.0)), (
        "40.4 (1 + a) = 42.8 + 25 (1 - a)"
    )
    price = CostModel(((1, 0.040), (5, 0.048)), 0.003, 0.002, 0.0004)
    rounds = [predicted(account, replace(price, rollback=one)) for one in (FREE, RollbackPrice(0.020, 0.005))]
    assert rounds[0] is not None and rounds[1] is not None
    assert (rounds[1].total - rounds[0].total) * 1.2 == pytest.approx(0.020)

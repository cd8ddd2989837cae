"""What a round costs, by hand."""

from dataclasses import replace

import pytest

from egag.cost_model import ASSUMED_COSTS, CostModel
from sampling.methods.settings import Settings
from sampling.methods.tables import METHODS
from sampling.pair.profile import DraftTimes, LatencyProfile, TreeTimes
from tests.refusals import refused

PRICE = CostModel(((1, 20.0), (3, 24.0), (5, 30.0)), first_s=5.0, step_s=3.0, rest_s=1.0)
PROFILE = LatencyProfile(
    {100: ((1, 20.0), (3, 24.0)), 500: ((1, 40.0), (3, 50.0))},
    ((100, 2.0), (200, 6.0)),
    1.0,
    {"model": DraftTimes(5.0, 3.0, (0.8, 0.5)), "prompt_lookup": DraftTimes(0.5, 0.1), "suffix": DraftTimes(0.25, 0.0)},
    "2026-01-01T00:00:00+00:00",
)


def test_a_round_is_forward_drafts_and_rest() -> None:
    assert PRICE.seconds(0) == 20 + 1
    assert PRICE.seconds(2) == 24 + (5 + 3) + 1
    assert (PRICE.c, PRICE.v(2)) == (3 / 20, 24 / 20)


@pytest.mark.parametrize(("drafts", "seconds"), [(0, 20), (0.5, 21), (1, 22), (2, 24), (3, 27), (4, 30), (6, 36)])
def test_rows_between_lie_on_a_line_and_those_behind_on_the_last_one(drafts: float, seconds: float) -> None:
    assert PRICE.verify_s(drafts) == pytest.approx(seconds)


def test_one_timed_row_stands_for_all() -> None:
    assert CostModel(((1, 20.0),), 5.0, 3.0).verify_s(7) == 20.0


def test_a_mean_below_one_draft_still_looks_for_the_first() -> None:
    assert (PRICE.draft_s(0), PRICE.draft_s(0.25), PRICE.draft_s(1), PRICE.draft_s(1.5)) == (0, 5, 5, 6.5)


def test_copies_behind_a_models_drafts_are_free() -> None:
    price = CostModel(((1, 20.0),), first_s=5.0, step_s=3.0, paid=2)
    assert [price.draft_s(drafts) for drafts in (1, 2, 3, 10)] == [5, 8, 8, 8]


def test_the_assumed_price_is_told_from_a_measured_one() -> None:
    assert PRICE.measured and not ASSUMED_COSTS.measured
    assert ASSUMED_COSTS.v(0) == 1 and ASSUMED_COSTS.v(4) == 1.25


def test_a_profile_prices_a_drafter_between_the_contexts_that_were_timed() -> None:
    prices = [PROFILE.cost_model("model", context=context) for context in (50, 100, 200, 500, 900)]
    assert [price and price.seconds(2) for price in prices] == [33, 33, 24 + 6.5 + 9, 59, 59]
    shorter = replace(PROFILE, forward={100: ((1, 20.0), (3, 24.0)), 500: ((1, 40.0),)}).cost_model(
        "model", context=200
    )
    assert shorter and shorter.forward == ((1, 25.0),)


def test_a_tree_takes_as_much_longer_as_was_measured() -> None:
    """A row alone is a chain."""
    tree = replace(PROFILE, tree=1.5).cost_model("model", branched=True)
    assert tree and (tree.verify_s(0), tree.verify_s(2), tree.draft_s(2)) == (20, 36, 8)


def test_what_drafts_nothing_and_what_was_not_timed() -> None:
    plain = PROFILE.cost_model("none")
    assert plain and plain.seconds(0) == 21 and plain.draft_s(3) == 0
    assert PROFILE.cost_model("eagle") is None


@pytest.mark.parametrize(
    ("method", "values", "ten"),
    [
        ("speculative", {}, 5 + 9 * 3),
        ("egag", {}, 5 + 9 * 3),
        ("prompt_lookup", {}, 0.5 + 9 * 0.1),
        ("extended", {"hybrid_model": "model", "hybrid_copy": "prompt_lookup", "num_model_steps": 2}, 0.5 + 5 + 3),
        ("extended", {"hybrid_model": "model", "hybrid_copy": "suffix", "num_model_steps": 3}, 0.25 + 5 + 6),
        ("suffix_or_model", {"hybrid_model": "model", "num_model_steps": 1}, 0.25 + 5),
        ("staged", {"staged_drafter": "mtp"}, 5 + 9 * 3),
        ("staged", {"staged_drafter": "prompt_lookup"}, 5 + 9 * 3),
        ("target", {}, 0.0),
    ],
)
def test_a_method_is_priced_by_what_drafts_in_it(method: str, values: dict[str, object], ten: float) -> None:
    price = METHODS[method].cost_model(PROFILE, {**Settings(), **values})
    assert price and price.draft_s(10) == pytest.approx(ten)


@pytest.mark.parametrize("method", ["drafter", "beam", "mtp", "recycling"])
def test_what_was_not_timed_has_no_price(method: str) -> None:
    assert METHODS[method].cost_model(PROFILE, Settings()) is None


def test_expected_tokens_go_on_with_the_last_share() -> None:
    assert DraftTimes(1.0, 1.0, (0.8, 0.5)).tokens(3) == pytest.approx(1 + 0.8 + 0.4 + 0.2)
    assert DraftTimes(1.0, 1.0, (0.8, 0.5), found=0.5).tokens(2) == pytest.approx(1 + 0.4 + 0.2)
    assert DraftTimes(1.0, 1.0).tokens(3) == 1.0


@pytest.mark.parametrize(("tokens", "seconds"), [(0, 0), (50, 1), (100, 2), (150, 4), (300, 10)])
def test_a_prefill_lies_on_the_lines_through_what_was_timed(tokens: int, seconds: float) -> None:
    assert PROFILE.prefill_s(tokens) == pytest.approx(seconds)


def test_a_profile_comes_back_from_what_it_writes() -> None:
    assert LatencyProfile.from_dict(PROFILE.as_dict()) == PROFILE
    times = {"mtp": DraftTimes(2.0, 1.0, (0.7,), tree=TreeTimes(2.5, 1.5, 1.1))}
    grown = replace(PROFILE, drafters=times)
    assert LatencyProfile.from_dict(grown.as_dict()) == grown
    earlier = grown.as_dict()
    del earlier["drafters"]["mtp"]["tree"]
    assert LatencyProfile.from_dict(earlier).drafters["mtp"].tree is None


def test_a_heads_trees_have_times_of_their_own() -> None:
    timed = replace(PROFILE, drafters={"mtp": DraftTimes(2.0, 1.0, tree=TreeTimes(2.5, 1.5, 1.1))})
    chain, tree = (timed.cost_model("mtp", branched=branched) for branched in (False, True))
    assert chain is not None and tree is not None
    assert (chain.draft_s(3), tree.draft_s(3)) == (4.0, 5.5)


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        ({"forward": {}}, "forward"),
        ({"forward": {"x": [[1, 2.0]]}}, "forward"),
        ({"forward": {"1": [[3, 2.0], [1, 2.0]]}}, "forward"),
        ({"forward": {"1": [[1, 0.0]]}}, "forward"),
        ({"forward": {"1": [[1, float("nan")]]}}, "forward"),
        ({"prefill": [[1]]}, "prefill"),
        ({"rest_s": "1"}, "rest_s"),
        ({"rest_s": -1.0}, "rest_s"),
        ({"drafters": {"model": {"first_s": 1.0}}}, "model"),
        ({"drafters": {"model": {"first_s": 1.0, "step_s": 1.0, "acceptance": [1.5], "found": 1.0}}}, "acceptance"),
        ({"drafters": {"model": {"first_s": 1.0, "step_s": 1.0, "acceptance": 3, "found": 1.0}}}, "acceptance"),
        ({"drafters": []}, "drafters"),
        ({"measured": 5}, "drafters"),
        ({"more": 1}, "measured"),
    ],
)
def test_what_no_measurement_came_to_is_refused(damage: dict[str, object], place: str) -> None:
    with refused("profile", place):
        LatencyProfile.from_dict({**PROFILE.as_dict(), **damage})
    with refused("profile", *PROFILE.as_dict()):
        LatencyProfile.from_dict([PROFILE.as_dict()])


def test_among_others_a_text_pays_its_share_of_what_grows_with_rows() -> None:
    """The example of the docstring, and drafting: two rows take 1.1 of what one takes, half of it each."""
    alone = CostModel(((1, 20.0), (3, 24.0)), first_s=8.0, step_s=4.0, rest_s=1.0)
    shared = alone.among(2)
    assert [shared.verify_s(drafts) for drafts in (0, 2)] == pytest.approx([11.0, 15.0])
    assert (shared.first_s, shared.step_s, shared.rest_s) == pytest.approx((4.4, 2.2, 1.0))
    assert alone.among(1) is alone

"""HedgeSpec's weights: gains by the verified text, what it censors, and the draw."""

import math
from collections import Counter

import pytest

from egag.choosing.hedge_chooser import DrafterScore, HedgeChooser, judged_by
from egag.cost_model import CostModel
from egag.expected_round import ExpectedRound
from tests.rules import judged

PRICE = CostModel(((1, 20.0), (9, 22.0)), first_s=1.0, step_s=1.0)


def chooser(**prices: CostModel) -> HedgeChooser:
    made = HedgeChooser(survival_gamma_max=4, survival_live=False)
    made.use_cost_model(PRICE)
    made.begin()
    for name, price in prices.items():
        made.rule_for(name).use_cost_model(price)
    return made


def known(*drafted: str) -> dict[str, ExpectedRound]:
    return {name: ExpectedRound(1.0, 20.0) for name in ("none", *drafted)}


def test_what_follows_the_verified_text_is_censored() -> None:
    """1, .5 of a chain of 3 at alpha .6: 1 + .5 + .5 x .6; a rejection ends the chain, whatever alpha is."""
    score = DrafterScore(accepted=6.0, judged=10.0)
    assert score.run([1.0, 0.5], 3) == pytest.approx(1.8)
    assert score.run([1.0, 0.0], 3) == 1.0 and score.run([1.0] * 9, 3) == 3.0
    assert score.run([], 2) == pytest.approx(0.6 + 0.36), "nothing is known of it: its mean"


def test_every_judged_token_counts_and_older_ones_less() -> None:
    score = DrafterScore()
    for _ in range(400):
        score.see([1.0, 0.5])
    assert score.alpha == pytest.approx(0.75, abs=0.01)
    score.see([0.0] * 50)
    assert score.alpha < 0.3
    assert judged_by(judged(4, 2)) == [1.0, 1.0, 0.0] and judged_by(judged(3, 3)) == [1.0] * 3


def test_the_weights_by_hand() -> None:
    """Gains 8 and 5 after 8 rounds of 2: eta = sqrt(8 ln 2 / 8) = .83, and e^(-.83 x 3) = .082."""
    made = chooser()
    made.scores = {"a": DrafterScore(gain=8.0), "b": DrafterScore(gain=5.0)}
    made._rounds = 8
    other = math.exp(-3.0 * math.sqrt(math.log(2.0)))
    assert made.weights(["a", "b"]) == pytest.approx([1 / (1 + other), other / (1 + other)])
    assert made.weights(["b"]) == [1.0] and chooser().weights(["a", "b", "c"]) == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("good", ["model", "head"])
def test_who_never_drafted_is_found_by_the_text(good: str) -> None:
    """Nobody has to be tried: the better one is drawn nearly always though no round was its own."""
    made, bad = chooser(model=PRICE, head=PRICE), {"model": "head", "head": "model"}[good]
    for _ in range(40):
        made.learn_text({good: [0.9, 0.9, 0.9], bad: [0.1, 0.1, 0.1]})
    drawn = Counter(made.choose(known("model", "head")) for _ in range(200))
    assert drawn[good] > 190


def test_time_counts() -> None:
    """As often right, and ten times as dear: the cheap one; where nothing is right nobody drafts."""
    dear = CostModel(PRICE.forward, first_s=10.0, step_s=10.0)
    made = chooser(model=dear, head=PRICE)
    for _ in range(60):
        made.learn_text({"model": [0.8] * 3, "head": [0.8] * 3})
    assert made.weights(["none", "model", "head"])[2] > 0.9
    made.begin()
    for _ in range(200):
        made.learn_text({"model": [0.0], "head": [0.0]})
    none, model, head = made.weights(["none", "model", "head"])
    assert none > head > model


def test_a_text_begins_with_equal_weights_and_the_same_draws() -> None:
    made = chooser(model=PRICE)
    first = [made.choose(known("model")) for _ in range(20)]
    made.learn_text({"model": [1.0, 1.0]})
    made.begin()
    assert made.weights(["none", "model"]) == [0.5, 0.5]
    assert [made.choose(known("model")) for _ in range(20)] == first and len(set(first)) == 2

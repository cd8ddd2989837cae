"""UCB1 over draft lengths, on rounds whose times are written down."""

from dataclasses import replace

import pytest

from egag.bandits.bandit import Bandit
from egag.bandits.ucb import UcbGamma
from egag.bandits.ucb_rules import UcbRules
from egag.length_rule import FixedGamma
from sampling.methods.rules import CONTROLLERS
from utils.events import Round

# Tokens a round and its seconds, by length: 20, 25, 24 and 15 tokens a second.
PAYS = {0: (1, 0.05), 1: (2, 0.08), 2: (3, 0.125), 4: (3, 0.2)}


def played(rule: UcbGamma, rounds: int, pays: dict[int, tuple[int, float]] = PAYS) -> list[int]:
    """The lengths that were chosen, one a round."""
    chosen = []
    for _ in range(rounds):
        chosen.append(rule.gamma)
        tokens, seconds = pays[rule.gamma]
        path = tuple(range(tokens - 1))
        drafts = tuple(range(rule.gamma))
        flat = (0.5,) * len(drafts)
        round = Round(0, 9, rule.gamma, drafts, None, flat, flat, path, 1, None, 64)
        rule.update(replace(round, draft_s=seconds / 4, verify_s=seconds / 2, other_s=seconds / 4))
    return chosen


def test_every_length_is_played_once_first() -> None:
    assert played(UcbGamma(4), 4) == [0, 1, 2, 4]
    assert UcbGamma(6).lengths == [0, 1, 2, 4, 6] and UcbGamma(1).lengths == [0, 1]


def test_without_a_bonus_the_best_rate_is_played() -> None:
    assert played(UcbGamma(4, 0.0), 20)[4:] == [1] * 16


def test_a_worked_example() -> None:
    """After four rounds the bonus is 0.1 * 25 * sqrt(2 ln 4) = 4.16 each: 25 wins. Its second play lowers its bonus
    to 2.5 * sqrt(2 ln 5 / 2) = 3.17 against 4.49 of the others: 28.17 against 28.49 of length 2."""
    assert played(UcbGamma(4, 0.1), 6)[4:] == [1, 2]


def test_most_rounds_go_to_the_best_and_every_length_comes_again() -> None:
    chosen = played(UcbGamma(4), 2000)
    counts = {length: chosen.count(length) for length in PAYS}
    assert max(counts, key=counts.__getitem__) == 1 and counts[1] > 1000
    assert all(count > 1 for count in counts.values())


def test_a_slow_spell_is_paid_for_in_seconds_not_in_rounds() -> None:
    """Where drafts do not pay, the bandit ends up not drafting."""
    slow = {0: (1, 0.05), 1: (2, 0.2), 2: (2, 0.3), 4: (2, 0.5)}
    assert played(UcbGamma(4, 0.05), 200, slow).count(0) > 150


@pytest.mark.parametrize("remember", [True, False])
def test_what_was_learned_goes_on_with_the_next_prompt(remember: bool) -> None:
    earlier, later = UcbGamma(4, 0.0, remember), UcbGamma(4, 0.0, remember)
    played(earlier, 10)
    later.adopt(earlier)
    later.begin()
    assert played(later, 4) == ([1, 1, 1, 1] if remember else [0, 1, 2, 4])
    assert bool(later.memory()) == remember


def test_other_lengths_learn_anew() -> None:
    earlier, later = UcbGamma(4), UcbGamma(8)
    played(earlier, 10)
    later.adopt(earlier)
    later.begin()
    assert later.gamma == 0


def test_the_bonus_is_two_logarithms_wide() -> None:
    """Four rounds, s 0.1, best rate 25: 23 + 2.5 sqrt(2 ln 4) = 27.16 is below 25 + 2.5 sqrt(2 ln 4 / 3) = 27.40.

    With three logarithms in place of two it would be 28.10 against 27.94.
    """
    bandit = Bandit(("rare", "often"), 0.1)
    for arm, plays, rate in (("rare", 1, 23.0), ("often", 3, 25.0)):
        bandit.arms[arm].plays, bandit.arms[arm].tokens, bandit.arms[arm].seconds = plays, round(rate), 1.0
    assert bandit.choose() == "often"


def test_a_bandit_over_rules_made_by_hand_is_the_tables() -> None:
    made, line = UcbRules({"fixed": FixedGamma()}), CONTROLLERS["ucb_rules"]
    defaults = {parameter.name: parameter.default for parameter in line.parameters}
    assert (made.exploration, made.remember) == (defaults["ucb_exploration"], defaults["ucb_remember"])

"""The best-first tree under a rule that orders its nodes by what it learns, and cuts them by what they cost."""

import pytest

from egag.cost_model import CostModel
from egag.survival import SurvivalGamma
from tests.conformance import suite
from tests.conformance.matrix import case
from tests.conformance.suite import Case
from tests.conformance.toy import toy_pair
from utils.events import Round
from utils.logits_processor import GreedyProcessor, LogitsProcessor, MultinomialProcessor, NucleusProcessor

BY_COST = Case(case("medusa best_first tree").drafter, lambda: _survival(0.3), case("medusa").verifier)


def _survival(row_s: float) -> SurvivalGamma:
    """A rule that learns nothing of times, so that every run of a seed is the same."""
    rule = SurvivalGamma(survival_live=False)
    rule.use_cost_model(CostModel(((1, 20.0), (17, 20.0 + 16 * row_s)), 0.5, 0.1))
    return rule


def test_greedy_output_is_that_of_plain_decoding() -> None:
    suite.check_greedy(BY_COST, toy_pair())


@pytest.mark.parametrize("processor", [MultinomialProcessor(0.8), NucleusProcessor(1.0, 0.9)], ids=["all", "nucleus"])
def test_sampled_output_has_the_targets_distribution(processor: LogitsProcessor) -> None:
    suite.check_law(BY_COST, toy_pair(), processor)


def test_dear_rows_make_small_trees() -> None:
    """The price decides, round by round, and `tree_tokens` is the most there can be."""

    def nodes(row_s: float) -> list[int]:
        one = Case(BY_COST.drafter, lambda: _survival(row_s), BY_COST.verifier)
        events = suite.run(one, toy_pair(), GreedyProcessor(), 40)
        return [len(event.drafts) for event in events if isinstance(event, Round)]

    cheap, dear, dearest = nodes(0.01), nodes(2.0), nodes(50.0)
    assert max(cheap) == 6 and sum(cheap) / len(cheap) > sum(dear) / len(dear) > sum(dearest) / len(dearest)
    assert len(set(dear)) > 1, "another number where the heads are surer"

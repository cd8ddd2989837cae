"""The laws of what is sampled: every way of drafting, rule and lossless verifier of the tables, and trees."""

import pytest

from sampling.methods.verifiers import VERIFIERS
from tests.conformance import suite
from tests.conformance.matrix import (
    case,
    cut_drafters,
    meets_all_sampled,
    rules_of,
    sampled_combinations,
    trait,
)
from tests.conformance.toy import PROMPT, SHORT, toy_pair
from utils.logits_processor import LogitsProcessor, MultinomialProcessor, NucleusProcessor, TopKNucleusProcessor

CUT = [
    *(pytest.param(NucleusProcessor(0.8, 0.9), name, id=f"nucleus-{name}") for name in cut_drafters(every_form=True)),
    # Cuts as the one above does, and by rank before.
    *(
        pytest.param(TopKNucleusProcessor(1.3, 4, 0.95), name, id=f"topknucleus-{name}")
        for name in cut_drafters(every_form=False)
    ),
]


@pytest.mark.parametrize("combination", sampled_combinations(), ids="-".join)
def test_sampled_output_has_the_targets_distribution(combination: tuple[str, str, str]) -> None:
    drafter, rule, _ = combination
    many = rule == rules_of(drafter)[0] or meets_all_sampled(drafter) or not trait(drafter).distribution
    runs = suite.RUNS if many else suite.FEW_RUNS
    suite.check_law(case(*combination), toy_pair(), MultinomialProcessor(1.0), runs=runs, prompt=prompt_of(drafter))


def prompt_of(drafter: str) -> tuple[int, ...]:
    """What a law is tested on: who copies needs something to copy."""
    return SHORT if trait(drafter).distribution else PROMPT


@pytest.mark.parametrize(("processor", "drafter"), CUT)
def test_a_cut_distribution_is_kept(processor: LogitsProcessor, drafter: str) -> None:
    suite.check_law(case(drafter), toy_pair(), processor, prompt=prompt_of(drafter))


@pytest.mark.parametrize("drafter", ["model", "sampled tree", "suffix tree", "staged", "staged suffix"])
def test_three_tokens_through_several_rounds_keep_the_distribution(drafter: str) -> None:
    processor = TopKNucleusProcessor(1.0, 3, 1.0)
    suite.check_law(case(drafter), toy_pair(), processor, length=3, runs=suite.FEW_RUNS, prompt=prompt_of(drafter))


@pytest.mark.parametrize(
    "verifier", [n for n in VERIFIERS if VERIFIERS[n].build(None, {}).lossless(MultinomialProcessor(1.0))]
)
def test_siblings_keep_the_distribution_through_a_second_rejection(verifier: str) -> None:
    suite.check_sibling_distribution(VERIFIERS[verifier].build(None, {}))


def test_the_test_alarms_on_a_wrong_distribution() -> None:
    """Negative control: runs at another temperature do not pass for the target's."""
    pair = toy_pair()
    exact = suite.exact_distribution(pair, MultinomialProcessor(1.0), 2)
    wrong = suite.exact_distribution(pair, MultinomialProcessor(1.3), 2)
    counts = suite.Counter({path: round(mass * suite.RUNS) for path, mass in wrong.items()})
    statistic, freedom = suite._chi_square(counts, exact, suite.RUNS)
    assert statistic > suite.chdtri(freedom, suite.FALSE_ALARM)

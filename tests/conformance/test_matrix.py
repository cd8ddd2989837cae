"""The combinations that are tested: every line of the tables is among them, and what cannot differ is not."""

import pytest

from sampling.methods import DRAFTERS, VERIFIERS
from sampling.rules import CONTROLLERS
from tests.conformance.matrix import (
    NAMES,
    combinations,
    cut_drafters,
    drafter_seeds,
    greedy_combinations,
    judges_of,
    rules_of,
    trait,
)
from utils.logits_processor import GreedyProcessor, LogitsProcessor, MultinomialProcessor


@pytest.mark.parametrize("processor", [GreedyProcessor(), MultinomialProcessor(1.0)], ids=["greedy", "sampled"])
def test_every_line_of_the_tables_is_tested(processor: LogitsProcessor) -> None:
    met = list(combinations(processor))
    lossless = {name for name in VERIFIERS if VERIFIERS[name].build(None, {}).lossless(processor)}
    drafters, rules, judges = (set(names) for names in zip(*met, strict=True))
    assert (drafters, rules, judges) == (set(NAMES), set(CONTROLLERS), lossless)
    assert set(DRAFTERS) <= drafters
    assert len(set(met)) == len(met)


def test_who_drafts_nothing_is_tested_once() -> None:
    assert [one for one in greedy_combinations() if one[0] == "none"] == [("none", "fixed", "rejection")]
    assert trait("none").forms == frozenset()


def test_copies_meet_a_rule_that_stays_and_those_that_verdicts_move() -> None:
    """Rules that read distributions are numbers to copies, SVIP the largest. The first copier meets all that move."""
    for drafter in ("ngram", "prompt_lookup", "suffix"):
        assert rules_of(drafter) == ("svip", "ucb_rules")
    first, *others = rules_of("recycling")
    moving = {"heuristic", "ucb", "cost_ratio", "gammatune", "anpd", "survival", "ucb_rules"}
    assert first == "svip" and moving == set(others)


def test_the_first_of_drafters_that_ask_alike_meets_every_rule() -> None:
    assert rules_of("model") == tuple(CONTROLLERS)
    assert rules_of("eagle") == rules_of("medusa dynamic tree") == ("fixed", "egag")


def test_every_form_of_a_proposal_is_judged_by_every_verifier() -> None:
    """By those of the first drafter that has it; under greedy by those of all."""
    sampled = MultinomialProcessor(1.0)
    for forms in {trait(name).forms for name in NAMES if trait(name).drafts}:
        first, *others = (name for name in NAMES if trait(name).forms == forms)
        assert judges_of(first, sampled) == ("rejection", "block", "traversal", "target_match")
        assert first in cut_drafters(every_form=True)
        assert all(judges_of(name, sampled) == ("rejection",) for name in others)
    assert judges_of("point tree", GreedyProcessor()) == tuple(VERIFIERS)


def test_the_twin_of_the_target_is_for_who_drafts_with_a_model() -> None:
    assert drafter_seeds("model") == drafter_seeds("suffix tree or model") == [1, None]
    assert drafter_seeds("ngram") == drafter_seeds("eagle") == [1]

"""The combinations that are tested: every line of the tables is among them, and what cannot differ is not."""

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Self

import pytest

import ngram_assisted
import sampling.drafters
from egag.draft_distribution import LogitsDistribution
from egag.length_rule import LengthRule
from sampling.drafter import Drafter, NullDrafter
from sampling.drafters.combined.auto import AutoDrafter
from sampling.drafters.combined.hedge import HedgeDrafter
from sampling.drafters.combined.staged import StagedDrafter
from sampling.drafters.crossings.slem import SlemDrafter
from sampling.drafters.forward_drafter import ForwardDrafter
from sampling.drafters.grammar import GrammarDrafter
from sampling.drafters.heads.parallel_eagle import ParallelEagleDrafter
from sampling.drafters.model import ModelDrafter
from sampling.drafters.target_first import TargetFirst
from sampling.forward.requests import StepGenerator
from sampling.methods.rules import CONTROLLERS
from sampling.methods.tables import DRAFTERS
from sampling.methods.verifiers import VERIFIERS
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from tests.conformance import matrix, suite
from tests.conformance.matrix import (
    NAMES,
    case,
    combinations,
    cut_drafters,
    drafter_seeds,
    drafting_class,
    greedy_combinations,
    judges_of,
    reads_distributions,
    rules_of,
    sampled_combinations,
    says_how_to_draft,
    trait,
    ways,
)
from tests.conformance.toy import toy_pair
from utils.logits_processor import GreedyProcessor, LogitsProcessor, MultinomialProcessor


@pytest.mark.parametrize("processor", [GreedyProcessor(), MultinomialProcessor(1.0)], ids=["greedy", "sampled"])
def test_every_line_of_the_tables_is_tested(processor: LogitsProcessor) -> None:
    met = list(combinations(processor))
    lossless = {name for name in VERIFIERS if VERIFIERS[name].build(None, {}).lossless(processor)}
    drafters, rules, judges = (set(names) for names in zip(*met, strict=True))
    wanted = set(NAMES) if processor.greedy else set(ways())
    assert (drafters, rules, judges) == (wanted, set(CONTROLLERS), lossless)
    assert set(DRAFTERS) <= drafters
    assert len(set(met)) == len(met)


def test_who_drafts_nothing_is_tested_once() -> None:
    assert [one for one in greedy_combinations() if one[0] == "none"] == [("none", "fixed", "rejection")]
    assert trait("none").forms == frozenset()


def test_drafters_that_draft_alike_meet_a_rule_that_stays_and_one_that_moves() -> None:
    """Rules that read distributions are numbers to copies, SVIP the largest."""
    assert rules_of("model + suffix") == rules_of("suffix tree") == ("svip", "ucb_rules")
    assert rules_of("eagle") == rules_of("medusa dynamic tree") == ("fixed", "egag")


def test_every_way_of_drafting_meets_every_rule_that_it_may_take() -> None:
    met: dict[type, set[str]] = {}
    for drafter, rule, _ in greedy_combinations():
        met.setdefault(drafting_class(drafter), set()).add(rule)
    assert met.pop(NullDrafter) == {"fixed"}
    assert met.pop(GrammarDrafter) == {"fixed"}  # without a grammar; with one: test_grammar.py
    assert met.pop(AutoDrafter) == met.pop(HedgeDrafter) == {"survival"}  # they refuse others
    assert {kind: set(CONTROLLERS) - rules for kind, rules in met.items() if rules != set(CONTROLLERS)} == {}


def test_every_way_of_drafting_that_could_be_bent_is_sampled_under_rules_that_could_bend_it() -> None:
    reading = {
        "egag",
        "confidence",
        "svip",
        "adaedl",
        "draft_verify",
        "specdec_pp",
        "survival",
        "saturation",
        "ucb_rules",
    }
    assert {rule for rule in CONTROLLERS if reads_distributions(rule)} == reading
    met: dict[type, set[str]] = {}
    for drafter, rule, _ in sampled_combinations():
        if trait(drafter).distribution:
            met.setdefault(drafting_class(drafter), set()).add(rule)
    assert met.pop(AutoDrafter) == met.pop(HedgeDrafter) == {"survival"}
    assert {ForwardDrafter, ParallelEagleDrafter, StagedDrafter} <= met.keys()
    assert all(reading <= rules for rules in met.values())


def test_no_way_of_drafting_is_missing_from_the_matrix() -> None:
    """A class of the library that drafts in a way of its own is a drafter of the table, or has a suite of its own."""
    elsewhere = {SlemDrafter, TargetFirst}  # test_vocabularies.py; a wrapper that asks no rule itself
    for room in (sampling.drafters, ngram_assisted):
        for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            import_module(module.name)
    library = ("sampling.drafters.", "ngram_assisted.")
    classes = {kind for kind in _below(Drafter) if says_how_to_draft(kind) and kind.__module__.startswith(library)}
    assert classes - elsewhere <= {drafting_class(name) for name in NAMES}


def _below(kind: type) -> set[type]:
    return {kind, *(lower for direct in kind.__subclasses__() for lower in _below(direct))}


def test_a_new_way_of_drafting_is_not_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It drops a drawn token after which a rule stops: biased, but under greedy and where a rule never looks at it."""

    class Dropping(ModelDrafter):
        @classmethod
        def build(cls, pair: Any, values: Mapping[str, Any]) -> Self:
            return cls(pair.drafter)

        def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> StepGenerator[Proposal]:
            drafted = yield from super().propose(seq, gamma, limit)
            if drafted.draft_probs is None or gamma.after(
                1, LogitsDistribution(drafted.draft_probs[-1].log()), drafted.tokens[-1]
            ):
                return drafted
            return Proposal(drafted.tokens[:-1], None, drafted.draft_probs[:-1], drafted.first_entropy)

    monkeypatch.setattr(matrix, "TREES", {**matrix.TREES, "dropping": Dropping})
    monkeypatch.setattr(matrix, "NAMES", [*NAMES, "dropping"])
    met = {rule for drafter, rule, _ in combinations(MultinomialProcessor(1.0)) if drafter == "dropping"}
    assert met == {"fixed", *(rule for rule in CONTROLLERS if reads_distributions(rule))}
    assert set(rules_of("dropping")) == set(CONTROLLERS)
    suite.check_greedy(case("dropping"), toy_pair())
    suite.check_law(case("dropping"), toy_pair(), MultinomialProcessor(1.0), runs=suite.FEW_RUNS)
    with pytest.raises(AssertionError):
        suite.check_law(case("dropping", "confidence"), toy_pair(), MultinomialProcessor(1.0), runs=suite.FEW_RUNS)


def test_every_form_of_a_proposal_is_judged_by_every_verifier() -> None:
    """By those of the first drafter that has it."""
    sampled = MultinomialProcessor(1.0)
    for forms in {trait(name).forms for name in NAMES if trait(name).drafts}:
        first, *others = (name for name in NAMES if trait(name).forms == forms)
        assert judges_of(first, sampled) == ("rejection", "block", "traversal", "target_match")
        assert first in cut_drafters(every_form=True)
        assert all(judges_of(name, sampled) == ("rejection",) for name in others)
        assert judges_of(first, GreedyProcessor()) == tuple(VERIFIERS)


def test_every_form_of_every_way_of_drafting_is_sampled_and_cut() -> None:
    drawn = {name for name in NAMES if any(drawn for _, drawn in trait(name).forms)}
    for way in {(drafting_class(name), trait(name).forms) for name in NAMES}:
        (first, *_) = (name for name in NAMES if (drafting_class(name), trait(name).forms) == way)
        assert first in {drafter for drafter, _, _ in sampled_combinations()}
        assert first in cut_drafters(every_form=False) or first not in drawn


def test_the_twin_of_the_target_is_for_who_drafts_with_a_model() -> None:
    assert drafter_seeds("model") == drafter_seeds("suffix tree or model") == [1, None]
    assert drafter_seeds("ngram") == drafter_seeds("eagle") == [1]

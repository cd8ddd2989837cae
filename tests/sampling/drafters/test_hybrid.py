"""Hybrids: a model's drafts extended by copies, and the draft that promises more."""

from collections import abc

import pytest
import torch

from egag.length_rule import DraftBudget, FixedGamma, LengthRule
from ngram_assisted.nasd import NgramDrafter
from ngram_assisted.ngram_storage import NGramStorage
from ngram_assisted.prompt_lookup import PromptLookupDrafter
from ngram_assisted.suffix import SuffixDrafter
from ngram_assisted.suffix_text import TextTree
from ngram_assisted.suffix_tree import Limits, LookaheadTree, best_draft
from sampling.drafter import Drafter, proposal_of
from sampling.drafters.combined.hybrid import ExtendedDrafter, SuffixOrModelDrafter
from sampling.forward.runner import prefill
from sampling.methods.settings import Settings
from sampling.methods.tables import DRAFTERS, METHODS
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from tests.conformance.toy import VOCAB, toy_pair, toy_runner
from tests.sequences import sequence

# 1 2 3 4 5 1 2: after 1 2 came 3 4 5.
TEXT = [1, 2, 3, 4, 5, 1, 2]


class Scripted(Drafter):
    """A model that drafts what it was told, each draft with probability a half."""

    def __init__(self, tokens: abc.Sequence[int]) -> None:
        self.tokens = tokens
        self.asked: list[int] = []

    @classmethod
    def build(cls, pair: object, values: object) -> "Scripted":
        return cls(())

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> Proposal:
        self.asked.append(min(gamma.gamma, limit))
        tokens = torch.tensor(self.tokens[: min(gamma.gamma, limit)], dtype=torch.long)
        return Proposal(tokens, None, torch.full((len(tokens), VOCAB), 0.5)) if len(tokens) else Proposal(tokens)


def context(tokens: abc.Sequence[int] = TEXT) -> Sequence:
    return sequence([*tokens], toy_runner(0))


def extended(copier: Drafter, drawn: abc.Sequence[int], steps: int = 2) -> tuple[ExtendedDrafter, Sequence]:
    drafter, seq = ExtendedDrafter(Scripted(drawn), copier, steps), context()
    drafter.begin(seq)
    return drafter, seq


COPIERS = {
    "prompt_lookup": lambda: PromptLookupDrafter(3, 1),
    "ngram": lambda: NgramDrafter(NGramStorage(3)),
    "suffix": lambda: SuffixDrafter(max_spec_factor=4.0),
}


@pytest.mark.parametrize("name", COPIERS)
def test_a_copy_goes_on_where_the_model_stopped(name: str) -> None:
    drafter, seq = extended(COPIERS[name](), [3, 4])
    proposal = proposal_of(drafter.propose(seq, DraftBudget(4), 9))
    assert proposal.tokens.tolist() == [3, 4, 5, 1]
    assert proposal.draft_probs is not None
    assert proposal.draft_probs[:2].tolist() == [[0.5] * VOCAB] * 2
    assert proposal.draft_probs[2].tolist() == [0, 0, 0, 0, 0, 1] and proposal.draft_probs[3].tolist() == [
        0,
        1,
        0,
        0,
        0,
        0,
    ]
    assert seq.tokens == TEXT


@pytest.mark.parametrize("name", COPIERS)
def test_drafts_are_not_learnt(name: str) -> None:
    drafter, seq = extended(COPIERS[name](), [3, 1])
    once = proposal_of(drafter.propose(seq, DraftBudget(6), 9)).tokens.tolist()
    assert proposal_of(drafter.propose(seq, DraftBudget(6), 9)).tokens.tolist() == once


@pytest.mark.parametrize("name", COPIERS)
def test_budget_and_room_bound_both_together(name: str) -> None:
    drafter, seq = extended(COPIERS[name](), [3, 4, 5], steps=3)
    for budget, limit, expected in ((2, 9, [3, 4]), (9, 1, [3]), (0, 9, []), (9, 0, []), (9, 4, [3, 4, 5, 1])):
        assert proposal_of(drafter.propose(seq, DraftBudget(budget), limit)).tokens.tolist() == expected


def test_without_a_models_draft_the_copy_is_a_point_mass() -> None:
    drafter, seq = extended(PromptLookupDrafter(3, 1), [])
    proposal = proposal_of(drafter.propose(seq, DraftBudget(3), 9))
    assert proposal.tokens.tolist() == [3, 4, 5] and proposal.draft_probs is None


def test_without_a_copy_the_models_draft_stands() -> None:
    drafter, seq = extended(PromptLookupDrafter(3, 2), [0, 0])
    proposal = proposal_of(drafter.propose(seq, DraftBudget(9), 9))
    assert proposal.tokens.tolist() == [0, 0] and proposal.draft_probs is not None


def test_the_suffix_draft_is_taken_where_it_promises_as_much_as_the_model() -> None:
    """1 2 is there twice and was once followed by 3 4: probability 1/2 each, a score of 1."""
    for steps, expected, asked in ((1, [3, 4], []), (2, [0, 0], [2]), (3, [0, 0, 0], [3])):
        model = Scripted([0, 0, 0, 0])
        drafter, seq = SuffixOrModelDrafter(model, SuffixDrafter(), steps), context()
        drafter.begin(seq)
        assert proposal_of(drafter.propose(seq, DraftBudget(10), 9)).tokens.tolist() == expected
        assert model.asked == asked


def test_no_suffix_draft_never_beats_the_model() -> None:
    model = Scripted([3])
    drafter, seq = SuffixOrModelDrafter(model, SuffixDrafter(), 1), context([0, 1, 2, 3])
    drafter.begin(seq)
    assert proposal_of(drafter.propose(seq, DraftBudget(9), 9)).tokens.tolist() == [3] and model.asked == [1]
    assert proposal_of(drafter.propose(seq, DraftBudget(0), 9)).tokens.tolist() == [] and model.asked == [1]


def test_a_tree_after_tokens_it_did_not_read() -> None:
    tree = TextTree()
    tree.extend(TEXT)
    limits = Limits(8, 8, factor=2.0)
    assert best_draft(LookaheadTree(tree, []), limits) == best_draft(tree, limits)
    after = best_draft(LookaheadTree(tree, [3]), limits)
    assert after.tokens[:2] == (4, 5) and after.match_length == 3
    assert best_draft(LookaheadTree(tree, [5]), limits).tokens == ()
    assert best_draft(tree, limits).tokens[0] == 3


def test_only_the_chosen_copiers_parameters_and_memory_matter() -> None:
    method, settings = METHODS["extended"], Settings()
    copiers = {"max_ngram_size": "prompt_lookup", "top_k_filler": "ngram", "max_tree_depth": "suffix"}
    for copier in copiers.values():
        settings.assign("hybrid_copy", copier)
        names = {parameter.name for parameter in method.relevant(settings)}
        assert {"num_model_steps", "hybrid_copy"} < names
        assert [copiers[name] for name in copiers if name in names] == [copier]
        assert method.remembers(settings) == (copier == "suffix")


def test_where_room_is_left_for_one_draft_the_suffix_tree_has_to_promise_one() -> None:
    model, suffix, seq = Scripted([9, 9, 9]), SuffixDrafter(), context([1, 2])
    suffix.memory_tree.add([1, 2, 3])
    drafter = SuffixOrModelDrafter(model, suffix, 3)
    drafter.begin(seq)
    assert proposal_of(drafter.propose(seq, DraftBudget(8), 1)).tokens.tolist() == [3] and not model.asked


def test_a_head_drafts_a_tree_where_the_suffix_tree_has_nothing() -> None:
    settings = Settings()
    settings.assign_all([("hybrid_model", "mtp"), ("num_model_steps", "3"), ("draft_tree", "dynamic")])
    settings.assign_all([("tree_tokens", "6"), ("draft_weights", "full")])
    names = {parameter.name for parameter in METHODS["suffix_or_model"].relevant(settings)}
    assert {"draft_tree", "tree_width", "tree_tokens"} < names
    pair, text, found = toy_pair(), [1, 2, 3], []
    for name, rule in (("suffix_or_model", DraftBudget(8)), ("mtp", FixedGamma(3))):
        one, seq = DRAFTERS[name].build(pair, settings), context(text)
        seq.hidden = prefill(pair.target, text[:-1], one.needs_hidden)
        one.begin(seq)
        found.append(proposal_of(one.propose(seq, rule, 9)))
    assert found[0].tokens.tolist() == found[1].tokens.tolist() and len(found[0]) == 6
    assert list(found[0].parent_rows) == list(found[1].parent_rows) != list(range(-1, 5))


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        ("extended", "num_model_steps", "1"),
        ("extended", "hybrid_copy", "ngram"),
        ("suffix_or_model", "num_model_steps", "1"),
        ("suffix_or_model", "max_spec_factor", "3"),
    ],
)
def test_each_parameter_changes_something(name: str, parameter: str, value: str) -> None:
    """Parameters of their own; those of the parts are tested with the parts."""
    drafts = []
    for given in (None, value):
        settings = Settings()
        settings.assign("num_model_steps", "1" if parameter == "max_spec_factor" else "3")
        if given is not None:
            settings.assign(parameter, given)
        drafter = DRAFTERS[name].build(toy_pair(), settings)
        seq = context([0, 1, 2, 3, 4, 0, 1, 2, 3, 5, 0, 1, 2])
        drafter.begin(seq)
        drafts.append(proposal_of(drafter.propose(seq, DraftBudget(8), 9)).tokens.tolist())
    assert drafts[0] != drafts[1]

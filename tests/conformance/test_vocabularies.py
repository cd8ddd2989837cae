"""A drafter model of another tokenizer through the suite: by tokens of both vocabularies and by text."""

from collections import abc
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from egag.length_rule import LengthRule
from sampling.drafters.crossings.slem import SlemDrafter
from sampling.drafters.crossings.tli import TliDrafter
from sampling.forward.requests import StepGenerator
from sampling.forward.runner import request_forward
from sampling.methods.rules import CHOOSERS, CONTROLLERS
from sampling.methods.tables import DRAFTERS
from sampling.methods.verifiers import VERIFIERS
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from sampling.vocabularies.own_text import OwnText
from tests.conformance import suite
from tests.conformance.suite import Case
from tests.vocabularies import crossed_pair, thin_pair, twin_pair
from utils.events import Finished, Round
from utils.logits_processor import GreedyProcessor, MultinomialProcessor, NucleusProcessor

WAYS = ("tli", "slem")
PARTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "model": ("model", {}),
    "model + prompt lookup": ("extended", {"num_model_steps": 2}),
    "model + n-grams": ("extended", {"hybrid_copy": "ngram"}),
    "suffix or model": ("suffix_or_model", {"num_model_steps": 2}),
    "suffix tree or model": ("suffix_or_model", {"use_tree_spec": True, "min_token_prob": 0.0}),
    "auto": ("auto", {}),
}


def case(way: str, part: str = "model", rule: str = "fixed", judge: str = "rejection") -> Case:
    name, given = PARTS[part]
    values = {"vocabulary": way, "draft_weights": "full", **given}
    return Case(
        lambda pair: DRAFTERS[name].build(pair, values),
        lambda: CHOOSERS.get(name, CONTROLLERS[rule]).build(None, {}),
        lambda: VERIFIERS[judge].build(None, {}),
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("part", PARTS)
def test_greedy_output_is_that_of_autoregression(way: str, part: str) -> None:
    suite.check_greedy(case(way, part), crossed_pair())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rule", CONTROLLERS)
def test_every_rule_keeps_the_output(way: str, rule: str) -> None:
    pair = crossed_pair()
    suite.check_greedy(case(way, rule=rule), pair, prompts=1)
    events = suite.run(case(way, rule=rule), pair, MultinomialProcessor(1.0), 30)
    assert len(suite.output(events)) == 30


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("part", PARTS)
def test_sampled_output_has_the_targets_distribution(way: str, part: str) -> None:
    suite.check_law(case(way, part), crossed_pair(), MultinomialProcessor(1.0))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("judge", ["target_match"])
def test_other_verifiers_and_cut_distributions_keep_the_law(way: str, judge: str) -> None:
    suite.check_law(case(way, judge=judge), crossed_pair(), MultinomialProcessor(0.7))
    suite.check_law(case(way), crossed_pair(), NucleusProcessor(0.8, 0.9))
    suite.check_law(case(way), crossed_pair(), MultinomialProcessor(1.0), length=3)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("part", ["model", "model + prompt lookup", "suffix or model"])
def test_every_proposal_equals_a_redraft_without_cache(way: str, part: str) -> None:
    suite.check_redraft(case(way, part), crossed_pair())


@pytest.mark.parametrize("way", WAYS)
def test_a_twin_under_other_ids_is_accepted_whole(way: str) -> None:
    suite.check_self_draft(case(way), twin_pair(), GreedyProcessor())
    rounds = [one for one in suite.run(case(way), twin_pair(), GreedyProcessor(), 24) if isinstance(one, Round)]
    assert max(len(round.drafts) for round in rounds) == 4
    if way == "tli":
        suite.check_self_draft(case(way), twin_pair(), MultinomialProcessor(1.0))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stop", [frozenset({0}), frozenset({1, 5})])
def test_a_stop_token_ends_the_text_wherever_it_falls(way: str, stop: frozenset[int]) -> None:
    pair = crossed_pair(stop=stop)
    suite.check_greedy(case(way), pair)
    for number in range(20):
        events = suite.run(case(way), pair, MultinomialProcessor(1.0), 12, number)
        ids = suite.output(events)
        assert isinstance(events[-1], Finished) and not stop & set(ids[:-1])
        assert (ids[-1] in stop) == (events[-1].reason == "stop")


@pytest.mark.parametrize("way", WAYS)
def test_gamma_length_and_both_windows_are_kept(way: str) -> None:
    for length in (1, 2, 3, 7):
        assert len(suite.output(suite.run(case(way), twin_pair(), GreedyProcessor(), length))) == length
    suite.check_greedy(case(way), crossed_pair(window=13))
    pair = twin_pair()
    assert pair.drafter is not None
    small = replace(pair, drafter=pair.drafter.on(replace(pair.drafter.model, window=9)))  # type: ignore[type-var]
    suite.check_greedy(case(way), small, length=20)
    rounds = [one for one in suite.run(case(way), small, GreedyProcessor(), 20) if isinstance(one, Round)]
    assert any(round.drafts for round in rounds) and not rounds[-2].drafts


def test_tokens_that_are_not_shared_are_never_drafted_by_intersection() -> None:
    pair = crossed_pair()
    assert pair.crossing is not None
    rounds = suite.run(case("tli"), pair, MultinomialProcessor(3.0), 40)
    drafted = {token for one in rounds if isinstance(one, Round) for token in one.drafts}
    assert drafted and drafted <= set(pair.crossing.own_of)


class Unnormalised(TliDrafter):
    """The bug: q is the drafter's own probability of a token, which was drawn from the shared ones alone."""

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> StepGenerator[Proposal]:
        seen: list[Tensor] = []
        crossed = self._crossed

        def watched(logits: Tensor) -> Tensor:
            seen.append(torch.softmax(logits, -1)[:, self._own].sum(-1))
            return crossed(logits)

        self._crossed = watched  # type: ignore[method-assign]
        proposal = yield from super().propose(seq, gamma, limit)
        self._crossed = crossed  # type: ignore[method-assign]
        if proposal.draft_probs is None:
            return proposal
        return replace(proposal, draft_probs=proposal.draft_probs * torch.cat(seen[: len(proposal)]).unsqueeze(1))


class Misplaced(TliDrafter):
    """The bug: q stands at the ids beside those that were drawn."""

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> StepGenerator[Proposal]:
        proposal = yield from super().propose(seq, gamma, limit)
        return (
            proposal
            if proposal.draft_probs is None
            else replace(proposal, draft_probs=proposal.draft_probs.roll(1, -1))
        )


@pytest.mark.parametrize("broken", [Unnormalised, Misplaced])
def test_a_wrong_q_is_caught(broken: type[TliDrafter]) -> None:
    bad = replace(case("tli"), drafter=lambda pair: broken.build(pair, {"draft_weights": "full"}))
    with pytest.raises(AssertionError):
        suite.check_distribution(bad, thin_pair(), MultinomialProcessor(1.0))


def test_the_same_pair_passes_without_the_bug() -> None:
    suite.check_distribution(case("tli"), thin_pair(), MultinomialProcessor(1.0))


def test_ids_of_other_tokens_are_caught() -> None:
    """The output stays right, whatever is drafted: only the twin sees it."""

    class Wrong(TliDrafter):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self._own = self._own.roll(1)

    bad = replace(case("tli"), drafter=lambda pair: Wrong.build(pair, {"draft_weights": "full"}))
    suite.check_greedy(bad, twin_pair())
    with pytest.raises(AssertionError):
        suite.check_self_draft(bad, twin_pair(), GreedyProcessor())


class Stale(OwnText):
    """The bug: rows of the cache are counted and not compared with the text."""

    def request_catch_up(self, tokens: abc.Sequence[int]) -> StepGenerator[Tensor]:
        ids = self.ids(tokens)
        self._held = ids
        self.slot.crop(min(self.slot.length, len(ids) - 1))
        return (yield from request_forward(self.slot, ids[self.slot.length :], rows=1)).logits


class StaleDrafter(SlemDrafter):
    def begin(self, seq: Sequence) -> None:
        text = seq.drafter_state[self] = Stale(self.runner.another(), self.crossing)
        text.begin(seq.tokens)


def test_a_cache_that_keeps_what_the_text_does_not_say_is_caught() -> None:
    bad = replace(case("slem"), drafter=lambda pair: StaleDrafter.build(pair, {"draft_weights": "full"}))
    suite.check_greedy(bad, crossed_pair())
    with pytest.raises(AssertionError):
        suite.check_redraft(bad, crossed_pair(), honest=case("slem"))

"""Every drafter, controller and lossless verifier of the tables, and trees, through the same suite."""

from dataclasses import replace
from itertools import product

import pytest

from egag.length_rule import LengthRule
from sampling.drafter import proposal_of
from sampling.forward.tree import depths
from sampling.loop import decode
from sampling.methods.rules import CHOOSERS, CONTROLLERS
from tests.conformance import suite
from tests.conformance.matrix import (
    NAMES,
    build_drafter,
    case,
    drafter_seeds,
    greedy_combinations,
    rules_of,
    ways,
)
from tests.conformance.toy import PROMPT, toy_pair, toy_runner
from tests.refusals import refused
from tests.sequences import sequence
from utils.events import Finished, Round
from utils.logits_processor import (
    GreedyProcessor,
    MultinomialProcessor,
)

# What these draft depends on the target's rows of earlier rounds, not on the text alone.
LEARN_FROM_VERDICTS = ("ngram", "recycling", "logitspec", "model + n-grams", "hedge")


@pytest.mark.parametrize("combination", greedy_combinations(), ids="-".join)
def test_greedy_output_is_that_of_autoregression(combination: tuple[str, str, str]) -> None:
    """On four prompts where a drafter comes first, and on one with its other rules and verifiers."""
    drafter, rule, judge = combination
    first = (rule, judge) == (rules_of(drafter)[0], "rejection")
    suite.check_greedy(case(*combination), toy_pair(), prompts=4 if first else 1)


@pytest.mark.parametrize("drafter", ["none", "model", "staged", "staged eagle dynamic"])
def test_a_drafter_that_is_the_target_is_accepted_whole(drafter: str) -> None:
    for processor in (GreedyProcessor(), MultinomialProcessor(1.0)):
        suite.check_self_draft(case(drafter), toy_pair(drafter_seed=None), processor)


@pytest.mark.parametrize("drafter", [name for name in NAMES if name not in LEARN_FROM_VERDICTS])
def test_every_proposal_equals_a_redraft_without_cache(drafter: str) -> None:
    suite.check_redraft(case(drafter), toy_pair())


class EverySecond(LengthRule):
    """Four drafts, none, four, and so on."""

    gamma = 4

    def begin(self) -> None:
        self.gamma = 4

    def update(self, round: Round) -> None:
        self.gamma = 4 - self.gamma


@pytest.mark.parametrize("drafter", [name for name in ways() if name not in (*LEARN_FROM_VERDICTS, *CHOOSERS)])
def test_a_round_without_drafts_leaves_no_row_of_a_rejected_draft(drafter: str) -> None:
    suite.check_redraft(replace(case(drafter), gamma=EverySecond), toy_pair())


@pytest.mark.parametrize("drafter", ways())
def test_a_stop_token_ends_the_text_wherever_it_falls(drafter: str) -> None:
    for seed, stop in product(drafter_seeds(drafter), ({2}, {0, 3}, {5})):
        pair = toy_pair(drafter_seed=seed, stop=frozenset(stop))
        suite.check_greedy(case(drafter), pair, prompts=1)
        for seq, end in suite.run_many(case(drafter), pair, MultinomialProcessor(1.0), 10, 12):
            ids = seq.tokens[seq.prompt_length :]
            assert not stop & set(ids[:-1])
            assert (ids[-1] in stop) == (end.reason == "stop")


@pytest.mark.parametrize("drafter", ways())
def test_no_more_tokens_than_asked(drafter: str) -> None:
    for length, pair in product((1, 2, 3, 7), (toy_pair(), toy_pair(drafter_seed=None))):
        events = suite.run(case(drafter), pair, GreedyProcessor(), length)
        assert len(suite.output(events)) == length
        assert events[-1] == Finished("length", length)


@pytest.mark.parametrize("drafter", ways())
def test_a_full_context_window_ends_the_text(drafter: str) -> None:
    pair = toy_pair(window=len(PROMPT) + 9)
    suite.check_greedy(case(drafter), pair, prompts=1)
    events = suite.run(case(drafter), pair, GreedyProcessor(), 100)
    assert events[-1] == Finished("context", 9)


def test_a_prompt_that_fills_the_window_is_refused() -> None:
    pair = toy_pair(window=len(PROMPT))
    with refused("prompt", len(PROMPT), "context window"):
        suite.run(case("none"), pair, GreedyProcessor(), 1)


@pytest.mark.parametrize("drafter", ["model", "staged", "staged medusa dynamic", "staged suffix"])
def test_a_drafter_with_a_smaller_window_stops_drafting(drafter: str) -> None:
    pair = replace(toy_pair(), drafter=toy_runner(1, window=len(PROMPT) + 5))
    suite.check_greedy(case(drafter), pair, length=20)
    rounds = [event for event in suite.run(case(drafter), pair, GreedyProcessor(), 20) if isinstance(event, Round)]
    assert any(round.drafts for round in rounds)
    assert not rounds[-2].drafts


@pytest.mark.parametrize("drafter", ways())
def test_the_same_seed_gives_the_same_run(drafter: str) -> None:
    pair = toy_pair()
    runs = [suite.output(suite.run(case(drafter), pair, MultinomialProcessor(1.0), 16, seed=7)) for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0] != suite.output(suite.run(case(drafter), pair, MultinomialProcessor(1.0), 16, seed=8))


@pytest.mark.parametrize("drafter", ways())
def test_a_run_that_is_closed_early_leaves_nothing_behind(drafter: str) -> None:
    """But for what it declares to remember."""
    pair = toy_pair()
    combination = case(drafter, forgetful=True)
    used = combination.drafter(pair)
    stream = decode(
        pair.target, used, combination.gamma(), combination.verifier(), GreedyProcessor(), (3, 3, 1, 5),
        max_new_tokens=20, seed=0,
    )  # fmt: skip
    taken = [next(stream) for _ in range(4)]
    assert pair.target.length == 4 + len(suite.output(taken)) - 1
    stream.close()
    after = suite.run(combination, pair, GreedyProcessor(), 20, drafter=used)
    fresh = suite.run(combination, toy_pair(), GreedyProcessor(), 20)
    assert [e.drafts for e in after if isinstance(e, Round)] == [e.drafts for e in fresh if isinstance(e, Round)]
    assert suite.output(after) == suite.output(fresh)


@pytest.mark.parametrize("drafter", [name for name in NAMES if name not in CHOOSERS])
def test_a_drafter_never_exceeds_gamma_or_the_limit(drafter: str) -> None:
    pair = toy_pair()
    built = build_drafter(drafter, pair)
    for gamma in (0, 1, 3):
        for limit in (0, 1, 5):
            seq = sequence([*PROMPT, 1, 4, 2], pair.target, prompt_length=len(PROMPT))
            built.begin(seq)
            proposal = proposal_of(built.propose(seq, CONTROLLERS["fixed"].build(None, {"gamma": gamma}), limit))
            deepest = max(depths(proposal.parent_rows), default=0)
            assert deepest <= min(gamma, limit)

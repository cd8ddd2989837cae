"""Every drafter, controller and lossless verifier of the tables, and trees, through the same suite."""

from dataclasses import replace

import pytest

from egag.length_rule import LengthRule
from sampling.drafter import proposal_of
from sampling.forward.tree import depths
from sampling.loop import decode
from sampling.methods.rules import CHOOSERS, CONTROLLERS
from sampling.methods.tables import VERIFIERS
from tests.conformance import suite
from tests.conformance.matrix import (
    NAMES,
    build_drafter,
    case,
    cut_drafters,
    drafter_seeds,
    greedy_combinations,
    meets_all_sampled,
    rules_of,
    sampled_combinations,
    trait,
)
from tests.conformance.toy import PROMPT, toy_pair, toy_runner
from tests.sequences import sequence
from utils.errors import UserError
from utils.events import Finished, Round
from utils.logits_processor import (
    GreedyProcessor,
    LogitsProcessor,
    MultinomialProcessor,
    NucleusProcessor,
    TopKNucleusProcessor,
)

# What these draft depends on the target's rows of earlier rounds, not on the text alone.
LEARN_FROM_VERDICTS = ("ngram", "recycling", "logitspec", "model + n-grams")
CUT = [
    *(pytest.param(NucleusProcessor(0.8, 0.9), name, id=f"nucleus-{name}") for name in cut_drafters(every_form=True)),
    # Cuts as the one above does, and by rank before.
    *(
        pytest.param(TopKNucleusProcessor(1.3, 4, 0.95), name, id=f"topknucleus-{name}")
        for name in cut_drafters(every_form=False)
    ),
]


@pytest.mark.parametrize("combination", greedy_combinations(), ids="-".join)
def test_greedy_output_is_that_of_autoregression(combination: tuple[str, str, str]) -> None:
    suite.check_greedy(case(*combination), toy_pair())


@pytest.mark.parametrize("combination", sampled_combinations(), ids="-".join)
def test_sampled_output_has_the_targets_distribution(combination: tuple[str, str, str]) -> None:
    drafter, rule, _ = combination
    many = rule == rules_of(drafter)[0] or meets_all_sampled(drafter) or not trait(drafter).distribution
    runs = suite.RUNS if many else suite.FEW_RUNS
    suite.check_law(case(*combination), toy_pair(), MultinomialProcessor(1.0), runs=runs)


@pytest.mark.parametrize(("processor", "drafter"), CUT)
def test_a_cut_distribution_is_kept(processor: LogitsProcessor, drafter: str) -> None:
    suite.check_law(case(drafter), toy_pair(), processor)


@pytest.mark.parametrize("drafter", ["model", "sampled tree", "suffix tree", "staged", "staged suffix"])
def test_three_tokens_through_several_rounds_keep_the_distribution(drafter: str) -> None:
    suite.check_law(case(drafter), toy_pair(), TopKNucleusProcessor(1.0, 3, 1.0), length=3)


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


@pytest.mark.parametrize("drafter", [name for name in NAMES if name not in (*LEARN_FROM_VERDICTS, *CHOOSERS)])
def test_a_round_without_drafts_leaves_no_row_of_a_rejected_draft(drafter: str) -> None:
    suite.check_redraft(replace(case(drafter), gamma=EverySecond), toy_pair())


@pytest.mark.parametrize("drafter", NAMES)
@pytest.mark.parametrize("stop", [frozenset({2}), frozenset({0, 3}), frozenset({5})])
def test_a_stop_token_ends_the_text_wherever_it_falls(drafter: str, stop: frozenset[int]) -> None:
    for seed in drafter_seeds(drafter):
        pair = toy_pair(drafter_seed=seed, stop=stop)
        suite.check_greedy(case(drafter), pair)
        for number in range(20):
            events = suite.run(case(drafter), pair, MultinomialProcessor(1.0), 12, number)
            ids = suite.output(events)
            assert isinstance(events[-1], Finished)
            assert not stop & set(ids[:-1])
            assert (ids[-1] in stop) == (events[-1].reason == "stop")


@pytest.mark.parametrize("drafter", NAMES)
@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_no_more_tokens_than_asked(drafter: str, length: int) -> None:
    for pair in (toy_pair(), toy_pair(drafter_seed=None)):
        events = suite.run(case(drafter), pair, GreedyProcessor(), length)
        assert len(suite.output(events)) == length
        assert events[-1] == Finished("length", length)


@pytest.mark.parametrize("drafter", NAMES)
def test_a_full_context_window_ends_the_text(drafter: str) -> None:
    pair = toy_pair(window=len(PROMPT) + 9)
    suite.check_greedy(case(drafter), pair)
    events = suite.run(case(drafter), pair, GreedyProcessor(), 100)
    assert events[-1] == Finished("context", 9)


def test_a_prompt_that_fills_the_window_is_refused() -> None:
    pair = toy_pair(window=len(PROMPT))
    with pytest.raises(UserError, match="context window"):
        suite.run(case("none"), pair, GreedyProcessor(), 1)


@pytest.mark.parametrize("drafter", ["model", "staged", "staged medusa dynamic", "staged suffix"])
def test_a_drafter_with_a_smaller_window_stops_drafting(drafter: str) -> None:
    pair = replace(toy_pair(), drafter=toy_runner(1, window=len(PROMPT) + 5))
    suite.check_greedy(case(drafter), pair, length=20)
    rounds = [event for event in suite.run(case(drafter), pair, GreedyProcessor(), 20) if isinstance(event, Round)]
    assert any(round.drafts for round in rounds)
    assert not rounds[-2].drafts


@pytest.mark.parametrize("drafter", NAMES)
def test_the_same_seed_gives_the_same_run(drafter: str) -> None:
    pair = toy_pair()
    runs = [suite.output(suite.run(case(drafter), pair, MultinomialProcessor(1.0), 20, seed=7)) for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0] != suite.output(suite.run(case(drafter), pair, MultinomialProcessor(1.0), 20, seed=8))


@pytest.mark.parametrize("drafter", NAMES)
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
    assert statistic > suite.chi2.isf(suite.FALSE_ALARM, freedom)

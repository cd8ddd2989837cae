"""Chosen acceptance: what passes is a matter of the rates alone, what follows is the target's."""

from collections import Counter
from typing import cast

import pytest
import torch

from egag.length_rule import FixedGamma
from sampling.batch import Batch, decode_many
from sampling.measure.metrics import RunMetrics
from sampling.methods.settings import PARAMETERS, Settings
from sampling.methods.tables import METHODS
from sampling.methods.verifiers import make_verifier
from sampling.proof.memo import memorised
from sampling.proposal import Proposal
from sampling.scheduling.live_text import Request
from sampling.verify.synthetic import SyntheticVerifier
from tests.conformance import suite
from tests.conformance.matrix import build_drafter
from tests.conformance.toy import PROMPT, toy_pair
from tests.refusals import refused
from tests.verdicts import many_verdicts
from utils.events import Round
from utils.logits_processor import GreedyProcessor, LogitsProcessor, MultinomialProcessor

RATES = (0.8, 0.5, 0.25)
# Of a share that is estimated from n rounds: four and a half standard deviations, 1 false alarm in 150 000.
WIDTH = 4.5


def settings(**values: str) -> Settings:
    made = Settings()
    made.assign_all([("accept_policy", "synthetic"), *values.items()])
    return made


def check_rates(account: RunMetrics, rates: tuple[float, ...]) -> None:
    """The share of the rounds that judged a position and accepted it is the rate of the position."""
    for place, (accepted, tested) in enumerate(zip(account.accepted_at, account.tested_at, strict=False)):
        rate = rates[min(place, len(rates) - 1)]
        noise = WIDTH * (rate * (1 - rate) / tested) ** 0.5
        assert abs(accepted / tested - rate) <= noise, f"position {place + 1}: {accepted} of {tested}, not {rate}"


def played(drafter: str, processor: LogitsProcessor, verifier: SyntheticVerifier, runs: int = 150) -> RunMetrics:
    """What many short runs of a drafter say together; a stop token would cut rounds by what they drafted."""
    (memo, target), account = memorised(toy_pair(stop=frozenset())), RunMetrics()
    batch = Batch(target, build_drafter(drafter, memo), lambda: FixedGamma(5), verifier, suite.AT_ONCE)
    requests = (Request([*PROMPT], processor, 14, seed, frozenset()) for seed in range(runs))
    for _, event in decode_many(batch, requests):
        if isinstance(event, Round):
            account.add(event)
    return account


# Each form of a proposal: drafts drawn and copied, in chains and in trees, of one drafter, of two and of two stages.
FORMS = [
    "model", "prompt_lookup", "suffix tree", "sampled tree", "point tree", "medusa dynamic tree", "eagle drawn tree",
    "extended", "staged",
]  # fmt: skip


@pytest.mark.parametrize("drafter", FORMS)
def test_acceptance_by_position_is_what_was_chosen_whoever_drafts(drafter: str) -> None:
    account = played(drafter, MultinomialProcessor(1.0), SyntheticVerifier(RATES), runs=25)
    assert account.tested > 60
    check_rates(account, RATES)


@pytest.mark.parametrize("drafter", ["model", "sampled tree", "point tree"])
def test_the_last_rate_repeats_and_greedy_is_no_exception(drafter: str) -> None:
    account = played(drafter, GreedyProcessor(), SyntheticVerifier((0.9, 0.6)))
    check_rates(account, (0.9, 0.6))


def test_the_target_and_the_drafter_are_not_asked() -> None:
    """A draft that the target rules out passes at the rate, and one that it is sure of fails at it."""
    p = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    for draft in (0, 1):
        rng = torch.Generator().manual_seed(draft)
        end, _ = many_verdicts(SyntheticVerifier((0.3,)), Proposal(torch.tensor([draft])), p, 2000, rng)
        assert float((end >= 0).float().mean()) == pytest.approx(0.3, abs=0.05)


def test_what_follows_the_path_is_drawn_from_the_target() -> None:
    p = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.3, 0.6, 0.1]])
    rng = torch.Generator().manual_seed(0)
    end, drawn = many_verdicts(SyntheticVerifier((0.6, 0.6)), Proposal(torch.tensor([0, 0])), p, 6000, rng)
    for accepted, row in enumerate(p.tolist()):
        counts = Counter(drawn[end + 1 == accepted].tolist())
        for token, chance in enumerate(row):
            noise = WIDTH * (chance * (1 - chance) / counts.total()) ** 0.5
            assert abs(counts[token] / counts.total() - chance) <= noise


def test_a_position_of_a_tree_counts_once() -> None:
    """Root -> 0 | 1 | 2; below 1 -> 3. The path is 1, 3: at rates of 1 and 0 the first passes and the second never."""
    tree = Proposal(torch.tensor([0, 1, 2, 0]), (-1, -1, -1, 1))
    p = torch.full((5, 3), 1 / 3)
    rng = torch.Generator().manual_seed(0)
    assert SyntheticVerifier((1.0,)).verify(tree, p, rng).path == (1, 3)
    assert {SyntheticVerifier((1.0, 0.0)).verify(tree, p, rng).path for _ in range(20)} == {(1,)}
    first = Counter(SyntheticVerifier((0.4, 0.0)).verify(tree, p, rng).path for _ in range(2000))
    assert set(first) == {(), (1,)} and first[(1,)] / 2000 == pytest.approx(0.4, abs=0.05)


@pytest.mark.parametrize(
    ("length", "rates"), [("2.6", (1.0, 0.6, 0.0)), ("1", (0.0, 0.0)), ("3", (1.0, 1.0, 0.0, 0.0)), ("1.5", (0.5, 0.0))]
)
def test_a_length_is_spread_with_the_least_variance(length: str, rates: tuple[float, ...]) -> None:
    """The examples of 2.6 and 3 are vLLM's, in conditional rates."""
    built = make_verifier(METHODS["speculative"], settings(accept_length=length))
    assert isinstance(built, SyntheticVerifier)
    assert built.rates == pytest.approx(rates)


def test_rounds_of_a_chosen_length_bring_it_on_average_and_differ_by_one() -> None:
    account = played("model", MultinomialProcessor(1.0), SyntheticVerifier(accept_length=3.4), runs=300)
    # The last round of a run has no room for all that it could bring.
    whole = [count for count in account.tokens_by_round if count >= 3]
    assert set(whole) == {3, 4}
    mean = sum(whole) / len(whole)
    assert mean == pytest.approx(3.4, abs=0.06)


def test_it_is_lossy_under_every_processor_and_only_its_own_parameters_matter() -> None:
    method = METHODS["speculative"]
    for processor in (GreedyProcessor(), MultinomialProcessor(1.0)):
        assert not make_verifier(method, settings()).lossless(processor)
    judging = ["verify_strategy", "accept_policy"]
    assert [p.name for p in method.relevant(Settings())][-2:] == judging
    by_rates, by_length = settings(accept_rates="0.5"), settings(accept_length="2")
    assert [p.name for p in method.relevant(by_rates)][-3:] == ["accept_policy", "accept_rates", "accept_length"]
    assert [p.name for p in method.relevant(by_length)][-2:] == ["accept_policy", "accept_length"]
    assert cast(SyntheticVerifier, make_verifier(method, by_rates)).rates == (0.5,)


def test_rates_are_numbers_between_commas() -> None:
    rates = PARAMETERS["accept_rates"]
    assert rates.parse("0.8, .6,4e-1") == (0.8, 0.6, 0.4)
    assert rates.show((0.8, 0.6, 0.4)) == "0.8,0.6,0.4" and rates.parse("1") == (1.0,)
    assert rates.checked([0.5, 0.25]) == rates.checked((0.5, 0.25)) == rates.checked("0.5,0.25") == (0.5, 0.25)
    for wrong in ("", "0.8,", "1.2", "0.5 0.4", "nan", "-0.1", "a"):
        with refused("accept_rates", repr(wrong), rates.usage):
            rates.parse(wrong)
    with refused("accept_length", "'0.5'", 1, 0):
        PARAMETERS["accept_length"].parse("0.5")

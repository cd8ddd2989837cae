"""Lossy ways to judge, on distributions of a few numbers."""

import math

import pytest
import torch

from sampling.methods.settings import Settings
from sampling.methods.tables import METHODS
from sampling.methods.verifiers import make_verifier
from sampling.proposal import Proposal
from sampling.verify.lossy import (
    AcceptAllVerifier,
    RejectAllVerifier,
    TopPVerifier,
    TypicalVerifier,
    UnadjustedVerifier,
)
from sampling.verify.rejection import RejectionVerifier
from sampling.verify.verifier import Verifier
from tests.refusals import refused
from utils.errors import UnknownName
from utils.logits_processor import GreedyProcessor, MultinomialProcessor

P = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]])


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def chain(*tokens: int) -> Proposal:
    return Proposal(torch.tensor(tokens, dtype=torch.long))


@pytest.mark.parametrize(
    ("drafts", "path"),
    [((0, 3), (0, 1)), ((1, 2), (0, 1)), ((2, 3), ()), ((0, 0), (0,)), ((), ())],
)
def test_topp_accepts_inside_the_set_and_nothing_outside(drafts: tuple[int, ...], path: tuple[int, ...]) -> None:
    """Mass 0.8: the sets are {0, 1} at the root, {3, 2, 1} after the first draft."""
    verdict = TopPVerifier(0.8).verify(chain(*drafts), P[: len(drafts) + 1], rng())
    assert verdict.path == path


def test_topp_draws_the_next_token_from_its_set() -> None:
    drawn = {TopPVerifier(0.8).verify(chain(2), P[:2], rng(seed)).token for seed in range(60)}
    assert drawn == {0, 1}


def test_typical_asks_more_of_a_draft_where_the_target_is_sure() -> None:
    """Uniform over four: H = ln 4, threshold min(0.3, 0.6 / 4) = 0.15 < 0.25. Root: H = 1.142, 0.6 * 0.319 = 0.192."""
    verifier = TypicalVerifier(typical_epsilon=0.3, typical_delta=0.6)
    entropy = -sum(x * math.log(x) for x in P[0].tolist())
    assert 0.6 * math.exp(-entropy) == pytest.approx(0.1915, abs=1e-3)
    assert verifier.verify(chain(1), P[:2], rng()).path == (0,)
    assert verifier.verify(chain(2), P[:2], rng()).path == ()
    assert verifier.verify(chain(0, 3, 0), torch.cat([P, P[:1]]), rng()).path == (0, 1, 2)
    assert TypicalVerifier(0.09, 0.6).verify(chain(2), P[:2], rng()).path == (0,)


def test_the_deepest_allowed_path_of_a_tree_is_taken() -> None:
    """Root -> 0 | 1; below 1 -> 3. Both first drafts pass, the second leads further."""
    tree = Proposal(torch.tensor([0, 1, 3]), (-1, -1, 1))
    p = torch.stack([P[0], P[2], P[1], P[2]])
    verdict = TopPVerifier(0.8).verify(tree, p, rng())
    assert verdict.path == (1, 2)
    assert AcceptAllVerifier().verify(tree, p, rng()).path == (1, 2)
    blocked = Proposal(torch.tensor([0, 2, 3]), (-1, -1, 1))
    assert TopPVerifier(0.8).verify(blocked, p, rng()).path == (0,)


def test_the_bounds_take_all_or_nothing() -> None:
    verdict = AcceptAllVerifier().verify(chain(2, 0), P, rng())
    assert verdict.path == (0, 1)
    verdict = RejectAllVerifier().verify(chain(0, 3), P, rng())
    assert verdict.path == ()
    drawn = [RejectAllVerifier().verify(chain(0), P[:2], rng(seed)).token for seed in range(400)]
    assert drawn.count(0) / 400 == pytest.approx(0.5, abs=0.08)


def test_without_the_adjustment_a_rejected_draft_may_be_drawn_again() -> None:
    """A sure draft of chance 1/2 comes out in 1/2 + 1/2 * 1/2 of the cases; with the adjustment in 1/2."""
    shares = []
    for verifier in (UnadjustedVerifier(), RejectionVerifier()):
        verdicts = [verifier.verify(chain(0), P[:2], rng(seed)) for seed in range(800)]
        shares.append(sum(bool(verdict.path) or verdict.token == 0 for verdict in verdicts) / 800)
    assert shares == [pytest.approx(0.75, abs=0.05), pytest.approx(0.5, abs=0.05)]


@pytest.mark.parametrize("verifier", [TopPVerifier(), TypicalVerifier(), UnadjustedVerifier()])
def test_under_greedy_they_are_the_argmax(verifier: Verifier) -> None:
    one_hot = GreedyProcessor()(P.log())
    assert verifier.verify(chain(0, 3), one_hot, rng()).path == (0, 1)
    rejected = verifier.verify(chain(1), one_hot[:2], rng())
    assert (rejected.path, rejected.token) == ((), 0)
    assert verifier.lossless(GreedyProcessor()) and not verifier.lossless(MultinomialProcessor(1.0))


def test_settings_choose_who_judges() -> None:
    settings, method = Settings(), METHODS["speculative"]
    assert isinstance(make_verifier(method, settings), RejectionVerifier)
    settings.assign_all([("verify_strategy", "topp"), ("verify_top_p", "0.5")])
    chosen = make_verifier(method, settings)
    assert isinstance(chosen, TopPVerifier) and chosen.top_p == 0.5
    assert isinstance(make_verifier(METHODS["target"], settings), RejectionVerifier)
    settings.assign("accept_policy", "accept_all")
    assert isinstance(make_verifier(method, settings), AcceptAllVerifier)
    with refused("verify_strategy", "'tipical'", error=UnknownName) as caught:
        settings.assign("verify_strategy", "tipical")
    assert caught.value.near == "typical"


def test_only_the_chosen_strategys_parameters_matter() -> None:
    settings, method = Settings(), METHODS["speculative"]
    assert {"verify_top_p", "typical_delta"} < {p.name for p in method.parameters}
    settings.assign("verify_strategy", "topp")
    assert [p.name for p in method.relevant(settings)] == [
        *("draft_weights", "vocabulary", "draft_rule", "gamma", "verify_strategy", "accept_policy", "verify_top_p")
    ]
    assert [p.name for p in METHODS["target"].parameters] == []

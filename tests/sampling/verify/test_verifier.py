"""Verdicts on distributions written by hand."""

from collections import Counter

import pytest
import torch

from sampling.proposal import Proposal
from sampling.verify.block import BlockVerifier
from sampling.verify.match import GreedyVerifier, TargetMatchVerifier
from sampling.verify.proposals import ProposalBatch
from sampling.verify.rejection import RejectionVerifier, residual
from sampling.verify.traversal import TraversalVerifier
from sampling.verify.verdict import distribution_of
from sampling.verify.verifier import Verifier
from tests.refusals import refused
from tests.verdicts import many_verdicts
from utils.logits_processor import GreedyProcessor, MultinomialProcessor


def one_hot(*tokens: int, size: int = 10) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(tokens), size).float()


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


CHAIN = torch.tensor([5, 7, 9])
EVERY = [RejectionVerifier(), BlockVerifier(), TraversalVerifier(), TargetMatchVerifier(), GreedyVerifier()]


@pytest.mark.parametrize("verifier", EVERY, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize(
    ("target", "path", "token"),
    [
        ((5, 7, 9, 2), (0, 1, 2), 2),
        ((5, 7, 4, 2), (0, 1), 4),
        ((1, 7, 9, 2), (), 1),
    ],
    ids=["always", "sometimes", "never"],
)
@pytest.mark.parametrize("point_mass", [True, False])
def test_a_chain_under_greedy(
    verifier: Verifier, target: tuple[int, ...], path: tuple[int, ...], token: int, point_mass: bool
) -> None:
    proposal = Proposal(CHAIN, None, None if point_mass else one_hot(5, 7, 9))
    verdict = verifier.verify(proposal, one_hot(*target), rng())
    assert (verdict.path, verdict.token) == (path, token)
    assert verdict.q == (1.0, 1.0, 1.0)
    assert verdict.p == tuple(float(want == got) for want, got in zip(target, (5, 7, 9), strict=False))


def test_a_draft_without_a_distribution_is_a_point_mass() -> None:
    p = one_hot(1, 2, 3, 4)
    drawn = one_hot(5, 7, 9) * 0.5 + 0.05
    for row, token in enumerate(CHAIN.tolist()):
        assert distribution_of(Proposal(CHAIN), torch.tensor(row), p).equal(one_hot(token)[0])
        assert distribution_of(Proposal(CHAIN, None, drawn), torch.tensor(row), p).equal(drawn[row])


def test_without_drafts_there_is_nothing_of_drafts() -> None:
    p, device = torch.rand(2, 10), torch.device("cpu")
    proposals = ProposalBatch([Proposal.empty(device)] * 2, device)
    assert proposals.of_drafts(p).shape == (0,) and proposals.total == 0


@pytest.mark.parametrize("verifier", EVERY, ids=lambda v: type(v).__name__)
def test_a_tree_under_greedy(verifier: Verifier) -> None:
    """root -> 5, 6; 5 -> 1, 2; 6 -> 3: the target says 6, 3, 8."""
    proposal = Proposal(torch.tensor([5, 6, 1, 2, 3]), (-1, -1, 0, 0, 1))
    p = one_hot(6, 1, 3, 0, 0, 8)
    verdict = verifier.verify(proposal, p, rng())
    assert (verdict.path, verdict.token) == ((1, 4), 8)


@pytest.mark.parametrize("verifier", EVERY, ids=lambda v: type(v).__name__)
def test_an_empty_proposal_is_plain_autoregression(verifier: Verifier) -> None:
    verdict = verifier.verify(Proposal.empty(torch.device("cpu")), one_hot(4), rng())
    assert (verdict.path, verdict.token) == ((), 4)


def test_a_point_mass_is_accepted_with_probability_p_and_leaves_the_residual() -> None:
    """x = 0 with p(x) = 0.3: accepted in 30 % of draws, never drawn again after a rejection."""
    p = torch.tensor([[0.3, 0.5, 0.2], [1.0, 0.0, 0.0]])
    end, token = many_verdicts(RejectionVerifier(), Proposal(torch.tensor([0])), p, 4000, rng())
    assert set(token[end < 0].tolist()) == {1, 2}
    accepted = int((end >= 0).sum())
    assert abs(accepted / 4000 - 0.3) < 5 * (0.3 * 0.7 / 4000) ** 0.5


def test_rejection_accepts_min_p_q_where_target_match_accepts_p_q() -> None:
    """p = (0.6, 0.4), q = (0.5, 0.5): sum min(p, q) = 0.9 against sum p q = 0.5."""
    p, q = torch.tensor([[0.6, 0.4], [1.0, 0.0]]), torch.tensor([[0.5, 0.5]])
    rates = []
    for verifier in (RejectionVerifier(), TargetMatchVerifier()):
        generator, accepted = rng(), 0
        for draft, times in Counter(torch.multinomial(q[0], 4000, True, generator=generator).tolist()).items():
            end, _ = many_verdicts(verifier, Proposal(torch.tensor([draft]), None, q), p, times, generator)
            accepted += int((end >= 0).sum())
        rates.append(accepted / 4000)
    assert abs(rates[0] - 0.9) < 0.03
    assert abs(rates[1] - 0.5) < 0.04


def test_residual_by_hand() -> None:
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.6, 0.2])
    assert torch.allclose(residual(p, q), torch.tensor([1.0, 0.0, 0.0]))
    assert torch.allclose(residual(p, torch.tensor([0.4, 0.2, 0.4])), torch.tensor([0.5, 0.5, 0.0]))


def test_a_residual_without_mass_is_p_itself() -> None:
    p = torch.tensor([0.5, 0.3, 0.2])
    assert torch.equal(residual(p, p), p)


def test_arguments_are_left_as_they_were() -> None:
    p, q = torch.rand(3, 6).softmax(-1), torch.rand(2, 6).softmax(-1)
    proposal = Proposal(torch.tensor([1, 2]), None, q)
    before = p.clone(), q.clone(), proposal.tokens.clone()
    for verifier in EVERY:
        verifier.verify(proposal, p, rng())
    assert all(torch.equal(a, b) for a, b in zip(before, (p, q, proposal.tokens), strict=True))


def test_greedy_is_lossless_under_greedy_only() -> None:
    assert GreedyVerifier().lossless(GreedyProcessor())
    assert not GreedyVerifier().lossless(MultinomialProcessor(1.0))


@pytest.mark.parametrize("verifier", EVERY, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("draft", [0, 3, 9])
@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_no_draft_is_accepted_where_the_target_says_nothing(verifier: Verifier, draft: int, broken: float) -> None:
    """Token 9 is the last one, where a search for NaN ends."""
    for logits in (torch.full((10,), broken), torch.arange(10.0).index_fill(0, torch.tensor([3]), broken)):
        p = GreedyProcessor()(torch.stack([logits, torch.arange(10.0)]))
        assert p[0].isnan().all() and not p[1].isnan().any()
        with refused("NaN", "logits", "float32"):
            verifier.verify(Proposal(torch.tensor([draft])), p, rng())


def test_a_sibling_that_is_there_twice_has_one_chance() -> None:
    """Of point masses 0, 0 and 1 at the root: what comes first has the root's distribution all the same."""
    root = torch.tensor([0.3, 0.2, 0.5])
    p = torch.stack([root, *[torch.full((3,), 1 / 3)] * 3])
    proposal, runs = Proposal(torch.tensor([0, 0, 1]), (-1, -1, -1)), 20_000
    ends, tokens = many_verdicts(RejectionVerifier(), proposal, p, runs, rng())
    first = torch.where(ends < 0, tokens, proposal.tokens[ends.clamp(min=0)])
    shares = torch.bincount(first, minlength=3) / runs
    assert bool(((shares - root).abs() < 5 * (root * (1 - root) / runs).sqrt()).all()), shares

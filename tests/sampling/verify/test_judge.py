"""The verdict of a round from raw logits: under greedy it is read off the best tokens, and must be the verifier's."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling.forward.models import lean
from sampling.forward.runner import ModelRunner
from sampling.forward.tree import depths
from sampling.proposal import Proposal
from sampling.verify.block import BlockVerifier
from sampling.verify.match import GreedyVerifier, TargetMatchVerifier
from sampling.verify.proposals import ProposalBatch
from sampling.verify.rejection import RejectionVerifier
from sampling.verify.traversal import TraversalVerifier
from sampling.verify.verdict import DeviceVerdict, Verdict, whole
from sampling.verify.verifier import Verifier
from sampling.verify.verify import EagerVerification, RoundInput
from tests.refusals import refused
from tests.sequences import sequence
from tests.tiny import llama, random_model
from utils.logits_processor import GreedyProcessor, LogitsProcessor
from utils.numbers.random_numbers import RNG

VOCAB = 12
VERIFIERS = [RejectionVerifier(), BlockVerifier(), TraversalVerifier(), TargetMatchVerifier(), GreedyVerifier()]
RUNNER = ModelRunner(lean.from_transformers(random_model(llama())))


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def judged(verifier: Verifier, processor: LogitsProcessor, proposal: Proposal, logits: torch.Tensor) -> Verdict:
    """The verdict of a round of one text."""
    (verdict,) = EagerVerification(verifier).run([RoundInput(sequence([1], RUNNER, processor), proposal, logits)])
    return whole(verdict)


@st.composite
def proposals(draw: st.DrawFn) -> Proposal:
    """Chains and trees whose siblings differ; point masses and drawn drafts, with what a drafter tells and without."""
    count = draw(st.integers(0, 6))
    parents = None if draw(st.booleans()) else tuple(draw(st.integers(-1, row - 1)) for row in range(count))
    tokens: list[int] = []
    for row in range(count):
        above = row - 1 if parents is None else parents[row]
        taken = {tokens[other] for other in range(row) if parents is not None and parents[other] == above}
        tokens.append(draw(st.sampled_from(sorted(set(range(VOCAB)) - taken))))
    ids = torch.tensor(tokens, dtype=torch.long)
    drawn = torch.nn.functional.one_hot(ids, VOCAB).float() if draw(st.booleans()) else None
    first = torch.tensor(1.5) if count and draw(st.booleans()) else None
    chances = torch.ones(count) if drawn is None and draw(st.booleans()) else None
    return Proposal(ids, parents, drawn, first, chances)


@settings(max_examples=200, deadline=None)
@given(proposal=proposals(), data=st.data(), verifier=st.sampled_from(VERIFIERS))
def test_greedy_verdicts_are_those_of_one_hot_rows(proposal: Proposal, data: st.DataObject, verifier: Verifier) -> None:
    """Logits whose best token is often a draft, so that paths are long."""
    logits = torch.randn(len(proposal) + 1, VOCAB, generator=rng())
    for row in range(len(proposal) + 1):
        below = [draft for draft, parent in enumerate(proposal.parent_rows) if parent == row - 1]
        if below and data.draw(st.booleans()):
            logits[row, proposal.tokens[data.draw(st.sampled_from(below))]] = 9.0
    processor = GreedyProcessor()
    found = judged(verifier, processor, proposal, logits)
    assert found == verifier.verify(proposal, processor(logits), rng())
    assert found.parents is None or len(found.path) <= max(depths(found.parents), default=0)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
@pytest.mark.parametrize("row", [0, 1])
def test_rows_that_are_none_are_refused(broken: float, row: int) -> None:
    logits = torch.zeros(2, VOCAB)
    logits[0, 5], logits[row, 5] = 1.0, broken
    with refused("NaN", "logits", "float32"):
        judged(RejectionVerifier(), GreedyProcessor(), Proposal(torch.tensor([5])), logits)


def test_a_verifier_of_somebody_else_is_asked() -> None:
    class Stubborn(RejectionVerifier):
        def decide(self, batch: ProposalBatch, p: torch.Tensor, rngs: Sequence[RNG]) -> DeviceVerdict:
            return DeviceVerdict(torch.tensor([-1]), p[:1].argmax(-1))

    logits, proposal = torch.nn.functional.one_hot(torch.tensor([5, 6]), VOCAB).float(), Proposal(torch.tensor([5]))
    paths = [judged(kind(), GreedyProcessor(), proposal, logits).path for kind in (RejectionVerifier, Stubborn)]
    assert paths == [(0,), ()]

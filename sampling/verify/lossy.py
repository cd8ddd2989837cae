"""Verifiers that change the output's distribution, or that bound what any verifier can accept.

With the greedy processor the first three are lossless all the same: p is one-hot, and only its token passes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from sampling.verify.proposals import ProposalBatch
from sampling.verify.rejection import RejectionVerifier
from sampling.verify.verdict import DeviceVerdict
from sampling.verify.verifier import Verifier, sample_each
from utils.logits_processor import LogitsProcessor
from utils.numbers.random_numbers import RNG


class TopPVerifier(Verifier):
    """A draft is accepted if it is in the target's top-p set, whatever its probability (FastDeploy's `topp`).

    The set is the most probable tokens of p, after the processor, up to mass `verify_top_p`. The next token is drawn
    from the set. LOSSY: an improbable draft of the set appears as often as the drafter proposes it.
    """

    def __init__(self, verify_top_p: float = 0.9) -> None:
        self.top_p = verify_top_p

    def lossless(self, processor: LogitsProcessor) -> bool:
        return processor.greedy

    def decide(self, batch: ProposalBatch, p: Tensor, rngs: Sequence[RNG]) -> DeviceVerdict:
        kept = torch.where(_top_p_set(p, self.top_p), p, 0.0)
        return _accept(batch, kept > 0.0, kept, rngs)


class TypicalVerifier(Verifier):
    """Typical acceptance (Medusa, arXiv 2401.10774): p(x) > min(epsilon, delta * exp(-H(p))), H in nats.

    A target with low entropy demands a higher probability. The next token is drawn from p. LOSSY.
    """

    def __init__(self, typical_epsilon: float = 0.09, typical_delta: float = 0.3) -> None:
        self.epsilon, self.delta = typical_epsilon, typical_delta

    def lossless(self, processor: LogitsProcessor) -> bool:
        return processor.greedy

    def decide(self, batch: ProposalBatch, p: Tensor, rngs: Sequence[RNG]) -> DeviceVerdict:
        entropy = torch.special.entr(p).sum(dim=-1, keepdim=True)
        threshold = (self.delta * torch.exp(-entropy)).clamp(max=self.epsilon)
        return _accept(batch, p > threshold, p, rngs)


class UnadjustedVerifier(RejectionVerifier):
    """Rejection sampling that draws the token after a rejection from p itself, `skip_sample_adjustment` elsewhere.

    LOSSY: a rejected draft may be drawn again, so tokens that the drafter prefers appear too often.
    """

    def lossless(self, processor: LogitsProcessor) -> bool:
        return processor.greedy

    def rest(self, p: Tensor, q: Tensor) -> Tensor:
        return p


class AcceptAllVerifier(Verifier):
    """Accepts every draft of the deepest path: the upper bound of what a drafter can contribute. LOSSY."""

    def lossless(self, processor: LogitsProcessor) -> bool:
        return False

    def decide(self, batch: ProposalBatch, p: Tensor, rngs: Sequence[RNG]) -> DeviceVerdict:
        return _accept(batch, torch.ones_like(p, dtype=torch.bool), p, rngs)


class RejectAllVerifier(Verifier):
    """Accepts no draft: a lower bound, with all costs of speculative decoding and none of its gains. Lossless."""

    def lossless(self, processor: LogitsProcessor) -> bool:
        return True

    def decide(self, batch: ProposalBatch, p: Tensor, rngs: Sequence[RNG]) -> DeviceVerdict:
        return _accept(batch, torch.zeros_like(p, dtype=torch.bool), p, rngs)


def _top_p_set(p: Tensor, top_p: float) -> Tensor:
    """The set `[n, V]` bool of the most probable tokens that reach mass `top_p`; ties go to the lower id."""
    probs, order = p.sort(dim=-1, descending=True, stable=True)
    before = probs.cumsum(dim=-1) - probs
    return torch.zeros_like(p, dtype=torch.bool).scatter_(-1, order, before < top_p)


def _accept(batch: ProposalBatch, allowed: Tensor, final: Tensor, rngs: Sequence[RNG]) -> DeviceVerdict:
    """The deepest path of allowed drafts, and a token drawn from `final` at its end. On a tie the first path wins.

    allowed, final: `[n + B, V]`, with the rows of p.
    """
    end = batch.deepest(batch.of_drafts(allowed))
    return DeviceVerdict(end, sample_each(final.index_select(0, batch.behind(end)), rngs))

"""Ways to judge drafts that change the output's distribution, or that only bound what judging can do.

Under greedy the first three are lossless all the same: p is one-hot, and only its token passes.
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
    """A draft is accepted inside the target's top-p set, whatever its probability there (FastDeploy's `topp`).

    The set is the most likely tokens of p, after the processor, up to mass `verify_top_p`; the next token is
    drawn from it. LOSSY: an unlikely draft of the set comes out as often as the drafter proposes it.
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

    The surer the target, the more it asks of a draft. The next token is drawn from p. LOSSY.
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

    LOSSY: a rejected draft may be drawn again, so tokens that the drafter likes come out too often.
    """

    def lossless(self, processor: LogitsProcessor) -> bool:
        return processor.greedy

    def rest(self, p: Tensor, q: Tensor) -> Tensor:
        return p


class AcceptAllVerifier(Verifier):
    """Every draft of the deepest path is accepted: the most that a drafter could bring. LOSSY."""

    def lossless(self, processor: LogitsProcessor) -> bool:
        return False

    def decide(self, batch: ProposalBatch, p: Tensor, rngs: Sequence[RNG]) -> DeviceVerdict:
        return _accept(batch, torch.ones_like(p, dtype=torch.bool), p, rngs)


class RejectAllVerifier(Verifier):
    """No draft is accepted: the loop's own lower bound, all of its costs and none of its gains. Lossless."""

    def lossless(self, processor: LogitsProcessor) -> bool:
        return True

    def decide(self, batch: ProposalBatch, p: Tensor, rngs: Sequence[RNG]) -> DeviceVerdict:
        return _accept(batch, torch.zeros_like(p, dtype=torch.bool), p, rngs)


def _top_p_set(p: Tensor, top_p: float) -> Tensor:
    """Which tokens `[n, V]` are needed, most likely first, to reach mass `top_p`; ties go to the lower id."""
    probs, order = p.sort(dim=-1, descending=True, stable=True)
    before = probs.cumsum(dim=-1) - probs
    return torch.zeros_like(p, dtype=torch.bool).scatter_(-1, order, before < top_p)


def _accept(batch: ProposalBatch, allowed: Tensor, final: Tensor, rngs: Sequence[RNG]) -> DeviceVerdict:
    """The deepest path of allowed drafts, the first of equals, and a token drawn from `final` where it ends.

    allowed, final: `[n + B, V]`, rows as in p.
    """
    end = batch.deepest(batch.of_drafts(allowed))
    return DeviceVerdict(end, sample_each(final.index_select(0, batch.behind(end)), rngs))

"""Block verification: a chain of drafts is judged as a whole. It accepts at least as many as draft by draft."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sampling.proposal import Proposal
from sampling.verify.proposals import ProposalBatch
from sampling.verify.rejection import RejectionVerifier
from sampling.verify.verdict import DeviceVerdict
from sampling.verify.verifier import coins_each, sample_each
from utils.logits_processor import wide
from utils.numbers.random_numbers import RNG


class BlockVerifier(RejectionVerifier):
    """Block verification (arXiv 2403.10444): no other lossless rule for a chain accepts more drafts on average.

    Each draft has a probability that the block is kept up to it (`kept`) and a coin of its own. The LAST draft whose
    coin succeeds ends the block, whatever the earlier coins say. After that draft the next token is drawn from
    norm(max(w p - q, 0)). After a fully accepted block the bonus token is drawn from p.

    For point masses token-by-token rejection sampling accepts equally many drafts, so the verifier uses it for point
    masses and for trees.
    """

    is_argmax_under_greedy = True

    def decide(self, batch: ProposalBatch, p: Tensor, rngs: Sequence[RNG]) -> DeviceVerdict:
        if batch.tree is not None or batch.draft_probs is None or not batch.total:
            return super().decide(batch, p, rngs)
        layout = batch.layout
        w = batch.flat(weights(batch.padded(batch.of_drafts(p)), batch.padded(batch.q, 1.0)))
        last, following = layout.depths == layout.depth_of_last, batch.draft_probs.roll(-1, 0)
        chances = kept(w, p.index_select(0, batch.rows + 1), following, last)
        accepted = batch.padded(layout.depths * (coins_each(batch, rngs) < chances)).amax(1)
        here = p.index_select(0, layout.roots + accepted)
        before = w.index_select(0, (layout.firsts + accepted - 1).clamp(min=0))
        reached = torch.where(accepted > 0, before, 1.0).to(p.dtype).unsqueeze(1)
        rejected = self.rest(reached * here, batch.last_probs(accepted, here))
        here = torch.where((accepted < layout.lengths).unsqueeze(1), rejected, here)
        return DeviceVerdict(accepted - 1, sample_each(here, rngs))


def of_chain(proposal: Proposal, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """`weights` and `kept`, `[n]` each, of one chain that was drawn from q `[n, V]`, with p `[n + 1, V]`."""
    batch = ProposalBatch([proposal], p.device)
    w = weights(batch.of_drafts(p), batch.q)
    last = torch.arange(len(proposal), device=p.device) == len(proposal) - 1
    return w, kept(w, p[1:], q.roll(-1, 0), last)


def weights(p_x: Tensor, q_x: Tensor) -> Tensor:
    """The weight w of each draft of chains `[..., n]`: w_i = min(1, w_(i-1) p(x_i) / q(x_i)), with w_0 = 1.

    w is the share of the path down to a draft that the target would have taken. A draft with p above q compensates for
    an earlier one with p below q. Token-by-token verification cannot do that. p_x, q_x: `[..., n]`, p and q of each
    draft.

    Example: p / q of 0.5 and 1.5 -> 0.5, 0.75. Token by token, 0.5 of both pass.
    """
    exact = wide(p_x.device)
    ratio = (p_x.to(exact).log() - q_x.to(exact).log()).cumsum(-1)
    return (ratio - ratio.cummax(-1).values.clamp(min=0.0)).exp()


def kept(w: Tensor, after: Tensor, following: Tensor, last: Tensor) -> Tensor:
    """Probability `[n]` that a draft ends the block, given that no later draft does: R / (R + 1 - w), w for the last.

    R = sum max(w p - q, 0) is the excess of the target over the drafter after that draft. w: `[n]`. after: `[n, V]`, p
    after each draft. following: `[n, V]`, the distribution q of the next draft. last: `[n]`, whether a draft is the
    last of its chain.
    """
    left = (w.to(after.dtype).unsqueeze(1) * after - following).clamp(min=0.0).sum(-1).to(w.dtype)
    room = left + 1.0 - w
    return torch.where(last, w, torch.where(room > 0.0, left / room, 1.0))

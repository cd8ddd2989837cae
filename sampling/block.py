"""Block verification: a chain of drafts is judged as a whole, and more of it comes through than draft by draft."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sampling.chains import Chains
from sampling.proposal import Proposal
from sampling.verifier import Decision, RejectionVerifier, coins_each, distribution_of, of_drafts, sample_each
from utils.coins import Coins, Source, uniform
from utils.logits_processor import sample, wide
from utils.sent import moved


class BlockVerifier(RejectionVerifier):
    """Block verification (arXiv 2403.10444): of all exact ways to judge a chain, none accepts more drafts on average.

    Each draft has a chance that the block is kept up to it (`kept`) and a coin of its own: the LAST draft whose
    coin falls in its favour ends the block, whatever became of those before it. Behind it the next token is drawn from
    norm(max(w p - q, 0)), behind all drafts from p.

    Of point masses as many come through draft by draft; they are judged so, and so are trees.
    """

    def decide(self, proposal: Proposal, p: Tensor, coins: Coins) -> Decision:
        if proposal.parents is not None or proposal.probs is None:
            return super().decide(proposal, p, coins)
        count = len(proposal)
        w, chances = of_chain(proposal, proposal.probs.to(p.device), p)
        passed = uniform((count,), coins, p.device, torch.float32, "coin") < chances
        accepted = (torch.arange(1, count + 1, device=p.device) * passed).amax()
        here = p.index_select(0, accepted.view(1))[0]
        reached = torch.cat([w.new_ones(1), w]).index_select(0, accepted.view(1)).to(p.dtype)
        rejected = self.rest(reached * here, distribution_of(proposal, accepted.clamp(max=count - 1), p))
        return Decision(accepted - 1, sample(torch.where(accepted < count, rejected, here).unsqueeze(0), coins))

    def decide_many(self, chains: Chains, p: Tensor, coins: Sequence[Source]) -> Decision | None:
        if chains.probs is None:
            return super().decide_many(chains, p, coins)
        w = chains.flat(weights(chains.padded(p[chains.rows, chains.tokens]), chains.padded(chains.q, 1.0)))
        depths = chains.depths
        last = depths == chains.lengths.repeat_interleave(chains.lengths)
        chances = kept(w, p.index_select(0, chains.rows + 1), chains.probs.roll(-1, 0), last)
        fallen = coins_each((count, one) for count, one in zip(chains.counts, coins, strict=True) if count)
        accepted = chains.padded(depths * (moved(fallen, p.device) < chances)).amax(1)
        here = p.index_select(0, chains.roots + accepted)
        before = w.index_select(0, (chains.firsts + accepted - 1).clamp(min=0))
        reached = torch.where(accepted > 0, before, 1.0).to(p.dtype).unsqueeze(1)
        rejected = self.rest(reached * here, chains.of_last(accepted, here))
        here = torch.where((accepted < chains.lengths).unsqueeze(1), rejected, here)
        return Decision(accepted - 1, sample_each(here, coins))


def of_chain(proposal: Proposal, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """`weights` and `kept` `[n]` of one chain that was drawn from q `[n, V]`, from p `[n + 1, V]`."""
    w = weights(*of_drafts(proposal, p))
    last = torch.arange(len(proposal), device=p.device) == len(proposal) - 1
    return w, kept(w, p[1:], q.roll(-1, 0), last)


def weights(p_x: Tensor, q_x: Tensor) -> Tensor:
    """w of each draft of chains `[..., n]`: w_i = min(1, w_(i-1) p(x_i) / q(x_i)), from w_0 = 1.

    It is how much of the path down to a draft the target would have gone. A draft with p above q makes up for
    one before it with p below q, which draft by draft it cannot. p_x, q_x: `[..., n]`, of each draft at its place.

    Example: p / q of 0.5 and 1.5 -> 0.5, 0.75, where draft by draft 0.5 of both pass.
    """
    exact = wide(p_x.device)
    ratio = (p_x.to(exact).log() - q_x.to(exact).log()).cumsum(-1)
    return (ratio - ratio.cummax(-1).values.clamp(min=0.0)).exp()


def kept(w: Tensor, after: Tensor, following: Tensor, last: Tensor) -> Tensor:
    """Chance `[n]` that a block is kept up to each draft if no further: R / (R + 1 - w), and w for the last one.

    R = sum max(w p - q, 0) is what the target has in excess of the drafter behind that draft. w: `[n]`. after:
    `[n, V]`, p behind each draft. following: `[n, V]`, what the next draft was drawn from. last: `[n]`, which draft is
    the last of its chain.
    """
    left = (w.to(after.dtype).unsqueeze(1) * after - following).clamp(min=0.0).sum(-1).to(w.dtype)
    room = left + 1.0 - w
    return torch.where(last, w, torch.where(room > 0.0, left / room, 1.0))

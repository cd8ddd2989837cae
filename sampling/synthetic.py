"""Chosen acceptance: drafts pass at given rates, so that cost and schedule are studied apart from any drafter."""

import torch
from torch import Tensor

from sampling.forward.tree import depths
from sampling.proposal import Proposal
from sampling.verifier import Decision, Verifier
from utils.coins import Coins, uniform
from utils.logits_processor import LogitsProcessor, sample
from utils.sent import kept


class SyntheticVerifier(Verifier):
    """The draft at position i of a round passes with chance `accept_rates[i - 1]`, given that those before it passed.

    The last rate repeats. accept_length: in their place the mean tokens of a round, the target's own included, with
    the least variance: of a length L every round accepts floor(L - 1) or ceil(L - 1) drafts, if that many are there
    (vLLM `synthetic_acceptance_length`, SGLang `match-expected`); 0 = the rates. On a tree the deepest path stands for
    all of it, the first of equals, so that a position has one draft and counts once. What follows is drawn from p.
    LOSSY: neither p nor q is asked.

    Example: accept_length 2.6 -> rates 1, 0.6, 0.
    """

    def __init__(self, accept_rates: tuple[float, ...] = (0.8, 0.6, 0.4), accept_length: float = 0.0) -> None:
        self.rates = _least_variance(accept_length) if accept_length else accept_rates

    reads_trees = True

    def lossless(self, processor: LogitsProcessor) -> bool:
        return False

    def decide(self, proposal: Proposal, p: Tensor, coins: Coins) -> Decision:
        path = _deepest_path(proposal.parent_rows)
        rates = [self.rates[min(place, len(self.rates) - 1)] for place in range(len(path))]
        fallen = uniform((len(path),), coins, p.device, torch.float32, "coin")
        accepted = (fallen < kept(tuple(rates), torch.float32, p.device)).long().cumprod(0).sum()
        end = kept((-1, *path), torch.long, p.device).index_select(0, accepted.view(1))[0]
        return Decision(end, sample(p.index_select(0, end.view(1) + 1), coins))


def _least_variance(length: float) -> tuple[float, ...]:
    """Rates under which a round brings `length` tokens on average, and never a whole token more or less."""
    certain = int(length - 1.0)
    return (*[1.0] * certain, length - 1.0 - certain, 0.0)


def _deepest_path(parents: tuple[int, ...]) -> list[int]:
    """The rows from the root to the deepest draft, the first of equals."""
    depth = depths(parents)
    row, path = depth.index(max(depth)), list[int]()
    while row >= 0:
        path.append(row)
        row = parents[row]
    return path[::-1]

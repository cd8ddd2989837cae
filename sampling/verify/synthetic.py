"""Chosen acceptance: drafts pass at given rates, so that cost and schedule are studied apart from any drafter."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sampling.forward.tree import depths
from sampling.verify.proposals import ProposalBatch
from sampling.verify.verdict import DeviceVerdict
from sampling.verify.verifier import Verifier, sample_each
from utils.device.sent import kept
from utils.logits_processor import LogitsProcessor
from utils.numbers.random_numbers import RNG, uniform_each


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

    def decide(self, batch: ProposalBatch, p: Tensor, rngs: Sequence[RNG]) -> DeviceVerdict:
        if batch.tree is None:
            paths: list[Sequence[int]] = [range(count) for count in batch.counts]
        else:
            paths = [_deepest_path(batch.tree.parent_rows)]
        rates = [self.rates[min(place, len(self.rates) - 1)] for path in paths for place in range(len(path))]
        coins = uniform_each([(len(path),) for path in paths], rngs, p.device, torch.float32, "coin")
        passed = coins < kept(tuple(rates), torch.float32, p.device)
        if batch.tree is None:
            end = batch.deepest(passed)
        else:
            end = kept((-1, *paths[0]), torch.long, p.device).index_select(0, passed.long().cumprod(0).sum().view(1))
        return DeviceVerdict(end, sample_each(p.index_select(0, batch.behind(end)), rngs))


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

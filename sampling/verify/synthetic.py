"""Synthetic acceptance: drafts pass at given rates, to study cost and schedule without the influence of a drafter."""

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
    """The draft at position i of a round passes with probability `accept_rates[i - 1]` if all earlier drafts passed.

    The last rate repeats. accept_length: if not 0, it replaces the rates. It is the mean number of tokens per round,
    including the target's own, with the least variance. For a length L every round accepts floor(L - 1) or ceil(L - 1)
    drafts, if the proposal has that many (vLLM `synthetic_acceptance_length`, SGLang `match-expected`). On a tree only
    the deepest path is judged, the first on a tie, so each position counts once. The next token is drawn from p.

    LOSSY: neither p nor q is used for acceptance.

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
    """Rates with a mean of `length` tokens per round; no round differs from the mean by a whole token."""
    certain = int(length - 1.0)
    return (*[1.0] * certain, length - 1.0 - certain, 0.0)


def _deepest_path(parents: tuple[int, ...]) -> list[int]:
    """The rows from the root to the deepest draft, the first on a tie."""
    depth = depths(parents)
    row, path = depth.index(max(depth)), list[int]()
    while row >= 0:
        path.append(row)
        row = parents[row]
    return path[::-1]

"""Drafts from a drafter's logits: one per sequence, one for each of many sequences, or several candidates per node."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from sampling.drafters.draft_tree import PickedTokens
from utils.logits_processor import LogitsProcessor, inverted, sample, wide
from utils.numbers.argmax import argmax
from utils.numbers.random_numbers import RNG, ReplayingRNG, uniform_each


class BestToken:
    """The most probable token `[1]` of each logits `[1, V]`, and its logit `[1]`."""

    def run(self, feeds: Sequence[Tensor]) -> Sequence[tuple[Tensor, Tensor]]:
        """See `BatchExecutor.run`."""
        tokens, chances = self.best(feeds[0] if len(feeds) == 1 else torch.cat(list(feeds)))
        return list(zip(tokens.split(1), chances.split(1), strict=True))

    def best(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The same of rows `[n, V]`: tokens and logits `[n]`."""
        tokens = argmax(logits)
        return tokens, logits.gather(1, tokens.unsqueeze(1)).squeeze(1)


BEST = BestToken()


class Drawing:
    """A token `[1]` drawn from the processed distribution of each logits `[1, V]`, and that distribution `[1, V]`."""

    def __init__(self, processor: LogitsProcessor) -> None:
        self._processor = processor

    def run(self, feeds: Sequence[tuple[Tensor, RNG]]) -> Sequence[tuple[Tensor, Tensor]]:
        """See `BatchExecutor.run`; each feed is the logits and the source of random numbers."""
        logits = feeds[0][0] if len(feeds) == 1 else torch.cat([logits for logits, _ in feeds])
        tokens, q = self.drawn(logits, [coins for _, coins in feeds])
        return list(zip(tokens.split(1), q.split(1), strict=True))

    def drawn(self, logits: Tensor, rngs: Sequence[RNG]) -> tuple[Tensor, Tensor]:
        """The same of rows `[n, V]`, each with the random numbers of its sequence: tokens `[n]` and q `[n, V]`."""
        q = self._processor(logits)
        coins = uniform_each([(1, 1)] * len(rngs), rngs, logits.device, wide(logits.device), "draft")
        return inverted(q, coins), q


@lru_cache(maxsize=16)
def drawing(processor: LogitsProcessor) -> Drawing:
    """The `Drawing` of a processor, cached so that all its users share one batch."""
    return Drawing(processor)


class WithoutReplacement:
    """Candidates drawn one after the other without replacement from the processed q.

    Each is drawn from the residual of q after the earlier ones, so no candidate repeats (recursive rejection sampling,
    arXiv 2402.14160). If no mass is left, as in greedy decoding after the first candidate, the most probable remaining
    tokens follow as point masses. Every verifier can judge point masses.
    """

    def __init__(self, processor: LogitsProcessor, coins: RNG) -> None:
        self._processor, self._coins = processor, coins

    def __call__(self, logits: Tensor, width: int) -> PickedTokens:
        """See `Pick`; the probability of a candidate is q of its token."""
        width = min(width, logits.shape[1])
        left, likely = self._processor(logits).clone(), None
        tokens, probs = torch.empty(len(logits), 0, dtype=torch.long, device=logits.device), list[Tensor]()
        for _ in range(width):
            mass = left.sum(-1, keepdim=True)
            nothing = mass <= 0.0
            probs.append(left / torch.where(nothing, 1.0, mass))
            if isinstance(self._coins, ReplayingRNG) or _may_be(nothing):  # a graph cannot look
                likely = logits.topk(width).indices if likely is None else likely
                probs[-1].scatter_add_(1, _first_without(tokens, likely), nothing.to(left.dtype))
            token = sample(probs[-1], self._coins, "draft").unsqueeze(1)
            tokens = torch.cat([tokens, token], 1)
            left.scatter_(1, token, 0.0)
        behind = torch.stack(probs, 1)
        return PickedTokens(tokens, behind.gather(2, tokens.unsqueeze(2)).squeeze(2), behind)


def _may_be(conditions: Tensor) -> bool:
    """Whether any condition holds.

    On an asynchronous device the answer is always True, because a check would wait for it.
    """
    return conditions.device.type != "cpu" or bool(conditions.any())


def _first_without(gone: Tensor, ordered: Tensor) -> Tensor:
    """For each row of `ordered` `[m, w]` the first token that is not in the row of `gone`, `[m, 1]`.

    gone: `[m, less than w]`.
    """
    there = (ordered.unsqueeze(2) == gone.unsqueeze(1)).any(2)
    places = torch.arange(ordered.shape[1], device=ordered.device)
    return ordered.gather(1, (places + len(places) * there).amin(1, keepdim=True))

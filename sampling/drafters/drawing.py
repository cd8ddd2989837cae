"""A draft from a drafter's logits: of one sequence, or of many at once."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from utils.argmax import argmax
from utils.coins import Source, uniform
from utils.logits_processor import LogitsProcessor, inverted, wide
from utils.sent import moved


class Best:
    """The best token `[1]` of each logits `[1, V]`, and its logit `[1]`."""

    def run(self, feeds: Sequence[Tensor]) -> Sequence[tuple[Tensor, Tensor]]:
        """See `Forwards.run`."""
        logits = feeds[0] if len(feeds) == 1 else torch.cat(list(feeds))
        tokens = argmax(logits)
        chances = logits.gather(1, tokens.unsqueeze(1)).squeeze(1)
        return list(zip(tokens.split(1), chances.split(1), strict=True))


BEST = Best()


class Drawing:
    """A token `[1]` drawn from what a processor makes of each logits `[1, V]`, and that distribution `[1, V]`."""

    def __init__(self, processor: LogitsProcessor) -> None:
        self._processor = processor

    def run(self, feeds: Sequence[tuple[Tensor, Source]]) -> Sequence[tuple[Tensor, Tensor]]:
        """See `Forwards.run`; each feeds its logits and its numbers."""
        logits = feeds[0][0] if len(feeds) == 1 else torch.cat([one for one, _ in feeds])
        q, here = self._processor(logits), torch.device("cpu")
        coins = [uniform((1, 1), coins, here, wide(logits.device), "draft") for _, coins in feeds]
        tokens = inverted(q, moved(torch.cat(coins), logits.device))
        return list(zip(tokens.split(1), q.split(1), strict=True))


@lru_cache(maxsize=16)
def drawing(processor: LogitsProcessor) -> Drawing:
    """The one of a processor, so that all who ask for it share its work."""
    return Drawing(processor)

"""How the rows of a forward attend by torch's attention: side by side, padded to the longest, or each by itself."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.caches import cache
from sampling.forward.caches.attention_metadata import (
    Attending,
    PaddedAttention,
    PerSequenceAttention,
    QueryRows,
    RoundsAndPrompts,
)
from sampling.forward.kernels.attention import folded_mask
from sampling.forward.kernels.batch_invariant import AttentionPattern, CausalRows, attention_pattern
from sampling.forward.kernels.scores import Masks
from utils.device.sent import sent


@dataclass(frozen=True, slots=True)
class TorchAttention:
    """group: query heads of a key head. batch_invariant, padded: see `RowsCache`."""

    group: int
    dtype: torch.dtype
    device: torch.device
    batch_invariant: bool
    padded: bool

    def attending(self, feeds: Sequence[QueryRows], numbers: Sequence[int]) -> Attending:
        """How all attend; numbers: of each sequence, among those that attend side by side."""
        rounds = sum(not feed.prompt for feed in feeds)
        if self.padded or not 0 < rounds < len(feeds):
            return self._together(feeds, numbers)
        count = sum(feed.count for feed in feeds[:rounds])
        return RoundsAndPrompts(
            self._together(feeds[:rounds], numbers[:rounds]), count, tuple(self._apart(feeds, numbers, rounds))
        )

    def sees(self, feed: QueryRows) -> tuple[Masks | None, AttentionPattern | None]:
        """Mask or pattern of a sequence that attends by itself; neither where it sees all rows."""
        if self.batch_invariant:
            return None, self._chain(feed) if feed.seen is None else attention_pattern(feed.seen, self.dtype)
        if feed.seen is None and feed.count == 1:
            return None, None
        seen = cache.seen(feed.start, feed.count, None, self.device) if feed.seen is None else feed.seen
        return Masks(folded_mask(cache.additive(seen, self.dtype), self.group)), None

    def folded(self, seen: Tensor) -> Masks:
        """The mask of rows that see these columns, `[sequences, rows, columns]` bool, as `PaddedAttention` has it."""
        return Masks(folded_mask(cache.additive(seen, self.dtype), self.group).unsqueeze(1))

    def _together(
        self, feeds: Sequence[QueryRows], numbers: Sequence[int]
    ) -> PaddedAttention | tuple[PerSequenceAttention, ...]:
        sequences = max(numbers) + 1 - min(numbers)
        few = max(feed.count for feed in feeds) * sequences > 2 * sum(feed.count for feed in feeds)
        trees = self.batch_invariant and any(feed.seen is not None for feed in feeds)
        if trees or ((few or len(feeds) == 1) and not self.padded):
            return tuple(self._apart(feeds, numbers))
        return self._side(feeds, numbers)

    def _apart(
        self, feeds: Sequence[QueryRows], numbers: Sequence[int], first: int = 0
    ) -> Iterator[PerSequenceAttention]:
        ends = accumulate((feed.count for feed in feeds), initial=0)
        for number, feed, rows in islice(zip(numbers, feeds, pairwise(ends), strict=True), first, None):
            yield PerSequenceAttention(number, slice(*rows), feed.start + feed.count, *self.sees(feed))

    def _chain(self, feed: QueryRows) -> CausalRows:
        first = feed.start + 1
        return CausalRows(torch.arange(first, first + feed.count, device=self.device).unsqueeze(0), self.dtype)

    def _side(self, feeds: Sequence[QueryRows], numbers: Sequence[int]) -> PaddedAttention:
        part, most = slice(min(numbers), max(numbers) + 1), max(feed.count for feed in feeds)
        columns = max(feed.start + feed.count for feed in feeds)
        fed = [number - part.start for number in numbers]
        starts = [0] * (part.stop - part.start)
        for place, feed in zip(fed, feeds, strict=True):
            starts[place] = feed.start
        even = fed == list(range(len(starts))) and all(feed.count == most for feed in feeds)
        at = [place * most + row for place, feed in zip(fed, feeds, strict=True) for row in range(feed.count)]
        flat = None if even else sent(at, self.device)
        last = sent(starts, self.device).unsqueeze(1) + torch.arange(most, device=self.device)
        if self.batch_invariant:
            sees = CausalRows((last + 1).clamp_(max=columns), self.dtype)
            return PaddedAttention(part, most, columns, flat, None, sees)
        seen = torch.arange(columns, device=self.device) <= last.unsqueeze(2)
        for place, feed in zip(fed, feeds, strict=True):
            if feed.seen is not None:
                seen[place, : feed.count] = F.pad(feed.seen, (0, columns - feed.seen.shape[1]))
        return PaddedAttention(part, most, columns, flat, self.folded(seen))

"""A recurrent head that many sequences share: see `sampling/forward/sharing.py`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.asked import Ask, Asking
from sampling.forward.rows import Fed, RowsCache, RowsSlot
from sampling.heads.inference import RecurrentForward, RecurrentRunner


@dataclass(frozen=True, slots=True)
class _Feed:
    """See `RecurrentRunner._forward`."""

    fed: Fed
    tokens: Tensor
    above: Tensor
    rows: int


class SharedHead:
    """A head and the rows of all sequences that draft with it."""

    def __init__(self, forward: RecurrentForward) -> None:
        blocks, like = forward.blocks, forward.embedding
        self.forward = forward
        self.cache = RowsCache(len(blocks.layers), blocks.shape, like.device, like.dtype)

    def another(self) -> "SharedRecurrentRunner":
        """A runner for one more sequence."""
        return SharedRecurrentRunner(self)

    @torch.inference_mode()
    def run(self, feeds: Sequence[_Feed]) -> list[tuple[Tensor, Tensor]]:
        """See `Forwards.run`: states `[n, H]` of the rows of each, and logits of the last ones of them."""
        positions = self.cache.lay_out([one.fed for one in feeds])
        tokens, above = torch.cat([one.tokens for one in feeds]), torch.cat([one.above for one in feeds])
        states = self.forward.run(tokens, above, positions, None, self.cache).split([one.fed.count for one in feeds])
        told = [state[len(state) - one.rows :] for state, one in zip(states, feeds, strict=True)]
        logits = self.forward.logits(torch.cat(told)).split([one.rows for one in feeds])
        return list(zip(states, logits, strict=True))


class SharedRecurrentRunner(RecurrentRunner):
    """The sequence of one among many that share a head. What a call returns holds until the next one."""

    def __init__(self, owner: SharedHead) -> None:
        super().__init__(owner.forward)
        self._owner, self._cache = owner, RowsSlot(owner.cache)

    def _asked(self, tokens: Tensor, above: Tensor, seen: Tensor | None, rows: int) -> Asking[tuple[Tensor, Tensor]]:
        found: tuple[Tensor, Tensor] = yield Ask(self._owner, self._feed(tokens, above, seen, rows))
        return found

    def _forward(self, tokens: Tensor, above: Tensor, seen: Tensor | None, rows: int) -> tuple[Tensor, Tensor]:
        return self._owner.run([self._feed(tokens, above, seen, rows)])[0]

    def _feed(self, tokens: Tensor, above: Tensor, seen: Tensor | None, rows: int) -> _Feed:
        slot, count = cast(RowsSlot, self._cache), len(tokens)
        if seen is None:
            return _Feed(Fed(slot, count), tokens, above, rows)
        positions = seen.sum(1) + (self._base - 1)
        return _Feed(Fed(slot, count, positions, F.pad(seen, (self._base, 0), value=True)), tokens, above, rows)

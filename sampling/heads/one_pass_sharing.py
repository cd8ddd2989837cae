"""A one-pass head that many sequences share: see `sampling/forward/sharing.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sampling.forward.asked import Ask, Asking
from sampling.forward.rows import Fed, RowsCache, RowsSlot
from sampling.forward.runner import PREFILL_CHUNK
from sampling.heads.one_pass_forward import OnePassForward, OnePassRunner


@dataclass(frozen=True, slots=True)
class _Feed:
    """The block of one sequence, and the token `[1]` that it begins with."""

    fed: Fed
    token: Tensor


class SharedOnePass:
    """A head and the rows of all sequences that draft with it."""

    def __init__(self, forward: OnePassForward) -> None:
        blocks, like = forward.blocks, forward.embedding
        self.forward = forward
        self.cache = RowsCache(len(blocks.layers), blocks.shape, like.device, like.dtype)

    def another(self) -> "SharedOnePassRunner":
        """A runner for one more sequence."""
        return SharedOnePassRunner(self)

    @torch.inference_mode()
    def run(self, feeds: Sequence[_Feed]) -> Sequence[Tensor]:
        """See `Forwards.run`: states `[steps, H]` of the block of each."""
        positions = self.cache.lay_out([one.fed for one in feeds])
        states = self.forward.run(torch.cat([one.token for one in feeds]), positions, None, self.cache)
        found: tuple[Tensor, ...] = states.split(self.forward.config.steps)
        return found


class SharedOnePassRunner(OnePassRunner):
    """The sequence of one among many that share a head."""

    def __init__(self, owner: SharedOnePass) -> None:
        super().__init__(owner.forward)
        self._owner = owner
        self._cache = self._slot = RowsSlot(owner.cache)

    @torch.inference_mode()
    def inject(self, text: Tensor) -> None:
        """See `OnePassRunner.inject`."""
        cache = self._owner.cache
        for part in text.split(PREFILL_CHUNK):
            positions = cache.lay_out([Fed(self._slot, len(part))])
            for layer, rows in zip(cache.layers, self.forward.injected(part, positions), strict=True):
                layer.write(*rows)
            self._slot.advance(len(part))

    def block(self, token: Tensor) -> Asking[Tensor]:
        """See `OnePassRunner.block`."""
        count, length = self.forward.rows, self._slot.length
        positions = torch.arange(length, length + count, device=token.device)
        seen = torch.ones(count, length + count, dtype=torch.bool, device=token.device)
        state: Tensor = yield Ask(self._owner, _Feed(Fed(self._slot, count, positions, seen), token))
        return state

"""A recurrent head with fixed shapes and addresses: see `sampling/forward/static.py`."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from sampling.forward.cache import additive
from sampling.forward.fixed import FixedCache, Places, seen_by
from sampling.forward.static import EXACT, chain
from sampling.heads.inference import RecurrentForward, RecurrentRunner
from utils.graphed import Tensors

# Rows of drafts that may stand behind the last row of a text.
_DRAFTS = 64


def fixed_rows(forward: RecurrentForward) -> Callable[[], "FixedRecurrentRunner"]:
    """What makes a runner for each sequence; all of them hand caches and graphs on to each other."""
    blocks, like = forward.blocks, forward.embedding
    places = Places(len(blocks.layers), blocks.shape, forward.window + _DRAFTS, like.device, like.dtype)
    return partial(FixedRecurrentRunner, forward, places)


class FixedRecurrentRunner(RecurrentRunner):
    """The sequence of one head over a `FixedCache`. What a call returns holds until the next one."""

    def __init__(self, forward: RecurrentForward, places: Places) -> None:
        super().__init__(forward)
        self._places = places
        self._place = places.take(self)
        self._cache = self._place.cache

    def _forward(self, tokens: Tensor, above: Tensor, seen: Tensor | None, rows: int) -> tuple[Tensor, Tensor]:
        count = len(tokens)
        columns = self._place.columns(count, self._places.most)
        cache = self._cache = self._place.cache
        step = partial(_step, self.forward, cache, columns, rows)
        call = step if count > EXACT else self._place.step((columns, rows), step)
        state, logits = call(tokens, above, chain(count, count, tokens.device)[1] if seen is None else seen)
        return state, logits


def _step(
    forward: RecurrentForward,
    cache: FixedCache,
    columns: int,
    rows: int,
    tokens: Tensor,
    above: Tensor,
    seen: Tensor,
) -> Tensors:
    """(states `[n, H]`, logits of the last `rows`).

    tokens: `[n]`. above: `[n, H]`, what each continues. seen: `[n, m]` bool, of the last m rows, of which the n fed
    ones are the end; those before are seen by all.
    """
    count = tokens.shape[0]
    base = cache.length_there - (seen.shape[1] - count)
    cache.slots, cache.columns = cache.length_there + torch.arange(count, device=tokens.device), columns
    mask = additive(seen_by(seen, base, columns), above.dtype)
    state = forward.run(tokens, above, base + seen.sum(1) - 1, mask, cache)
    return state, forward.logits(state[count - rows :])

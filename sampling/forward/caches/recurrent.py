"""The recurrent states of one sequence. A state sums up all tokens before it, and cannot forget one.

So it is saved before tokens are fed that may be taken back. If they are, the saved state comes back, and the tokens
that were accepted are read again. They go in front of the next forward's own tokens, so that a round stays one forward.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import LinearAttentionCacheLayerMixin

from sampling.forward.caches.transformers_cache import ChainCache


class RecurrentCache(ChainCache):
    """Rows and states, how many tokens the states have read, and states of before.

    A crop only marks what has to go back: the next forward restores it, so that all of it is the forward's time.
    rollback_s: saving, restoring, and reading again by a forward of its own. reread: tokens that were read again.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.read = 0
        self._saved: tuple[int, Any] | None = None
        self._taken_back = self._gone = False

    @property
    def unread(self) -> list[int]:
        """The tokens that count and that the states have not read, once they are mended."""
        return self.tokens[self.read : self.length]

    def crop(self, length: int) -> None:
        """See `SequenceCache.crop`."""
        super().crop(length)
        if length < self.read:
            self._taken_back = self._gone = True

    def may_take_back(self, count: int) -> bool:
        """Whether some of the next `count` tokens may be taken back.

        A single token is the root of a round, which stays. A drafter feeds one at a time and takes tokens back: it has
        done so before, or does so behind a prompt for the first time.
        """
        return count > 1 or self._taken_back or self._saved is None

    def save(self) -> None:
        """Keep the states as they are, where they have read all tokens."""
        self._taken_back = False
        if self.read and not self.unread:
            with self.timed():
                self._saved = self.read, self._copied()

    def mend(self) -> None:
        """Go back to states of before, where tokens were taken back or a forward did not end."""
        if self._gone:
            del self.tokens[self.length :]
            self._restore(self.length)
            self._gone = False

    @contextmanager
    def reading(self, tokens: Tensor, again: int) -> Iterator[None]:
        """Around a forward of tokens `[n]`, the first `again` of which count already: the states have read all then."""
        length = self.length
        self.tokens[self.read : self.read + len(tokens)] = tokens.tolist()
        self.length, self._gone = self.read, True
        try:
            yield
            self.read += len(tokens)
            self.reread += again
            self._gone = False
        finally:
            self.length = length

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count what is done here as rollback."""
        begun = time.perf_counter()
        yield
        self.rollback_s += time.perf_counter() - begun

    @torch.inference_mode()
    def _restore(self, most: int) -> None:
        """The saved states, where they have read at most so many tokens, else those before the first token."""
        with self.timed():
            if self._saved is not None and self._saved[0] <= most:
                self.read, states = self._saved
                self._put(states)
            else:
                self.read, self._saved = 0, None
                self._clear()

    @torch.inference_mode()
    def _copied(self) -> Any:
        """Convolution inputs and recurrent states of each layer that has some."""
        return [
            [None if part is None else part.clone() for kind in _kinds(layer) for part in kind.values()]
            for layer in self._stateful()
        ]

    def _put(self, states: Any) -> None:
        for layer, saved in zip(self._stateful(), states, strict=True):
            held = [part for kind in _kinds(layer) for part in kind.values()]
            for part, kept in zip(held, saved, strict=True):
                if part is not None and kept is not None:
                    part.copy_(kept)

    def _clear(self) -> None:
        for layer in self._stateful():
            LinearAttentionCacheLayerMixin.reset(layer)

    def _stateful(self) -> list[Any]:
        return [layer for layer in self.view.layers if isinstance(layer, LinearAttentionCacheLayerMixin)]


class OwnStateCache(RecurrentCache):
    """States in an object of the model's own (RWKV, xLSTM, MiniMax): what its last forward returned; None at first.

    It is copied whole, the keys and values that it may hold with it.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.view: Any = None

    @torch.inference_mode()
    def _copied(self) -> Any:
        return deepcopy(self.view)

    def _put(self, states: Any) -> None:
        self.view = deepcopy(states)

    def _clear(self) -> None:
        self.view = None


def _kinds(layer: Any) -> tuple[dict[int, Tensor | None], dict[int, Tensor | None]]:
    return layer.conv_states, layer.recurrent_states

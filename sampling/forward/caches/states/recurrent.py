"""The recurrent states of one sequence. A state sums up all tokens before it, and cannot forget one.

So it is kept as it was before tokens that may be taken back. If they are, the states go back in one of the ways of
`rollback`. Accepted tokens that are read again go in front of the next forward's own: a round stays one forward.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import LinearAttentionCacheLayerMixin

from sampling.forward.caches.states.rollback import Base, Reread, Rollback, States
from sampling.forward.caches.states.states_view import Place, StatesView
from sampling.forward.caches.transformers_cache import ChainCache


class RecurrentCache(ChainCache):
    """Rows and states, how many tokens the states have read, and states of before.

    A crop only marks what has to go back: the next forward restores it, so that all of it is the forward's time.
    rollback_s: saving, restoring, replaying, and reading again by a forward of its own. reread: tokens that were read
    or replayed again. way: how the states go back.
    """

    def __init__(self, *arguments: Any, way: Rollback) -> None:
        super().__init__(*arguments)
        self.read = 0
        self.way = way
        self.view = StatesView(self.view.layers)
        self.view.rows_kept = way.rows_kept
        self._base: Base | None = None
        self._taken_back = self._gone = False

    @property
    def noted(self) -> int:
        """Rows that the states have read behind their base, and that a way may go back to."""
        return 0 if self._base is None else self._base.rows

    @property
    def recurrent_bytes(self) -> int:
        """Bytes of the recurrent states of one place in the text."""
        base = {} if self._base is None else self._base.states
        return sum(state.nbytes for _, state in base.values() if state is not None)

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
        return count > 1 or self._taken_back or self._base is None

    def save(self) -> None:
        """Keep the states as they are, where they have read all tokens."""
        self._taken_back = False
        if self.read and not self.unread:
            with self.timed():
                self._base = Base(self.read, self._states())

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
        self._begin()
        try:
            yield
            self.read += len(tokens)
            self._note(len(tokens))
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
        """States that have read at most so many tokens: behind the base, or those before the first token."""
        with self.timed():
            if (base := self._base) is not None and base.read <= most:
                base.cut(most - base.read)
                self._put(self.way.states(base))
                self.read = base.read + base.rows
                self.reread += base.rows if self.way.again else 0
            else:
                self.read, self._base = 0, None
                self._clear()

    def _begin(self) -> None:
        self.view.begin()

    def _note(self, rows: int) -> None:
        """Note what the forward that has just ended read."""
        if self._base is not None and self.way.noting:
            self._base.note(rows, self.view)
        self.view.begin()

    @torch.inference_mode()
    def _states(self) -> States:
        return {
            place: (_cloned(layer.conv_states[place[1]]), self._held(place, layer.recurrent_states[place[1]]))
            for layer, place in self.view.places()
        }

    def _held(self, place: Place, state: Tensor | None) -> Tensor | None:
        """A state to be kept while forwards go on: itself where they replace it, else a copy."""
        return state if place in self.view.replaced else _cloned(state)

    def _put(self, states: States) -> None:
        for layer, place in self.view.places():
            conv, state = states[place]
            layer.conv_states[place[1]] = _cloned(conv)
            layer.recurrent_states[place[1]] = self._held(place, state)

    def _clear(self) -> None:
        for layer in self.view.layers:
            if isinstance(layer, LinearAttentionCacheLayerMixin):
                LinearAttentionCacheLayerMixin.reset(layer)


class OwnStateCache(RecurrentCache):
    """States in an object of the model's own (RWKV, xLSTM, MiniMax): what its last forward returned; None at first.

    It is copied whole, the keys and values that it may hold with it.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, way=Reread())
        self.view: Any = None

    def _begin(self) -> None:
        """Nothing of it is noted."""

    def _note(self, rows: int) -> None:
        """Nothing of it is noted."""

    @torch.inference_mode()
    def _states(self) -> Any:
        return deepcopy(self.view)

    def _put(self, states: Any) -> None:
        self.view = deepcopy(states)

    def _clear(self) -> None:
        self.view = None


def _cloned(part: Tensor | None) -> Tensor | None:
    return None if part is None else part.clone()

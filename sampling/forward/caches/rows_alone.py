"""How a sequence that is fed alone lies in its part of a `RowsCache`: side by side, so that nothing is gathered."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from sampling.forward.cpp.varlen import VarlenAttention
from sampling.forward.kernels.attention import attend_on
from sampling.forward.kernels.batch_invariant import AttentionPattern
from sampling.forward.kernels.scores import Masks, Scores
from sampling.forward.models.steps import Destination

Buffers = Sequence[tuple[Tensor, Tensor]]
"""Keys and values of one sequence, `[1, kv_heads, capacity, D]` each, a pair for every layer."""


class AloneLayout:
    """Where the rows of a sequence go that is fed alone, and what they see."""

    __slots__ = ()

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store rows `[n, kv_heads, D]`; the buffers of this sequence."""
        raise NotImplementedError

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scores: Scores) -> Tensor:
        """See `RowsLayer.attend`."""
        raise NotImplementedError

    def destination(self, layer: int) -> Destination | None:
        """See `StepRows.destination`."""
        return None

    def attend_stored(self, layer: int, query: Tensor, scores: Scores) -> Tensor:
        """See `StepRows.attend_stored`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class FixedLayout(AloneLayout):
    """Shapes and addresses that do not follow the text, as a graph needs them.

    rows: `[n]`, where they go. They attend over so many columns, through a mask, additive, `[group * n, columns]`, or a
    pattern.
    """

    buffers: Buffers
    rows: Tensor
    columns: int
    mask: Masks | None
    sees: AttentionPattern | None = None

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `AloneLayout.write`."""
        stored_keys, stored_values = stored = self.buffers[layer]
        stored_keys[0].index_copy_(1, self.rows, keys.transpose(0, 1))
        stored_values[0].index_copy_(1, self.rows, values.transpose(0, 1))
        return stored

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scores: Scores) -> Tensor:
        """See `AloneLayout.attend`."""
        self.write(layer, keys, values)
        return self.attend_stored(layer, query, scores)

    def destination(self, layer: int) -> Destination:
        """See `StepRows.destination`."""
        keys, values = self.buffers[layer]
        return Destination(keys, values, self.rows, 1, 0, keys.shape[2])

    def attend_stored(self, layer: int, query: Tensor, scores: Scores) -> Tensor:
        """See `StepRows.attend_stored`."""
        return attend_on(query, *self.buffers[layer], self.columns, self.mask, self.sees, scores)


@dataclass(frozen=True, slots=True)
class SingleLayout(AloneLayout):
    """start, stop: where its rows go; it sees those up to `stop`, through a mask or a pattern.

    places: the same rows `[n]`, where our kernel stores them.
    """

    buffers: Buffers
    start: int
    stop: int
    mask: Masks | None
    sees: AttentionPattern | None
    places: Tensor | None = None

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `AloneLayout.write`."""
        stored_keys, stored_values = stored = self.buffers[layer]
        count = self.stop - self.start
        stored_keys.narrow(2, self.start, count).copy_(keys.transpose(0, 1))
        stored_values.narrow(2, self.start, count).copy_(values.transpose(0, 1))
        return stored

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, scores: Scores) -> Tensor:
        """See `AloneLayout.attend`."""
        stored_keys, stored_values = self.write(layer, keys, values)
        return attend_on(query, stored_keys, stored_values, self.stop, self.mask, self.sees, scores)

    def destination(self, layer: int) -> Destination | None:
        """See `StepRows.destination`."""
        if self.places is None or not isinstance(self.sees, VarlenAttention):
            return None
        keys, values = self.buffers[layer]
        return Destination(keys, values, self.places, 1, 0, keys.shape[2], self.sees)

    def attend_stored(self, layer: int, query: Tensor, scores: Scores) -> Tensor:
        """See `StepRows.attend_stored`."""
        return attend_on(query, *self.buffers[layer], self.stop, self.mask, self.sees, scores)

"""Many sequences in one forward of a lean model: rows of all of them side by side, each in its own part of a cache."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward import cache
from sampling.forward.lean import LeanModel
from sampling.forward.runner import CausalModel, Output, Reading, as_ids
from sampling.forward.steady import UNIT, Sight, sight
from utils.sent import sent


@dataclass(frozen=True, slots=True)
class _Rows:
    """What one forward feeds to one sequence: n ids, their positions `[n]`, what they see `[n, length + n]` bool."""

    slot: "Slot"
    ids: Tensor
    positions: Tensor
    seen: Tensor


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the N flat rows of a forward lie: sequence and place of each, and its row among its sequence's.

    part: the sequences that attend: one, or all. mask: `[sequences, 1, rows, L]` bool, repeated for each query group.
    sights: for a steady model, each fed sequence with its flat rows and what they see.
    """

    sequence: Tensor
    place: Tensor
    row: Tensor
    part: slice
    rows: int
    columns: int
    mask: Tensor
    sights: tuple[tuple[int, slice, Sight], ...] = ()


class _Layer:
    """Keys and values of one layer: `[B, kv_heads, capacity, head_dim]`."""

    def __init__(self, owner: "RowsCache", keys: Tensor, values: Tensor) -> None:
        self._owner, self._keys, self._values = owner, keys, values

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """See `RollbackLayer.attend`, for flat rows `[N, heads, D]`; who sees whom is the cache's to know.

        Only here rows are padded, to the most that a sequence has: no matrix product of the model ever is.
        """
        at, (count, heads, dim) = self._owner.layout, query.shape
        self._write(keys, values)
        batch, kv_heads = at.part.stop - at.part.start, keys.shape[1]
        padded = query.new_zeros(batch, at.rows, heads, dim)
        padded[at.sequence - at.part.start, at.row] = query
        folded = padded.transpose(1, 2).reshape(batch, kv_heads, heads // kv_heads * at.rows, dim)
        seen = at.mask.repeat(1, 1, heads // kv_heads, 1)
        known, meant = self._keys[at.part, :, : at.columns], self._values[at.part, :, : at.columns]
        out = F.scaled_dot_product_attention(folded, known, meant, attn_mask=seen)
        by_row = out.view(batch, heads, at.rows, dim).transpose(1, 2)
        return by_row[at.sequence - at.part.start, at.row].reshape(count, heads * dim)

    def _write(self, keys: Tensor, values: Tensor) -> None:
        at = self._owner.layout
        self._keys[at.sequence, :, at.place] = keys
        self._values[at.sequence, :, at.place] = values


class _SteadyLayer(_Layer):
    """The same for a steady model: each sequence attends by itself, as it does alone."""

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """See `_Layer.attend`."""
        self._write(keys, values)
        parts = [
            sees.attend(query[rows], self._keys[which : which + 1], self._values[which : which + 1])
            for which, rows, sees in self._owner.layout.sights
        ]
        return torch.cat(parts)


class RowsCache:
    """Keys and values of B sequences, `[layers, B, kv_heads, capacity, head_dim]`, zeroed: a stale NaN would spread."""

    def __init__(self, model: LeanModel, batch: int, capacity: int) -> None:
        rows = -(-capacity // UNIT) * UNIT
        shape = len(model.layers), batch, model.blocks.shape.kv_heads, rows, model.blocks.shape.head_dim
        self._keys, self._values = (torch.zeros(shape, device=model.device, dtype=model.dtype) for _ in range(2))
        self._steady = model.steady
        kind = _SteadyLayer if model.steady else _Layer
        self.layers = [kind(self, keys, values) for keys, values in zip(self._keys, self._values, strict=True)]
        self.batch = batch
        self.layout: _Layout

    def lay_out(self, feeds: Sequence[_Rows]) -> None:
        """Prepare the next forward. A sequence that is fed nothing sees one row, which nobody reads."""
        device = self._keys.device
        counts = [len(one.ids) for one in feeds]
        alone = len(feeds) == 1
        part = slice(feeds[0].slot.index, feeds[0].slot.index + 1) if alone else slice(0, self.batch)
        most, columns = max(counts), max(one.seen.shape[1] for one in feeds)
        mask = torch.zeros(part.stop - part.start, 1, most, columns, dtype=torch.bool, device=device)
        mask[..., 0] = True
        for one, count in zip(feeds, counts, strict=True):
            mask[one.slot.index - part.start, 0, :count, : one.seen.shape[1]] = one.seen
        numbers = sent([one.slot.index for one in feeds], device)
        starts = sent([one.slot.length for one in feeds], device)
        which = torch.repeat_interleave(torch.arange(len(feeds)), torch.tensor(counts)).to(device)
        row = torch.cat([torch.arange(count, device=device) for count in counts])
        sights = tuple(self._sights(feeds)) if self._steady else ()
        self.layout = _Layout(numbers[which], starts[which] + row, row, part, most, columns, mask, sights)

    def _sights(self, feeds: Sequence[_Rows]) -> Iterator[tuple[int, slice, Sight]]:
        start = 0
        for one in feeds:
            stop = start + len(one.ids)
            yield one.slot.index, slice(start, stop), sight(one.seen, self._keys.dtype)
            start = stop

    def move(self, sequence: int, rows: Tensor, to: int) -> None:
        """Copy `rows` `[m]` of a sequence to its row `to` and those behind it, in all layers."""
        stop = to + len(rows)
        for buffer in (self._keys, self._values):
            buffer[:, sequence, :, to:stop] = buffer[:, sequence].index_select(2, rows)


class Slot:
    """The runner of one of the sequences that share a `BatchRunner`. Rolling back is an assignment.

    A new sequence may begin with rows that the last one left: see `resume`.
    """

    def __init__(self, owner: "BatchRunner", index: int) -> None:
        self._owner, self.index = owner, index
        self.model: CausalModel = owner.model
        self.vocab_size, self.device = owner.model.vocab_size, owner.model.device
        self.window = min(owner.model.window, owner.capacity)
        self.length = 0
        self._held: list[int] = []

    def crop(self, length: int) -> None:
        """See `Runner.crop`."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot crop {self.length} rows to {length}")
        self.length = length

    def resume(self, tokens: Sequence[int], most: int) -> int:
        """Count as fed what the rows still hold of the beginning of a text, `most` rows at most; how many they are."""
        same = 0
        while same < min(most, len(tokens), len(self._held)) and tokens[same] == self._held[same]:
            same += 1
        self.length = same
        return same

    def keep(self, base: int, path: Sequence[int]) -> None:
        """See `Runner.keep`."""
        if any(row != place for place, row in enumerate(path)):
            rows = [base + 1 + row for row in path]
            self._owner.cache.move(self.index, sent(rows, self.device), base + 1)
            self._held[base + 1 : base + 1 + len(path)] = [self._held[row] for row in rows]
        self.crop(base + 1 + len(path))

    def read(self, prompt: Sequence[int]) -> Reading:
        """See `Runner.read`."""
        self.crop(0)
        return self.model.read(prompt)

    def forward(
        self,
        tokens: Tensor | Sequence[int],
        parents: Sequence[int] | None = None,
        hidden: Sequence[int] = (),
        rows: int | None = None,
    ) -> Output:
        """See `Runner.forward`: a forward for this sequence alone."""
        ids = as_ids(tokens, self.device)
        return self._owner.run([self.rows(ids, parents)], hidden, rows)[0]

    def fork(self, tokens: Sequence[int], base: int, lines: Tensor) -> Output:
        """See `Runner.fork`."""
        ids = as_ids(tokens, self.device)
        places = torch.full((len(tokens),), base + lines.shape[1], device=self.device)
        seen = cache.seen_by_branches(self.length, base, lines).to(self.device)
        return self._owner.run([_Rows(self, ids, places, seen)], (), None)[0]

    def rows(self, ids: Tensor, parents: Sequence[int] | None) -> _Rows:
        """The rows of a chain or a tree behind those that count."""
        count = len(ids)
        return _Rows(
            self,
            ids,
            cache.positions(self.length, count, parents, self.device),
            cache.seen(self.length, count, parents, self.device),
        )

    def advance(self, ids: Sequence[int]) -> None:
        """Count the rows that a forward has just written."""
        self._held[self.length :] = ids
        self.length += len(ids)


class BatchRunner:
    """A lean model with room for B sequences of `capacity` tokens: one forward for the rows of all that are fed."""

    def __init__(self, model: LeanModel, batch: int, capacity: int) -> None:
        self.model, self.capacity = model, capacity
        self.cache = RowsCache(model, batch, capacity)
        self.slots = [Slot(self, index) for index in range(batch)]

    @torch.inference_mode()
    def forward(
        self,
        slots: Sequence[Slot],
        tokens: Sequence[Tensor],
        parents: Sequence[Sequence[int] | None],
        hidden: Sequence[int],
    ) -> list[Output]:
        """For each sequence what `Runner.forward` gives; the products of the model see all rows at once."""
        fed = zip(slots, tokens, parents, strict=True)
        return self.run([slot.rows(ids, above) for slot, ids, above in fed], hidden, None)

    @torch.inference_mode()
    def run(self, feeds: Sequence[_Rows], hidden: Sequence[int], rows: int | None) -> list[Output]:
        """One forward. rows: of logits, from the end; only where one sequence is fed."""
        self.cache.lay_out(feeds)
        ids = torch.cat([one.ids for one in feeds])
        positions = torch.cat([one.positions for one in feeds])
        wanted = len(ids) if rows is None else rows
        logits, states = self.model.forward(ids, positions, None, self.cache, hidden, wanted)
        counts, listed = [len(one.ids) for one in feeds], ids.tolist()
        outputs, start = [], 0
        for one, count in zip(feeds, counts, strict=True):
            own = slice(start, start + count)
            one.slot.advance(listed[own])
            part = logits if len(feeds) == 1 else logits[own]
            outputs.append(Output(part, {layer: found[own] for layer, found in states.items()}))
            start += count
        return outputs

"""What the first process asks of the others, as whole numbers: one message of a fixed size in the usual case."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from sampling.forward.caches import cache

WORDS = 256
"""Numbers of the message that every command takes, 2 KiB; what does not fit follows in a second one."""
_PARTS = ("ids", "positions", "hidden", "bits", "gone")


class ShardOperation(IntEnum):
    """What to do."""

    STOP = 0
    LOAD = 1
    FORWARD = 2
    MOVE = 3
    ROWS = 4


class MaskForm(IntEnum):
    """How the mask of a forward is told: not at all, as a chain's, by the new rows alone, or whole."""

    NONE = 0
    CHAIN = 1
    NEW = 2
    WHOLE = 3


@dataclass(frozen=True, slots=True)
class Command:
    """One request.

    model, cache: numbers that the first process gave them. length: committed rows of that cache. number: of a forward,
    the rows of logits from the end; of a move, the row it goes to. ids: token ids, rows to move, or bytes of a text.
    positions: empty where they follow the committed rows. bits: see `sight_of`. gone: caches that are no more.
    """

    op: ShardOperation
    model: int = 0
    cache: int = 0
    length: int = 0
    number: int = 0
    sight: MaskForm = MaskForm.NONE
    ids: Sequence[int] = ()
    positions: Sequence[int] = ()
    hidden: Sequence[int] = ()
    bits: Sequence[int] = ()
    gone: Sequence[int] = ()

    def pack(self) -> list[int]:
        """All words: how many there are, the single numbers, the length of each list, and the lists."""
        parts: list[Sequence[int]] = [getattr(self, name) for name in _PARTS]
        singles = [int(getattr(self, field.name)) for field in fields(self) if field.name not in _PARTS]
        words = [*singles, *map(len, parts), *(word for part in parts for word in part)]
        return [len(words) + 1, *words]

    @classmethod
    def unpack(cls, words: Sequence[int]) -> "Command":
        """What `pack` made; words behind it are left alone."""
        count = len(fields(cls)) - len(_PARTS)
        op, model, cache_number, length, number, sight = words[1 : 1 + count]
        start, lists = 1 + count + len(_PARTS), list[Sequence[int]]()
        for size in words[1 + count : start]:
            lists.append(words[start : start + size])
            start += size
        return cls(ShardOperation(op), model, cache_number, length, number, MaskForm(sight), *lists)


def sight_of(mask: Tensor | None, length: int) -> tuple[MaskForm, list[int]]:
    """How an additive mask `[n, length + n]` is told, with its bits, 64 a word; `seen_again` is the way back."""
    if mask is None:
        return MaskForm.NONE, []
    seen = mask == 0
    if torch.equal(seen, cache.seen(length, len(seen), None, seen.device)):
        return MaskForm.CHAIN, []
    seen = seen.cpu()
    if seen[:, :length].all():
        return MaskForm.NEW, _packed(seen[:, length:])
    return MaskForm.WHOLE, _packed(seen)


def seen_again(sight: MaskForm, bits: Sequence[int], length: int, count: int) -> Tensor | None:
    """Which rows each of `count` tokens sees behind `length` committed ones, `[count, length + count]` bool."""
    if sight is MaskForm.NONE:
        return None
    if sight is MaskForm.CHAIN:
        return cache.seen(length, count, None, torch.device("cpu"))
    if sight is MaskForm.WHOLE:
        return _unpacked(bits, count, length + count)
    return torch.cat([torch.ones(count, length, dtype=torch.bool), _unpacked(bits, count, count)], dim=1)


def _packed(seen: Tensor) -> list[int]:
    octets = np.packbits(seen.numpy())
    words: list[int] = np.pad(octets, (0, -len(octets) % 8)).view(np.int64).tolist()
    return words


def _unpacked(bits: Sequence[int], rows: int, columns: int) -> Tensor:
    octets = np.array(bits, dtype=np.int64).view(np.uint8)
    return torch.from_numpy(np.unpackbits(octets, count=rows * columns)).view(rows, columns).bool()

"""What runs a trained head: its arithmetic, and the rows of all sequences that draft with it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from sampling.forward.caches.blocks import BlockRows
from sampling.forward.caches.rows import RowsCache
from sampling.forward.causal_model import CausalModel
from sampling.forward.kernels.linear import Kernel, Linear
from sampling.forward.models.blocks import Blocks
from sampling.heads.config import HeadConfig
from sampling.heads.head_files import Head


class HeadArithmetic(Protocol):
    """What a trained head computes, with its weights on its target."""

    @property
    def config(self) -> HeadConfig: ...
    @property
    def embedding(self) -> Tensor: ...

    @classmethod
    def of(cls, head: Head, target: CausalModel) -> Self:
        """The head's weights on its target."""
        ...

    def with_kernel(self, kernel: Kernel) -> Self:
        """The same head computed by another kernel, but for what reads the target's states."""
        ...


class HeadForward(HeadArithmetic, Protocol):
    """The arithmetic of a head whose blocks keep keys and values of the text."""

    @property
    def blocks(self) -> Blocks: ...
    @property
    def output(self) -> Linear: ...
    @property
    def window(self) -> int: ...

    def read(self, states: Sequence[Tensor]) -> Tensor:
        """What it takes of the target's states, one a layer, `[n, H]`."""
        ...


ForwardT = TypeVar("ForwardT", bound=HeadForward)


class HeadRunner(ABC, Generic[ForwardT]):
    """A head for any number of sequences, of which one alone is a batch of one. `run`: see `BatchExecutor.run`.

    graphs: whether the forwards of one sequence have fixed shapes and addresses, where the head can have that.
    """

    def __init__(self, forward: ForwardT, graphs: bool = False) -> None:
        blocks, like = forward.blocks, forward.embedding
        self.forward, self.window = forward, forward.window
        self.cache: RowsCache = RowsCache(len(blocks.layers), blocks.shape, like.device, like.dtype)

    def use_blocks(self) -> None:
        """Keep rows in blocks. It has no sequence yet and no graph."""
        like = self.cache.keys
        self.cache = BlockRows(like.shape[0], self.forward.blocks.shape, like.device, like.dtype)

    @abstractmethod
    def another(self) -> "HeadSlot":
        """The rows of one more sequence."""

    @abstractmethod
    def run(self, feeds: Sequence[Any]) -> Sequence[Any]:
        """What the head makes of the rows of each sequence; it holds until the next call."""


class HeadSlot(Protocol):
    """The rows of one sequence of a head."""

    @property
    def length(self) -> int:
        """Rows of the text, behind which the target's own states stand."""
        ...

    def crop(self, length: int) -> None:
        """Forget the rows from `length` on."""
        ...


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Rows of several sequences one behind the other; those of one are not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def parted(rows: Tensor, counts: Sequence[int]) -> Sequence[Tensor]:
    """The rows of each sequence, of those of several one behind the other: the other way round than `joined`."""
    parts: tuple[Tensor, ...] = (rows,) if len(counts) == 1 else rows.split(list(counts))
    return parts

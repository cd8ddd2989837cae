"""A recurrence over the rows of a chain, as a layer with a state runs it.

transformers pads a chain to a whole chunk of 64 or 256 rows. A round has few rows: here they go one behind the other,
and each row's state is at hand. What a scan was given is kept, so that the state behind any of its rows can be had
again without the projections and the attention in front of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

SHORT = 32
"""Rows of a chain at most that is scanned row by row."""


class Scan(ABC):
    """What one layer's recurrence reads of n rows of a sequence, all rows in the first dimension.

    state_dims: dimensions of the state. always: whether transformers' own scan cannot begin from a state.
    """

    state_dims: int
    always = False

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many rows it has."""

    @classmethod
    @abstractmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """From the arguments of transformers' function for a chain."""

    @classmethod
    @abstractmethod
    def of_one(cls, given: dict[str, Any]) -> Self:
        """From the arguments of its function for one row."""

    @abstractmethod
    def advanced(self, state: Tensor, row: int) -> Tensor:
        """The state behind a row, from the one before it, which stays as it is."""

    @abstractmethod
    def output(self, state: Tensor, row: int) -> Tensor:
        """What the layer reads from the state behind a row."""

    @abstractmethod
    def packed(self, outputs: Sequence[Tensor], state: Tensor) -> Any:
        """What transformers' function returns for these outputs and the last state."""

    @torch.inference_mode()
    def behind(self, state: Tensor, rows: int) -> Tensor:
        """The state behind the first `rows` rows: the recurrence alone, no output."""
        for row in range(rows):
            state = self.advanced(state, row)
        return state


def by_head(rows: Tensor, heads: int) -> Tensor:
    """Rows of groups `[n, groups, D]`, repeated for the heads of each group: `[n, heads, D]`."""
    return rows.repeat_interleave(heads // rows.shape[1], dim=1)


def discretised(dt: Tensor, bias: Tensor | None, softplus: object = True) -> Tensor:
    """Mamba's time steps, as its layers have them before their bias and softplus."""
    dt = dt if bias is None else dt + bias.to(dt.dtype)
    return F.softplus(dt) if softplus else dt

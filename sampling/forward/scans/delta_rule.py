"""The gated delta rule (arXiv 2412.06464), and Kimi's with a decay for each channel (arXiv 2510.26692).

S = e^g S + k (beta (v - k^T e^g S))^T; o = q^T S.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from sampling.forward.scans.scan import Scan, by_head

_BY_CHANNEL = 3


@dataclass(frozen=True, slots=True)
class DeltaRule(Scan):
    """query, key: `[n, heads, K]`; value: `[n, heads, V]`; decay: `[n, heads, 1 or K, 1]`; beta: `[n, heads, 1]`.

    dtype: of the outputs.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    decay: Tensor
    beta: Tensor
    dtype: torch.dtype

    state_dims = 4

    @property
    def rows(self) -> int:
        """See `Scan.rows`."""
        return len(self.key)

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """See `Scan.of`."""
        names = ("query", "key", "value", "g", "beta")
        query, key, value, g, beta = (given[name][0].float() for name in names)
        heads = value.shape[1]
        query, key = by_head(query, heads), by_head(key, heads)
        if given.get("use_qk_l2norm_in_kernel"):
            query, key = _normed(query), _normed(key)
        decay = (g if g.dim() == _BY_CHANNEL else g.unsqueeze(-1)).exp().unsqueeze(-1)
        return cls(query * query.shape[-1] ** -0.5, key, value, decay, beta.unsqueeze(-1), given["query"].dtype)

    @classmethod
    def of_one(cls, given: dict[str, Any]) -> Self:
        """See `Scan.of_one`: the same arguments."""
        return cls.of(given)

    def advanced(self, state: Tensor, row: int) -> Tensor:
        """See `Scan.advanced`: `[1, heads, K, V]`."""
        key = self.key[row]
        state = state[0] * self.decay[row]
        change = (self.value[row] - (key.unsqueeze(1) @ state)[:, 0]) * self.beta[row]
        return torch.baddbmm(state, key.unsqueeze(2), change.unsqueeze(1)).unsqueeze(0)

    def output(self, state: Tensor, row: int) -> Tensor:
        """See `Scan.output`: `[heads, V]`."""
        read: Tensor = self.query[row].unsqueeze(1) @ state[0]
        return read[:, 0]

    def packed(self, outputs: Sequence[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
        """See `Scan.packed`."""
        return torch.stack(list(outputs)).unsqueeze(0).to(self.dtype), state


def _normed(rows: Tensor) -> Tensor:
    return rows * torch.rsqrt((rows * rows).sum(-1, keepdim=True) + 1e-6)

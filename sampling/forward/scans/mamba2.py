"""Mamba-2's recurrence (arXiv 2405.21060): h = e^(dt A) h + dt x B^T; y = h C + D x."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.scans.scan import Scan, by_head, discretised


@dataclass(frozen=True, slots=True)
class Mamba2(Scan):
    """x: `[n, heads, P]`; dt: `[n, heads]`, discretised; rate: A, `[heads]`; b, c: `[n, heads, N]`.

    skip: D, `[heads, 1]`. gate: z as x, of a single row alone. one: whether it is that of transformers' single row.
    """

    x: Tensor
    dt: Tensor
    rate: Tensor
    b: Tensor
    c: Tensor
    skip: Tensor | None
    gate: Tensor | None
    dtype: torch.dtype
    one: bool

    state_dims = 4

    @property
    def rows(self) -> int:
        """See `Scan.rows`."""
        return len(self.x)

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """See `Scan.of`."""
        x, dt, skip = given["hidden_states"][0], given["dt"][0], given.get("D")
        dt = discretised(dt, given.get("dt_bias"), given.get("dt_softplus"))
        dt = dt.clamp(*given.get("dt_limit", (0.0, float("inf"))))
        skip = None if skip is None else skip.unsqueeze(-1)
        return cls._made(x, dt, given["A"], given["B"][0], given["C"][0], skip, None, torch.float32, False)

    @classmethod
    def of_one(cls, given: dict[str, Any]) -> Self:
        """See `Scan.of_one`: there dt, A, D and the bias are repeated for each channel of a head."""
        x, skip, bias = given["hidden_states"], given.get("D"), given.get("dt_bias")
        dt = discretised(given["dt"][..., 0], None if bias is None else bias[..., 0], given.get("dt_softplus"))
        rate = given["A"][:, 0, 0]
        return cls._made(x, dt, rate, given["B"], given["C"], skip, given.get("z"), x.dtype, True)

    @classmethod
    def _made(cls, x: Tensor, dt: Tensor, rate: Tensor, b: Tensor, c: Tensor, *rest: Any) -> Self:
        heads = x.shape[1]
        return cls(x.float(), dt.float(), rate.float(), by_head(b.float(), heads), by_head(c.float(), heads), *rest)

    def advanced(self, state: Tensor, row: int) -> Tensor:
        """See `Scan.advanced`: `[1, heads, P, N]`."""
        dt = self.dt[row, :, None]
        kept = state[0] * torch.exp(dt * self.rate[:, None]).unsqueeze(-1)
        return torch.addcmul(kept, (self.x[row] * dt).unsqueeze(2), self.b[row].unsqueeze(1)).unsqueeze(0).to(state)

    def output(self, state: Tensor, row: int) -> Tensor:
        """See `Scan.output`: `[heads, P]`."""
        read: Tensor = (state[0].float() @ self.c[row].unsqueeze(2))[..., 0]
        read = read if self.skip is None else read + self.skip * self.x[row]
        return read if self.gate is None else read * F.silu(self.gate[row])

    def packed(self, outputs: Sequence[Tensor], state: Tensor) -> Any:
        """See `Scan.packed`."""
        made = torch.stack(list(outputs)).to(self.dtype)
        return made if self.one else (made.unsqueeze(0), state)

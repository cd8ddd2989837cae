"""Mamba-1's recurrence (arXiv 2312.00752): h = e^(dt A) h + dt B x; y = C h + D x.

transformers' scan of a chain begins from zeros whatever state there is, so that several tokens behind a text are
wrong. This one is always put in its place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.scans.scan import Scan, discretised


@dataclass(frozen=True, slots=True)
class Mamba(Scan):
    """x: `[n, H]`; decay, added: e^(dt A) and dt B x, `[n, H, N]`; c: `[n, N]`; skip: D, `[H]`; gate: z as x."""

    x: Tensor
    decay: Tensor
    added: Tensor
    c: Tensor
    skip: Tensor | None
    gate: Tensor | None
    dtype: torch.dtype
    one: bool

    state_dims = 3
    always = True

    @property
    def rows(self) -> int:
        """See `Scan.rows`."""
        return len(self.x)

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """See `Scan.of`: there the rows are the last dimension."""
        gate = given.get("z")
        x, dt, b, c = (given[name][0].T for name in ("hidden_states", "dt", "B", "C"))
        bias, dtype = given.get("delta_bias"), given["hidden_states"].dtype
        return cls._made(x, dt, bias, given, b, c, None if gate is None else gate[0].T, dtype, False)

    @classmethod
    def of_one(cls, given: dict[str, Any]) -> Self:
        """See `Scan.of_one`."""
        x, dt, b, c = (given[name] for name in ("hidden_states", "dt", "B", "C"))
        return cls._made(x, dt, given.get("dt_bias"), given, b, c, given.get("z"), x.dtype, True)

    @classmethod
    def _made(
        cls, x: Tensor, dt: Tensor, bias: Tensor | None, given: dict[str, Any], b: Tensor, c: Tensor, *rest: Any
    ) -> Self:
        dt = discretised(dt, bias).unsqueeze(-1)
        added = dt * b.unsqueeze(1).float() * x.unsqueeze(-1).float()
        return cls(x, torch.exp(given["A"] * dt), added, c, given.get("D"), *rest)

    def advanced(self, state: Tensor, row: int) -> Tensor:
        """See `Scan.advanced`: `[1, H, N]`."""
        return (state * self.decay[row] + self.added[row]).to(state.dtype)

    def output(self, state: Tensor, row: int) -> Tensor:
        """See `Scan.output`: `[H]`."""
        x = self.x[row]
        read: Tensor = state[0].to(x.dtype) @ self.c[row].to(x.dtype)
        read = read if self.skip is None else read + x * self.skip
        return read if self.gate is None else read * F.silu(self.gate[row])

    def packed(self, outputs: Sequence[Tensor], state: Tensor) -> Any:
        """See `Scan.packed`."""
        made = torch.stack(list(outputs)).to(self.dtype)
        return made if self.one else (made.T.unsqueeze(0), state)

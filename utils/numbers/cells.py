"""A vocabulary cut into cells for chi-square tests: likely tokens alone, others together with those of their rank."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from utils.numbers.statistics import LEAST_EXPECTED, ChiSquare

_MOST = 16


@dataclass(frozen=True, slots=True)
class Cells:
    """index: the cell of each token, `[V]`."""

    index: Tensor

    @classmethod
    def of(cls, p: Tensor, total: float, mass: Tensor | None = None) -> "Cells":
        """Tokens in the order of `p` `[V]`, cut where a cell has ten of `total` draws and a sixteenth of all.

        mass: the share of draws that each token is expected to have, `[V]`, where that is not p.
        """
        shares = p if mass is None else mass
        order = p.argsort(descending=True, stable=True)
        below = shares[order].double().cumsum(0)
        need = max(LEAST_EXPECTED / total, 1.0 / _MOST) - 1e-9
        starts, start, before = [0], 0, 0.0
        while float(below[-1]) - before >= 2.0 * need:
            start = int(torch.searchsorted(below, before + need)) + 1
            before = float(below[start - 1])
            if float(below[-1]) - before < need:
                break
            starts.append(start)
        index = torch.zeros_like(order)
        index[order[starts]] = 1
        cell_in_order = index[order].cumsum(0) - 1
        index[order] = cell_in_order
        return cls(index)

    def masses(self, p: Tensor) -> list[float]:
        """The probability of each cell under `p` `[V]`."""
        sums = torch.zeros(int(self.index.max()) + 1, dtype=torch.float64)
        found: list[float] = sums.index_add(0, self.index, p.double()).tolist()
        return found

    def counted(self, counts: Mapping[int, int]) -> list[float]:
        """The draws in each cell."""
        drawn = torch.zeros(len(self.index), dtype=torch.float64)
        for token, count in counts.items():
            drawn[token] = count
        return self.masses(drawn)


def alike(first: Mapping[int, int], second: Mapping[int, int], p: Tensor) -> ChiSquare:
    """Whether two sets of draws come from one distribution, whatever that is: the test of homogeneity.

    p: `[V]`, says only in which order tokens are put into cells.
    """
    totals = sum(first.values()), sum(second.values())
    shares = torch.zeros(len(p), dtype=torch.float64)
    for token in {*first, *second}:
        shares[token] = (first.get(token, 0) + second.get(token, 0)) / sum(totals)
    cells = Cells.of(p, min(totals), shares)
    parts = [
        ChiSquare.of(cells.counted(counts), [mass * total for mass in cells.masses(shares)])
        for counts, total in zip((first, second), totals, strict=True)
    ]
    return ChiSquare(sum(part.statistic for part in parts), parts[0].degrees)

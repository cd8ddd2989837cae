"""Whether counts agree with a distribution, or with other counts: Pearson's chi-square test, with torch alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_MOST_CELLS = 16
_LEAST_EXPECTED = 10.0


def chi_square_survival(statistic: float, degrees: int) -> float:
    """P(X >= statistic) for X chi-square distributed: the regularised upper incomplete gamma function."""
    half = torch.tensor([degrees / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


@dataclass(frozen=True, slots=True)
class Cells:
    """A vocabulary cut into the tokens that have a cell of their own, and one cell of all others, the last."""

    tokens: tuple[int, ...]

    @classmethod
    def of(cls, p: Tensor, total: float) -> "Cells":
        """For `total` draws from `p` `[V]`: at most 15 most likely tokens, and ten expected counts in every cell."""
        probs, tokens = p.double().cpu().topk(min(_MOST_CELLS - 1, p.shape[0]))
        kept = max(int((probs * total >= _LEAST_EXPECTED).sum()), 1)
        rest = total - float((probs[:kept] * total).sum())
        return cls(tuple(tokens[: kept if rest >= _LEAST_EXPECTED else kept - 1].tolist()))

    def masses(self, p: Tensor) -> list[float]:
        """The probability of each cell under `p` `[V]`."""
        own: list[float] = p[list(self.tokens)].double().tolist()
        return [*own, float(p.double().sum()) - sum(own)]

    def counted(self, counts: Mapping[int, int]) -> list[int]:
        """The draws in each cell."""
        own = [counts.get(token, 0) for token in self.tokens]
        return [*own, sum(counts.values()) - sum(own)]


@dataclass(frozen=True, slots=True)
class ChiSquare:
    """A statistic and its degrees of freedom; without degrees there is nothing to tell."""

    statistic: float = 0.0
    degrees: int = 0

    def __add__(self, other: "ChiSquare") -> "ChiSquare":
        """Of independent draws."""
        return ChiSquare(self.statistic + other.statistic, self.degrees + other.degrees)

    @property
    def p_value(self) -> float:
        """The chance of a statistic at least so large, where nothing differs."""
        return chi_square_survival(self.statistic, self.degrees) if self.degrees else 1.0


def against(observed: Sequence[float], expected: Sequence[float]) -> ChiSquare:
    """Counts of cells against those that a distribution gives them."""
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True)) if len(expected) > 1 else 0.0
    return ChiSquare(statistic, len(expected) - 1)


def alike(first: Mapping[int, int], second: Mapping[int, int]) -> ChiSquare:
    """Whether two sets of counts come from one distribution, whatever that is: the test of homogeneity.

    Cells are the most frequent tokens of both together, with ten expected counts in the smaller set.
    """
    totals = sum(first.values()), sum(second.values())
    both = {token: first.get(token, 0) + second.get(token, 0) for token in {*first, *second}}
    shares = torch.zeros(max(both) + 1, dtype=torch.float64)
    for token, count in both.items():
        shares[token] = count / sum(totals)
    cells = Cells.of(shares, min(totals))
    found = ChiSquare(0.0, len(cells.tokens))
    for counts, total in zip((first, second), totals, strict=True):
        part = against(cells.counted(counts), [mass * total for mass in cells.masses(shares)])
        found = ChiSquare(found.statistic + part.statistic, found.degrees)
    return found


def distribution_p_value(counts: Mapping[int, int], p: Tensor) -> float:
    """Probability of counts at least this far from the distribution `p` `[V]`, if they were drawn from it.

    Cells are those of `Cells.of`. A token that the distribution excludes gives 0.0; a distribution that leaves a
    single cell gives 1.0.
    """
    total = sum(counts.values())
    p = p.double().cpu()
    if any(p[token] == 0.0 for token in counts):
        return 0.0
    cells = Cells.of(p, total)
    return against(cells.counted(counts), [mass * total for mass in cells.masses(p)]).p_value


def holm(values: Sequence[float]) -> list[float]:
    """p values corrected for their number by Holm's method, in the given order.

    Example: [0.01, 0.04, 0.03] -> [0.03, 0.06, 0.06]: 3 * 0.01, then 2 * 0.03, and 0.04 may not fall below that.
    """
    corrected, highest = [0.0] * len(values), 0.0
    for place, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = max(highest, min(1.0, (len(values) - place) * values[index]))
        corrected[index] = highest
    return corrected

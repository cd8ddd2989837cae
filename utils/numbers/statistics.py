"""Whether counts agree with a distribution: Pearson's chi-square test, with torch alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_MOST_CELLS = 16
LEAST_EXPECTED = 10.0


def chi_square_survival(statistic: float, degrees: int) -> float:
    """P(X >= statistic) for X chi-square distributed: the regularised upper incomplete gamma function."""
    half = torch.tensor([degrees / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


@dataclass(frozen=True, slots=True)
class ChiSquare:
    """A statistic and its degrees of freedom; without degrees there is nothing to tell."""

    statistic: float = 0.0
    degrees: int = 0

    @classmethod
    def of(cls, observed: Sequence[float], expected: Sequence[float]) -> "ChiSquare":
        """Counts of cells against those that a distribution gives them."""
        if len(expected) == 1:
            return cls()
        return cls(sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True)), len(expected) - 1)

    def __add__(self, other: "ChiSquare") -> "ChiSquare":
        """Of independent draws."""
        return ChiSquare(self.statistic + other.statistic, self.degrees + other.degrees)

    @property
    def p_value(self) -> float:
        """The chance of a statistic at least so large, where nothing differs."""
        return chi_square_survival(self.statistic, self.degrees) if self.degrees else 1.0


def distribution_p_value(counts: Mapping[int, int], p: Tensor) -> float:
    """Probability of counts at least this far from the distribution `p` `[V]`, if they were drawn from it.

    The vocabulary is cut into the most likely tokens, at most 15 with ten expected counts each, and all
    others. A token that the distribution excludes gives 0.0; a distribution that leaves a single cell gives 1.0.
    """
    total = sum(counts.values())
    p = p.double().cpu()
    if any(p[token] == 0.0 for token in counts):
        return 0.0
    probs, tokens = p.topk(min(_MOST_CELLS - 1, p.shape[0]))
    kept = max(int((probs * total >= LEAST_EXPECTED).sum()), 1)
    expected = (probs[:kept] * total).tolist()
    observed = [float(counts.get(token, 0)) for token in tokens[:kept].tolist()]
    rest_expected, rest_observed = total - sum(expected), total - sum(observed)
    if rest_expected >= LEAST_EXPECTED:
        expected, observed = [*expected, rest_expected], [*observed, rest_observed]
    else:
        expected[-1] += rest_expected
        observed[-1] += rest_observed
    return ChiSquare.of(observed, expected).p_value

"""What rounding a model's weights costs in quality, in numbers; `rounded` measures them. No torch is imported here."""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from utils.numbers.intervals import share_interval, studentised_ratio


@dataclass(frozen=True, slots=True)
class AnswerSums:
    """Sums over the tokens of one prompt's answers; the prompt's own tokens are not among them.

    same: positions where both models find the same token most likely. kl: of KL(full || rounded), nats. nll,
    full_nll: -ln p of the answer under the rounded and the full model, nats.
    """

    tokens: int
    same: int
    kl: float
    nll: float
    full_nll: float

    def __add__(self, other: "AnswerSums") -> "AnswerSums":
        """Both together, as of the turns of one conversation."""
        return AnswerSums(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


NOTHING = AnswerSums(0, 0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Quality:
    """A rounded model against the full one, on the full one's own greedy answers.

    same: share of the answers' positions where both find the same token most likely. kl: mean of KL(full || rounded)
    a position, nats. perplexity, full_perplexity: of the answers under either model, exp of the mean -ln p of a
    token. `_low` and `_high`: 95 % intervals over prompts; None where fewer than five were measured.
    weight_bytes, full_weight_bytes: what the products and the embedding hold (`rounded.weight_bytes`).
    """

    prompts: int
    tokens: int
    same: float
    same_low: float | None
    same_high: float | None
    kl: float
    kl_low: float | None
    kl_high: float | None
    perplexity: float
    perplexity_low: float | None
    perplexity_high: float | None
    full_perplexity: float
    full_perplexity_low: float | None
    full_perplexity_high: float | None
    weight_bytes: int
    full_weight_bytes: int


def summed_up(sums: Sequence[AnswerSums], weight_bytes: int, full_weight_bytes: int) -> Quality:
    """The quality from the sums of each prompt's answers. Raises `ValueError` where no answer has a token."""
    table = np.array([astuple(sums_of) for sums_of in sums if sums_of.tokens], dtype=np.float64).reshape(-1, 5)
    if not len(table):
        raise ValueError("no answer has a token; expected at least one")
    tokens, parts = table[:, :1], table[:, 1:]
    means = parts.sum(axis=0) / tokens.sum()
    wholes = np.repeat(tokens, parts.shape[1] - 1, axis=1)
    ends = share_interval(parts[:, :1], tokens), studentised_ratio(parts[:, 1:], wholes)
    low, high = np.concatenate(ends, axis=1)
    same, kl, nll, full_nll = ((float(m), _known(a), _known(b)) for m, a, b in zip(means, low, high, strict=True))
    return Quality(
        len(table), int(tokens.sum()), *same, *kl, *_exp(nll), *_exp(full_nll), weight_bytes, full_weight_bytes
    )


Interval = tuple[float, float | None, float | None]


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _exp(nats: Interval) -> Interval:
    """exp grows, so that the ends of an interval stay its ends."""
    middle, low, high = nats
    return math.exp(middle), None if low is None else math.exp(low), None if high is None else math.exp(high)

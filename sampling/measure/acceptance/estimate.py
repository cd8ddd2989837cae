"""From what drafters met to rates by depth and tokens a round, each with its interval over texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sampling.measure.acceptance.met import Met, Numbers
from utils.numbers.intervals import share_interval, studentised_ratio


class IntervalEstimate(NamedTuple):
    """A figure with its 95 % interval over texts, NaN where few know it, and of how many places it is."""

    value: float
    low: float
    high: float
    places: float


@dataclass(frozen=True, slots=True)
class DepthSums:
    """Sums over places, a row a text, `[n, D]` each.

    risk: chances that drafting comes to a depth, where the text tells what follows there. drafted: the same where there
    was a draft. hits: the chances that it came there and the draft is accepted. anywhere, known: acceptance at all
    places, behind the text's own tokens, and how many they are. first: acceptance of a first draft at the places where
    these drafts stand, weighed as they are.
    """

    risk: Numbers
    drafted: Numbers
    hits: Numbers
    anywhere: Numbers
    known: Numbers
    first: Numbers

    @classmethod
    def of(cls, mets: Sequence[Met], where: Sequence[NDArray[np.bool_]] | None = None) -> "DepthSums":
        """Of all texts. where: `[places]` of each, from which of its places drafting begins; all where None."""
        masks = [np.ones(met.places, dtype=bool) for met in mets] if where is None else where
        rows = [_sums(met, mask) for met, mask in zip(mets, masks, strict=True)]
        return cls(*(np.stack(column) for column in zip(*rows, strict=True)))

    @property
    def steps(self) -> Numbers:
        """`[D]`: one minus the hazard: how often a draft is there and accepted, of where drafting comes."""
        return ratio(self.hits.sum(axis=0), self.risk.sum(axis=0))

    @property
    def survival(self) -> Numbers:
        """`[D]`: the chance that this draft and all before it are accepted (Kaplan and Meier 1958).

        A text that ends, or that the target would not have gone on with, is censored there: it counts as far as it
        tells. Example: 4 places, 2 accept; of these one is the text's last; the other accepts -> 0.5, 0.5 * 1.
        """
        ended = np.cumprod(np.nan_to_num(self.steps, nan=1.0)) == 0.0
        chances: Numbers = np.where(ended, 0.0, np.cumprod(self.steps))
        return chances

    def influence(self) -> Numbers:
        """`[n, D]`: how far each text moves the survival, linearised (Greenwood's variance, by text)."""
        hits = self.hits.sum(axis=0)
        expected = np.nan_to_num(self.steps) * self.risk
        off = np.divide(self.hits - expected, hits, out=np.zeros_like(self.hits), where=hits > 0)
        moved: Numbers = np.nan_to_num(self.survival) * np.cumsum(off, axis=1)
        return moved


def _sums(met: Met, mask: NDArray[np.bool_]) -> tuple[Numbers, ...]:
    reached, known = met.reached()[mask], ~np.isnan(met.accept[mask])
    accept, drafted = np.nan_to_num(met.accept[mask]), met.drafted[mask]
    # The first draft at place i + d - 1, where draft d of place i stands.
    stands = np.add.outer(np.flatnonzero(mask), np.arange(met.depth)).clip(max=met.places - 1)
    first = np.nan_to_num(met.accept[:, 0])[stands]
    return (
        (reached * known).sum(axis=0),
        (reached * (known & drafted)).sum(axis=0),
        (reached * accept).sum(axis=0),
        (accept * drafted).sum(axis=0),
        (known & drafted).sum(axis=0).astype(np.float64),
        (reached * (known & drafted) * first).sum(axis=0),
    )


def conditional(sums: DepthSums) -> list[IntervalEstimate]:
    """Of the drafts whose predecessors were accepted, the share that is."""
    return shares(sums.hits, sums.drafted)


def anywhere(sums: DepthSums) -> list[IntervalEstimate]:
    """Of the drafts at all places, behind the text's own tokens: no easy place is picked by what came before."""
    return shares(sums.anywhere, sums.known)


def first_there(sums: DepthSums) -> list[IntervalEstimate]:
    """Of the places where conditional drafts stand, how often a first draft would have been accepted."""
    return shares(sums.first, sums.drafted)


def drafted(sums: DepthSums) -> list[IntervalEstimate]:
    """Of where drafting comes, how often there is a draft."""
    return shares(sums.drafted, sums.risk)


def unconditional(sums: DepthSums) -> list[IntervalEstimate]:
    """The survival with its interval: that of a share with the variance that the texts show."""
    whole = sums.risk[:, :1]
    return shares(*_around(sums.survival, sums.influence(), whole))


def tokens_a_round(sums: DepthSums) -> list[IntervalEstimate]:
    """1 + S(1) + ... + S(gamma) for each gamma from 1 on: a round that begins anywhere, the target's token included."""
    values, influence = np.cumsum(sums.survival), np.cumsum(sums.influence(), axis=1)
    parts, wholes = _around(values, influence, sums.risk[:, :1])
    low, high = studentised_ratio(parts + wholes, wholes, least=1.0)
    return estimates(values + 1.0, low, high, wholes.sum(axis=0))


def coverage(mets: Sequence[Met], k: int) -> list[IntervalEstimate]:
    """By depth, at all places: the target's mass on the drafter's k most likely tokens behind the text's own."""
    known = [met.drafted & ~np.isnan(met.accept) for met in mets]
    covers = [met.cover for met in mets]
    parts = [
        (cover[:, :, k - 1] * there).sum(axis=0)
        for cover, there in zip(covers, known, strict=True)
        if cover is not None
    ]
    return shares(np.stack(parts), np.stack([there.sum(axis=0) for there in known]).astype(np.float64))


def _around(values: Numbers, influence: Numbers, whole: Numbers) -> tuple[Numbers, Numbers]:
    """Parts and wholes, a row a text, whose ratios of sums are the values and vary as the influences say."""
    wholes = np.broadcast_to(whole, influence.shape)
    return values * wholes + influence * wholes.sum(axis=0), wholes


def shares(parts: Numbers, wholes: Numbers) -> list[IntervalEstimate]:
    low, high = share_interval(parts, wholes)
    return estimates(ratio(parts.sum(axis=0), wholes.sum(axis=0)), low, high, wholes.sum(axis=0))


def estimates(values: Numbers, low: Numbers, high: Numbers, places: Numbers) -> list[IntervalEstimate]:
    columns = zip(values, low, high, places, strict=True)
    return [IntervalEstimate(*(float(number) for number in column)) for column in columns]


def ratio(parts: Numbers, wholes: Numbers) -> Numbers:
    return np.divide(parts, wholes, out=np.full_like(parts, np.nan), where=wholes > 0)

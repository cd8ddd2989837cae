"""Prices from rounds that were run: what verifying so many rows and drafting so many steps took."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from egag.cost_model import CostModel
from egag.rollback_price import FREE, RollbackPrice
from sampling.measure.replay.walk import Sample
from utils.errors import UserError


def fitted(samples: Sequence[Sample], walked: Sequence[Sample] = (), others: Sequence[Sample] = ()) -> CostModel:
    """The price of rounds like these: a mean for each number of rows, a line through the steps of drafting.

    samples: measured rounds of the drafter. walked: those of its walks. others: measured rounds of other drafters,
    plain autoregression among them. What verifies as many rows is taken from the first of samples, others and
    walked that has it; how drafting grows with its steps from samples and walked, and its level, like the rest,
    from samples where there are any. More rows never cost less than fewer. What rounds paid for a rejection before them
    is told from rounds of as many rows that paid nothing. Raises `UserError` where there is no round.
    """
    level = samples or walked
    if not level:
        raise UserError("no round to take times from; expected a trace with rounds of the drafter, or a price")
    rollback = _rollback([*samples, *others, *walked])
    points = {rows: taken for some in (walked, others, samples) for rows, taken in _by_rows(some, rollback).items()}
    drafting = [sample for sample in level if sample.steps]
    step = _rise([(sample.steps, sample.draft_s) for sample in (*samples, *walked) if sample.steps])
    first = fmean(sample.draft_s - (sample.steps - 1) * step for sample in drafting) if drafting else 0.0
    rest = fmean(sample.other_s for sample in level)
    return CostModel(_rising(points), max(0.0, first), step, rest, rollback=rollback)


def scaled(price: CostModel, samples: Sequence[Sample]) -> CostModel:
    """The same price at the level of these rounds: in all they cost what they took, part by part.

    Rejections in a row may read more again than each left; the price of a token is raised by as much.

    Example: rounds that took 1.1 times the predicted seconds of verifying -> every forward costs 1.1 times as much.
    """
    verify = _ratio(
        (sample.verify_s, price.verify_s(sample.nodes) + price.rollback_s(sample.paid)) for sample in samples
    )
    again = _ratio((sample.paid.reread, sample.left.reread) for sample in samples)
    draft = _ratio((sample.draft_s, price.draft_s(sample.steps)) for sample in samples)
    return replace(
        price,
        forward=tuple((rows, seconds * verify) for rows, seconds in price.forward),
        first_s=price.first_s * draft,
        step_s=price.step_s * draft,
        rest_s=price.rest_s * _ratio((sample.other_s, price.rest_s) for sample in samples),
        rollback=price.rollback.scaled(verify, verify * again),
    )


def in_batch(price: CostModel, size: int) -> CostModel:
    """What a round costs when `size` sequences go through it side by side, each with as many drafts.

    Every row of the one is `size` rows of the other. What drafts, which reads its own weights once for all of them, is
    taken to grow as the target's forward does from one row to `size`.
    """
    most = max(rows for rows, _ in price.forward)
    growth = price.v(size - 1)
    return replace(
        price,
        forward=tuple((rows, price.verify_s(size * rows - 1)) for rows in range(1, most + 1)),
        first_s=price.first_s * growth,
        step_s=price.step_s * growth,
    )


def _ratio(pairs: Iterable[tuple[float, float]]) -> float:
    """Measured over predicted, total over total; 1 where either is nothing."""
    both = list(pairs)
    measured, predicted = sum(ratio for ratio, _ in both), sum(other for _, other in both)
    return measured / predicted if measured > 0.0 and predicted > 0.0 else 1.0


def _by_rows(samples: Iterable[Sample], rollback: RollbackPrice) -> dict[int, list[float]]:
    """Seconds of verifying, by rows, without what was paid for rejections before."""
    by_rows: dict[int, list[float]] = defaultdict(list)
    for sample in samples:
        by_rows[sample.nodes + 1].append(sample.verify_s - rollback.seconds(sample.paid))
    return by_rows


def _rollback(samples: Sequence[Sample]) -> RollbackPrice:
    """What rounds that paid for a rejection took longer than those of as many rows that did not: a line by tokens."""
    unpaid = _by_rows((sample for sample in samples if not sample.paid.reread), FREE)
    paid = [
        (sample.paid.reread, sample.verify_s - fmean(unpaid[sample.nodes + 1]))
        for sample in samples
        if sample.paid.reread and sample.nodes + 1 in unpaid
    ]
    if not paid:
        return FREE
    token_s = _rise(paid)
    return RollbackPrice(max(0.0, fmean(over_s - reread * token_s for reread, over_s in paid)), token_s)


def _rising(points: Mapping[int, Sequence[float]]) -> tuple[tuple[int, float], ...]:
    """(rows, mean seconds), rows ascending: where more rows took less, which is noise, both take their mean.

    Pools adjacent violators, so that all points together cost what they took. Example: 1 row 10.0 twice, 2 rows 7.0
    once, 3 rows 12.0 -> (1, 9.0), (2, 9.0), (3, 12.0).
    """
    blocks: list[tuple[list[int], float, int]] = []
    for rows in sorted(points):
        block = [rows], sum(points[rows]), len(points[rows])
        while blocks and blocks[-1][1] / blocks[-1][2] > block[1] / block[2]:
            before = blocks.pop()
            block = [*before[0], *block[0]], before[1] + block[1], before[2] + block[2]
        blocks.append(block)
    return tuple((rows, seconds / count) for several, seconds, count in blocks for rows in several)


def _rise(points: Sequence[tuple[float, float]]) -> float:
    """How much more one more of the first costs of the second, by least squares, at least 0; 0 where all are alike."""
    if len({count for count, _ in points}) < 2:
        return 0.0
    mean, mean_s = (fmean(values) for values in zip(*points, strict=True))
    spread = sum((count - mean) ** 2 for count, _ in points)
    return max(0.0, sum((count - mean) * (seconds - mean_s) for count, seconds in points) / spread)

"""What no rule knows: the best fixed length of a set of answers, and the oracle that knows what is accepted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from egag.cost_model import CostModel
from egag.length_rule import FixedGamma
from sampling.measure.metrics import RunMetrics
from sampling.measure.replay.replayed import account, judged, replayed
from sampling.measure.replay.walk import DraftWalk
from utils.events import Round


@dataclass(frozen=True, slots=True)
class BestFixed:
    """The fixed length that takes the fewest predicted seconds, and what each length takes, from 0 on."""

    gamma: int
    runs: tuple[RunMetrics, ...]
    seconds: tuple[float, ...]


def best_fixed(
    walks: Sequence[DraftWalk], price: CostModel | Sequence[CostModel], most: int | None = None
) -> BestFixed:
    """The best fixed gamma of 0 to `most` over all walks together; for one prompt give its walk alone.

    Of trees, whose depth is that of the walks, the best number of nodes. price: one for all walks, or one each. most:
    at most what the walks have, which is the default. runs: of each walk under the best length.

    Example: seconds (2.0, 1.5, 1.7) for 0, 1 and 2 -> gamma 1.
    """
    prices = [price] * len(walks) if isinstance(price, CostModel) else list(price)
    longest = min((longest_fixed(walk) for walk in walks), default=0)
    lengths = range((longest if most is None else min(most, longest)) + 1)
    runs = [[_fixed(walk, gamma, each) for walk, each in zip(walks, prices, strict=True)] for gamma in lengths]
    seconds = tuple(sum(run.decode_s for run in several) for several in runs)
    best = min(lengths, key=seconds.__getitem__)
    return BestFixed(best, tuple(runs[best]), seconds)


def longest_fixed(walk: DraftWalk) -> int:
    """The longest fixed length that a walk can tell of: drafts of a chain, nodes of a tree."""
    if walk.trees:
        return max(len(ahead.drafts) for ahead in walk.ahead)
    return min((ahead.most for ahead in walk.ahead), default=0)


def _fixed(walk: DraftWalk, length: int, price: CostModel) -> RunMetrics:
    if walk.trees and length:
        return replayed(walk, FixedGamma(walk.ahead[0].most), price, nodes=length)
    return replayed(walk, FixedGamma(length), price)


def oracle(walk: DraftWalk, price: CostModel, most: int | None = None) -> RunMetrics:
    """The account of the fastest rounds that this drafter allows: `most` drafts at most, and no more than are accepted.

    Of a tree it drafts the path alone. A round that accepts m costs `price.seconds(m)` and gives m + 1 tokens; where a
    draft that would be accepted costs more than the round that it spares, it is left out.
    """
    paths = [walk.path(position, draft.drafts, draft.parents)[:most] for position, draft in enumerate(walk.ahead)]
    counts = _fastest([len(path) for path in paths], price)
    kept = [tuple(draft.drafts[row] for row in path) for draft, path in zip(walk.ahead, paths, strict=True)]
    return account(walk, _chosen(walk, [drafts[:count] for drafts, count in zip(kept, counts, strict=True)], price))


def placed(walk: DraftWalk, counts: Sequence[int], price: CostModel) -> RunMetrics:
    """The account of chains of so many drafts at each position, whoever chose the numbers."""
    chosen = [draft.drafts[:count] for draft, count in zip(walk.ahead, counts, strict=True)]
    return account(walk, _chosen(walk, chosen, price))


def _chosen(walk: DraftWalk, drafts: Sequence[tuple[int, ...]], price: CostModel) -> Iterator[Round]:
    """The rounds that verify these drafts at the positions where they begin."""
    position, number = 0, 0
    while position < len(walk.tokens):
        round = judged(walk, number, position, len(drafts[position]), drafts[position], None, price)
        yield round
        position += len(round.emitted)
        number += 1


def _fastest(accepted: Sequence[int], price: CostModel) -> list[int]:
    """How many drafts to have verified at each position of an answer, so that it ends soonest.

    accepted: how many would pass there. Example: rounds of 1 s whatever they verify, accepted 0, 2, 1, 0 -> 0, 2, 1, 0.
    """
    left = [0.0] * (len(accepted) + 1)
    counts = [0] * len(accepted)
    for position in reversed(range(len(accepted))):
        seconds = [
            price.seconds(count) + left[min(position + count + 1, len(accepted))]
            for count in range(accepted[position] + 1)
        ]
        left[position] = min(seconds)
        counts[position] = max(count for count, taken in enumerate(seconds) if taken == left[position])
    return counts

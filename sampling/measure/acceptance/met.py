"""What a drafter met along one text: at each place and depth, the chance that its draft is accepted."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TOP = 10
"""So many of a drafter's most likely tokens are looked at: what trees may hold side by side."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Met:
    """One drafter along one text of n places, to depth D; all under one processor.

    Depth d behind place i stands at place i + d - 1, behind the text's own tokens up to there.

    drafted: `[n, D]` bool, whether there is a draft. accept: `[n, D]`, chance that it is accepted; 0 where there is
    none, NaN where nobody knows: behind the end of the text, and for drafters whose drafts behind other tokens than
    their own are not known. follow: `[n, D]`, chance that the text's token is drafted and accepted, given that the text
    goes on with it; NaN where the target never goes on so: from there the text tells nothing.
    cover: `[n, D, TOP]`, the target's mass on the drafter's k most likely tokens; rank: `[n, D]`, at which of them the
    text's token is, TOP where at none. Both None where the drafter gives no more than its drafts.
    """

    drafted: NDArray[np.bool_]
    accept: Numbers
    follow: Numbers
    cover: Numbers | None = None
    rank: NDArray[np.int16] | None = None

    @classmethod
    def empty(cls, places: int, depth: int, fed: bool) -> "Met":
        """Nothing drafted yet. fed: whether the drafter can be fed the text's own tokens."""
        shape = places, depth
        accept = np.zeros(shape)
        accept[np.add.outer(np.arange(places), np.arange(depth)) >= places] = np.nan
        return cls(
            np.zeros(shape, dtype=bool),
            accept,
            np.zeros(shape),
            np.zeros((*shape, TOP)) if fed else None,
            np.full(shape, TOP, dtype=np.int16) if fed else None,
        )

    @property
    def places(self) -> int:
        """n."""
        return int(self.accept.shape[0])

    @property
    def depth(self) -> int:
        """D."""
        return int(self.accept.shape[1])

    def spread(self) -> None:
        """Enter all depths of a drafter whose drafts depend on the tokens before alone, from those of depth 1."""
        for depth in range(1, self.depth):
            for known in (self.drafted, self.accept, self.follow, self.cover, self.rank):
                if known is not None:
                    known[:-depth, depth] = known[depth:, 0]

    def reached(self) -> Numbers:
        """`[n, D]`: the chance that drafting from a place comes to each depth along the text; 0 where that is lost."""
        going = np.cumprod(np.nan_to_num(self.follow), axis=1)
        return np.concatenate([np.ones((self.places, 1)), going[:, :-1]], axis=1)

"""What the draft side shows of each draft of a walk, before the target has read it: the columns of a classifier."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sampling.measure.replay import DraftWalk, PositionDraft

BELIEF = ("entropy", "top", "chance", "path_top", "path_chance", "least_top", "first_entropy", "first_top")
STATED = ("stated", "match")
PAST = ("last_right", "right_lately", "right_before", "streak")
TEXT = ("position", "prompt_tokens", "seen", "seen_behind")
DEPTH = ("depth",)
COLUMNS = (*DEPTH, *BELIEF, *STATED, *PAST, *TEXT)
"""depth: drafts before this one in the round. entropy (nats), top, chance: of the distribution behind the draft.

path_top, path_chance: products over the round so far. least_top: the least top so far. first_: of the round's first
draft. stated: what a copy or a head says that the draft is right, given those before. match: tokens that a copy was
found by. last_right, right_lately, right_before, streak: whether the first drafts at earlier positions were right: the
last one, decayed by .5 and by .9, and how many in a row. position: tokens of the answer so far. seen, seen_behind: how
often the text has the drafted token, and has it behind the token before it.
"""

READ_BY: Mapping[str, tuple[str, ...]] = {
    "egag": (*DEPTH, "first_entropy"),
    "heuristic": (*DEPTH, *PAST),
    "confidence": (*DEPTH, "chance"),
    "ucb": (*DEPTH, *PAST),
    "cascade": (*DEPTH, *PAST),
    "cost_ratio": (*DEPTH, *PAST),
    "svip": (*DEPTH, "entropy"),
    "saturation": (*DEPTH, "top", "path_top"),
    "adaedl": (*DEPTH, "entropy", *PAST),
    "gammatune": (*DEPTH, *PAST),
    "anpd": (*DEPTH, *PAST),
    "draft_verify": (*DEPTH, "top", *PAST),
    "specdec_pp": (*DEPTH, "chance", "path_chance"),
    "survival": (*DEPTH, "top", "path_top", *STATED, *PAST),
    "ucb_rules": (*DEPTH, *BELIEF, *PAST),
}
"""The columns that hold what a rule reads; verdicts are told by the whole of the verified text."""

Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WalkSignals:
    """The drafts of a walk, position by position, those that could be accepted there.

    columns: `[n, len(COLUMNS)]`, NaN where unknown. right: `[n]`, whether the answer goes on with the draft. judged:
    `[n]`, whether all drafts before it in its round are right. counts: drafts of each position.
    """

    columns: Table
    right: NDArray[np.bool_]
    judged: NDArray[np.bool_]
    counts: tuple[int, ...]

    def of(self, names: Sequence[str]) -> Table:
        """Some of the columns, `[n, len(names)]`."""
        return self.columns[:, [COLUMNS.index(name) for name in names]]


def signals(walk: DraftWalk, prompt: Sequence[int]) -> WalkSignals:
    """What the drafter showed along an answer. prompt: its ids, for how often tokens were seen."""
    rows, right, judged, counts = list[tuple[float, ...]](), list[bool](), list[bool](), list[int]()
    past, text = _Past(), _Seen(prompt)
    for position, ahead in enumerate(walk.ahead):
        count = max(0, min(len(ahead.drafts), walk.room(position)))
        hits = walk.hits(position)
        place = position, walk.prompt_tokens
        shown = zip(_beliefs(ahead, count), text.behind(ahead.drafts[:count]), strict=True)
        for depth, (belief, seen) in enumerate(shown):
            rows.append((depth, *belief, *_stated(ahead, depth), *past.columns, *place, *seen))
            right.append(depth < hits)
            judged.append(depth <= hits)
        counts.append(count)
        past.add(hits > 0 if ahead.drafts else None)
        text.add(walk.tokens[position])
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(COLUMNS))
    return WalkSignals(table, np.array(right, dtype=bool), np.array(judged, dtype=bool), tuple(counts))


def _beliefs(ahead: PositionDraft, count: int) -> Iterator[tuple[float, ...]]:
    """The columns `BELIEF` of each draft."""
    path_top = path_chance = least = 1.0
    first = math.nan, math.nan
    for row in range(count):
        belief = ahead.beliefs[row] if row < len(ahead.beliefs) else None
        if belief is None:
            yield (math.nan,) * len(BELIEF)
            continue
        first = (belief.entropy, belief.top) if not row else first
        path_top, path_chance = path_top * belief.top, path_chance * belief.token_chance
        least = min(least, belief.top)
        yield (belief.entropy, belief.top, belief.token_chance, path_top, path_chance, least, *first)


def _stated(ahead: PositionDraft, depth: int) -> tuple[float, float]:
    if ahead.chances is None or depth >= len(ahead.chances):
        return math.nan, float(ahead.match)
    before = ahead.chances[depth - 1] if depth else 1.0
    return ahead.chances[depth] / before if before else 0.0, float(ahead.match)


class _Past:
    """How the first drafts at earlier positions went, which the verified text tells whoever drafted."""

    def __init__(self) -> None:
        self.columns = (math.nan, 0.5, 0.5, 0.0)

    def add(self, right: bool | None) -> None:
        """A position whose first draft was right or wrong; None for one without drafts."""
        if right is not None:
            _, lately, before, streak = self.columns
            hit = float(right)
            self.columns = hit, 0.5 * lately + 0.5 * hit, 0.9 * before + 0.1 * hit, streak + 1.0 if right else 0.0


class _Seen:
    """How often the text so far has tokens and pairs of tokens."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._tokens, self._pairs = Counter(prompt), Counter(pairwise(prompt))
        self._last = prompt[-1] if prompt else -1

    def behind(self, drafts: Sequence[int]) -> Iterator[tuple[float, float]]:
        """The columns `seen` and `seen_behind` of each draft."""
        last = self._last
        for draft in drafts:
            yield float(self._tokens[draft]), float(self._pairs[last, draft])
            last = draft

    def add(self, token: int) -> None:
        """One more token of the answer."""
        self._tokens[token] += 1
        self._pairs[self._last, token] += 1
        self._last = token

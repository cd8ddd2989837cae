"""Acceptance of a configuration, generation by generation: what all definitions of an acceptance are made of."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, chain, zip_longest
from typing import Any

import pandas as pd

from ablation.report.spec_bench import by_configuration


@dataclass(frozen=True, slots=True)
class RequestLine:
    """The rounds of one generation, in order: what each emitted, and what it drafted, where that is known.

    tested: rounds that judged a draft at each position. drafts: all drafts, the nodes of trees. stopped: the last round
    ended with an accepted stop token, and has no token of the target's own.
    """

    id: str
    turn: int
    seed: int
    repeat: int
    task: str
    emitted: tuple[int, ...]
    tested: tuple[int, ...]
    drafts: int
    drafted: tuple[int, ...] | None
    stopped: bool

    @property
    def accepted(self) -> tuple[int, ...]:
        """Accepted drafts by round."""
        bonus = [1] * len(self.emitted)
        if self.stopped:
            bonus[-1] = 0
        return tuple(tokens - extra for tokens, extra in zip(self.emitted, bonus, strict=True))

    @property
    def steps(self) -> int:
        """Rounds that drafted: each of them judged something at the first position."""
        return self.tested[0] if self.tested else 0

    @property
    def tokens_per_round(self) -> float:
        """Mean tokens of its rounds, the target's own included."""
        return sum(self.emitted) / len(self.emitted)


@dataclass(frozen=True, slots=True)
class RequestAcceptance:
    """A configuration's requests. Positions are counted from 0, as in a list; a tree's depth is its position.

    stem: names its files. rows: of the results file, one a request.
    """

    stem: str
    rows: pd.DataFrame
    requests: tuple[RequestLine, ...]

    def said(self, column: str) -> Any:
        """What its rows have in common; None for a column that the file lacks."""
        return self.rows[column].iloc[0] if column in self.rows else None

    @property
    def rounds(self) -> int:
        """All of them, also those that drafted nothing."""
        return sum(len(request.emitted) for request in self.requests)

    @property
    def tested(self) -> list[int]:
        """Rounds that judged a draft at each position."""
        return [sum(entries) for entries in zip_longest(*(request.tested for request in self.requests), fillvalue=0)]

    @property
    def accepted(self) -> list[int]:
        """Rounds that accepted a draft at each position."""
        counts = Counter(chain.from_iterable(request.accepted for request in self.requests))
        return list(accumulate(counts[number] for number in range(len(self.tested), 0, -1)))[::-1]

    @property
    def lengths(self) -> Counter[int]:
        """Rounds by emitted tokens."""
        return Counter(chain.from_iterable(request.emitted for request in self.requests))

    @property
    def longest(self) -> int:
        """Most drafts of a round, of a tree all its nodes; the deepest judged position where that is not known."""
        return max((max(request.drafted or (len(request.tested),)) for request in self.requests), default=0)

    @property
    def by_request(self) -> float:
        """Mean over requests of the mean over their rounds of emitted tokens: a short one counts like a long one."""
        return sum(request.tokens_per_round for request in self.requests) / len(self.requests)


def acceptances(frame: pd.DataFrame) -> Iterator[RequestAcceptance]:
    """One for each configuration that drafted, from the generations that did not fail and had a round."""
    rows = frame[~frame["failed"] & frame["tokens_by_round"].notna() & frame["accepted"].notna()]
    for stem, part in by_configuration(rows):
        if (part["drafted"] > 0).any():
            yield RequestAcceptance(stem, part, tuple(_requests(part)))


def _requests(rows: pd.DataFrame) -> Iterable[RequestLine]:
    for row in rows.to_dict("records"):
        emitted, drafted = _numbers(row["tokens_by_round"]), _numbers(row["drafted_by_round"])
        yield RequestLine(
            id=str(row["id"]),
            turn=int(row["turn"]),
            seed=int(row["seed"]),
            repeat=int(row["repeat"]),
            task=str(row["task"]),
            emitted=emitted,
            tested=_numbers(row["tested_at"]),
            drafts=int(row["drafted"]),
            drafted=drafted or None,
            stopped=sum(emitted) - len(emitted) < row["accepted"],
        )


def _numbers(cell: Any) -> tuple[int, ...]:
    """Numbers between spaces; none of an empty cell."""
    return tuple(map(int, cell.split())) if isinstance(cell, str) else ()

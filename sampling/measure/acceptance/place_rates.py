"""Acceptance by place in rounds that were run: how far into output and context, in which phase and turn they began."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sampling.measure.acceptance.places import KINDS, PhaseReader, Place, group_order
from utils.events import Round
from utils.numbers.intervals import share_interval


class PlaceShare(NamedTuple):
    """A share of one drafter at a group of places, with its 95 % interval, NaN where few texts know it."""

    name: str
    kind: str
    group: str
    share: float
    low: float
    high: float
    cases: float


class RoundAt(NamedTuple):
    """A round of a run: of which configuration and text, where it began, and what came of it."""

    name: str
    text: str
    place: Place
    judged: int
    accepted: int
    emitted: int


def rounds_at(
    name: str, prompt: Sequence[int], rounds: Sequence[Round], piece: Callable[[int], str], turn: int = 1
) -> Iterator[RoundAt]:
    """The rounds of one answer that drafted, where they began. piece: the text of one id."""
    reader, said = PhaseReader(prompt, piece), 0
    for round in rounds:
        place = Place(said, round.position, reader.phase, turn)
        if round.drafts:
            yield RoundAt(name, "", place, round.tested, round.accepted, len(round.emitted))
        for token in round.emitted:
            reader.add(token)
        said += len(round.emitted)


def place_shares(rounds: Sequence[RoundAt]) -> list[PlaceShare]:
    """Alpha by configuration, kind and group; texts are the units of replication."""
    sums: dict[tuple[str, str, str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for one in rounds:
        for kind in KINDS:
            counts = sums[one.name, kind, one.place.group(kind)][one.text]
            counts[0] += one.accepted
            counts[1] += one.judged
    return [
        _share(*key, list(by_text.values()))
        for key, by_text in sorted(
            sums.items(), key=lambda item: (item[0][0], KINDS.index(item[0][1]), _order(item[0]))
        )
        if any(judged for _, judged in by_text.values())
    ]


def _order(key: tuple[str, str, str]) -> tuple[int, str]:
    return group_order(key[1], key[2])


def _share(name: str, kind: str, group: str, counts: Sequence[Sequence[int]]) -> PlaceShare:
    parts, wholes = (np.array([[float(count[place])] for count in counts]) for place in (0, 1))
    (low,), (high,) = share_interval(parts, wholes)
    whole = float(wholes.sum())
    return PlaceShare(name, kind, group, float(parts.sum()) / whole, float(low), float(high), whole)

"""What was found along texts as flat figures, a line each: for JSON, CSV, tables and plots."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ablation.results.column import column
from sampling.measure.acceptance import estimate
from sampling.measure.acceptance.estimate import DepthSums, IntervalEstimate
from sampling.measure.acceptance.met import Met
from sampling.measure.acceptance.places import KINDS, Place, group_order
from sampling.measure.acceptance.rounds import RoundSums
from sampling.measure.acceptance.trees import RankTree, on_trees

TOPS = (1, 2, 3, 5, 10)
"""Of so many of a drafter's likeliest tokens the coverage is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceFigure:
    """One figure of one drafter."""

    drafter: str = column("", "the method with the parameters that set it apart")
    figure: str = column("", "what is told: see docs/acceptance.md")
    depth: int | None = column("tokens", "position in the draft, from 1")
    gamma: int | None = column("tokens", "draft length of a round")
    top: int | None = column("tokens", "how many of the drafter's likeliest tokens")
    kind: str = column("", "what places are told apart by: output, context, phase, turn; else empty")
    group: str = column("", "the group of places; else empty")
    against: str = column("", "the other drafter of a pair, or `engine`; else empty")
    value: float | None = column("", "the figure")
    low: float | None = column("", "lower end of its 95 % interval over texts; null for fewer than 5 texts")
    high: float | None = column("", "upper end")
    places: float | None = column("", "places, or expected rounds, that it is of")
    p_holm: float | None = column("", "p of a test, after Holm's correction")


@dataclass(slots=True)
class Along:
    """What all drafters met along all texts. mets: a list by drafter, one a text. places: of each text."""

    mets: dict[str, list[Met]] = field(default_factory=dict)
    places: list[list[Place]] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """How deep it was drafted."""
        return next(iter(self.mets.values()))[0].depth

    def grouped(self, kind: str) -> dict[str, list[np.ndarray]]:
        """By group of a kind, in order: of each text which places are of it."""
        names = {place.group(kind) for places in self.places for place in places}
        ordered = sorted(names, key=lambda name: group_order(kind, name))
        groups = [[place.group(kind) for place in places] for places in self.places]
        return {name: [np.array([own == name for own in text]) for text in groups] for name in ordered}


def figures(along: Along, gamma: int, tree: RankTree | None = None) -> Iterator[AcceptanceFigure]:
    """All figures of all drafters. gamma: the draft length that groups of places are told for."""
    for name, mets in along.mets.items():
        sums = DepthSums.of(mets)
        yield from _by_depth(name, sums, mets)
        yield from _by_length(name, sums, mets, along.depth)
        if mets[0].cover is not None:
            for top in TOPS:
                yield from _each(name, "coverage", estimate.coverage(mets, top), "depth", top=top)
        if tree is not None and mets[0].cover is not None and tree.depth <= along.depth:
            on_tree = estimate.tokens_a_round(DepthSums.of(on_trees(mets, tree)))
            yield _figure(name, "tokens with the tree", on_tree[-1], depth=tree.depth)
        for kind in KINDS:
            yield from _by_place(name, mets, along.grouped(kind), kind, gamma)


def _by_depth(name: str, sums: DepthSums, mets: Sequence[Met]) -> Iterator[AcceptanceFigure]:
    yield from _each(name, "conditional", estimate.conditional(sums), "depth")
    yield from _each(name, "first draft there", estimate.first_there(sums), "depth")
    if mets[0].cover is not None:
        yield from _each(name, "everywhere", estimate.anywhere(sums), "depth")
    yield from _each(name, "unconditional", estimate.unconditional(sums), "depth")
    yield from _each(name, "drafted", estimate.drafted(sums), "depth")


def _by_length(name: str, sums: DepthSums, mets: Sequence[Met], depth: int) -> Iterator[AcceptanceFigure]:
    yield from _each(name, "tokens from anywhere", estimate.tokens_a_round(sums), "gamma")
    for gamma in range(1, depth + 1):
        rounds = RoundSums.of(mets, gamma)
        yield _figure(name, "tokens in rounds", rounds.tokens_a_round(), gamma=gamma)
        yield _figure(name, "first draft in rounds", rounds.joint()[0], gamma=gamma)


def _by_place(
    name: str, mets: Sequence[Met], groups: Mapping[str, list[np.ndarray]], kind: str, gamma: int
) -> Iterator[AcceptanceFigure]:
    for group, masks in groups.items():
        sums = DepthSums.of(mets, masks)
        about = {"kind": kind, "group": group}
        yield _figure(name, "conditional", estimate.conditional(sums)[0], depth=1, **about)
        tokens = estimate.tokens_a_round(sums)[min(gamma, mets[0].depth) - 1]
        yield _figure(name, "tokens from anywhere", tokens, gamma=gamma, **about)


def _each(
    name: str, figure: str, found: Sequence[IntervalEstimate], axis: str, **about: int
) -> Iterator[AcceptanceFigure]:
    for place, one in enumerate(found, start=1):
        if one.places > 0:
            yield _figure(name, figure, one, **{axis: place}, **about)


def _figure(name: str, figure: str, found: IntervalEstimate, **about: object) -> AcceptanceFigure:
    value, low, high = (None if number != number else number for number in found[:3])
    keys = {"kind": "", "group": "", "against": "", **about}
    return AcceptanceFigure(
        drafter=name,
        figure=figure,
        value=value,
        low=low,
        high=high,
        places=found.places,
        **keys,  # type: ignore[arg-type]
    )


def pick(found: Sequence[AcceptanceFigure], figure: str, kind: str = "", **about: object) -> list[AcceptanceFigure]:
    """The figures of this name, in order."""
    return [
        one
        for one in found
        if one.figure == figure and one.kind == kind and all(getattr(one, key) == value for key, value in about.items())
    ]

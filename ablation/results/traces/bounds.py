"""What a drafter could have brought at most: records of its best fixed lengths and of the oracle, computed, not run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ablation.results.computed import BOUND
from ablation.results.record import Record
from ablation.results.traces.generations import Generation
from ablation.results.traces.replay import Replays
from egag.cost_model import CostModel
from sampling.measure.metrics import RunMetrics
from sampling.measure.replay import DraftWalk, best_fixed, oracle
from utils.errors import UserError


@dataclass(frozen=True, slots=True)
class Bounds:
    """Records of the bounds of each drafter, and what is not known of whom, a sentence each."""

    records: tuple[Record, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplayedAnswer:
    """An answer of one drafter: the generation that it stands beside, its walk and what a round costs there."""

    generation: Generation
    walk: DraftWalk
    price: CostModel


def bounds(replays: Replays) -> Bounds:
    """The bounds of every drafter of a full trace, each in the block of a generation that it drafted in."""
    records: list[Record] = []
    notes: list[str] = []
    for name, generations in by_drafter(replays).items():
        answers, unknown = along_answers(replays, generations)
        notes += [f"{name}: no bounds of {len(unknown)} of its answers: {unknown[0]}"] if unknown else []
        records += [
            replays.record(
                answer.generation, oracle(answer.walk, answer.price), f"{BOUND}oracle of {name}", answer.walk.values
            )
            for answer in answers
        ]
        try:
            records += list(_fixed(replays, name, answers))
        except UserError as error:
            notes.append(f"no best fixed length of {error}")
    return Bounds(tuple(records), tuple(notes))


def by_drafter(replays: Replays) -> dict[str, list[Generation]]:
    """The generations of each drafter, by a name that is short where no two drafters share it."""
    by_drafter: dict[str, list[Generation]] = {}
    for generation in replays.drafting:
        if generation.values["processor"].name == "greedy":
            by_drafter.setdefault(generation.drafter, []).append(generation)
    short = [name.split(", ")[0] for name in by_drafter]
    names = [called if short.count(name) > 1 else name for called, name in zip(by_drafter, short, strict=True)]
    return dict(zip(names, by_drafter.values(), strict=True))


def along_answers(replays: Replays, generations: Sequence[Generation]) -> tuple[list[ReplayedAnswer], list[str]]:
    """The answers that are known all along, and why others are not."""
    answers: list[ReplayedAnswer] = []
    unknown: list[str] = []
    for generation in generations:
        try:
            answers.append(ReplayedAnswer(generation, replays.furthest(generation), replays.cost(generation)))
        except UserError as error:
            unknown.append(str(error))
    return answers, unknown


def _fixed(replays: Replays, name: str, answers: Sequence[ReplayedAnswer]) -> Iterator[Record]:
    """The best fixed length over all answers of a format, and that of each prompt."""
    weights = dict.fromkeys(answer.generation.record.target_weights for answer in answers)
    for stored in weights:
        several = [answer for answer in answers if answer.generation.record.target_weights == stored]
        best = best_fixed([along.walk for along in several], [along.price for along in several])
        what = "nodes" if any(along.walk.trees for along in several) else "gamma"
        for along, run in zip(several, best.runs, strict=True):
            yield _record(replays, along, run, f"best fixed {what} of {name}, {best.gamma}")
        for along in several:
            (run,) = best_fixed([along.walk], along.price).runs
            yield _record(replays, along, run, f"best fixed {what} of {name} for each prompt")


def _record(replays: Replays, along: ReplayedAnswer, run: RunMetrics, name: str) -> Record:
    return replays.record(along.generation, run, f"{BOUND}{name}", along.walk.values)

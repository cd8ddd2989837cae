"""A full trace read back: each generation with its rounds, and what every position of its answer would have met."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from ablation.results.record import Record
from ablation.results.traces.trace import is_trace
from egag.draft_distribution import RecordedDistribution
from sampling.measure.replay.walk import DraftWalk, PositionDraft, Sample, how_asked, sample
from sampling.methods.settings import PARAMETERS, Settings
from utils.errors import UserError
from utils.files import checked_path
from utils.parameter import Values

Line = dict[str, Any]
_PLACE = ("id", "turn", "configuration", "processor", "seed", "repeat", "target_weights")


@dataclass(frozen=True, slots=True)
class TracedRound:
    """A round that was run: where in the answer, what was drafted, what was accepted, what it took.

    p, q: of each draft, processed.
    """

    position: int
    ahead: PositionDraft
    accepted: int
    emitted: int
    p: tuple[float, ...]
    q: tuple[float, ...]
    sample: Sample


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of a full trace. drafter: what drafted, with its parameters; empty for plain autoregression.

    values: every setting. walk: of its own drafter and answer; None where it was not walked along, or an earlier
    configuration with the same drafter was.
    """

    record: Record
    prompt_ids: tuple[int, ...]
    values: Values
    drafter: str
    visits: tuple[TracedRound, ...] = field(repr=False)
    walk: DraftWalk | None = field(default=None, repr=False)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """What its rounds took."""
        return tuple(visit.sample for visit in self.visits)


def read_generations(path: Path) -> Iterator[Generation]:
    """The generations of a full trace, one after the other; a torn end and a generation that never ended are left out.

    Raises `UserError` for a file that is no trace, a trace of rounds alone, and a line that is damaged.
    """
    checked_path(str(path), "trace")
    if path.is_dir() or not is_trace(path) or not path.stat().st_size:
        raise UserError(f"{str(path)!r} is not a trace; expected a file that a run with --full-trace wrote")
    for _, group in groupby(_lines(path), key=lambda line: [line[name] for name in _PLACE]):
        lines = list(group)
        end = next((line for line in lines if line["kind"] == "run"), None)
        if end is not None:
            try:
                yield _generation(end, [[line for line in lines if line["kind"] == kind] for kind in ("round", "walk")])
            except (KeyError, TypeError, ValueError, IndexError) as error:
                if isinstance(error, UserError):
                    raise
                raise UserError(f"{str(path)!r}: the generation of {place_of(end)} is damaged: {error!r}") from None


def place_of(line: Mapping[str, Any]) -> str:
    """Which generation a line is of, in words."""
    return f"prompt {line['id']}, turn {line['turn']}, {line['configuration']}"


def _lines(path: Path) -> Iterator[Line]:
    """The whole lines of a full trace. Raises `UserError` for one that is damaged, or that has rounds alone."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, text in enumerate(file, start=1):
            if not text.endswith("\n"):
                return  # still being written, or cut off
            try:
                line = json.loads(text)
                missing = [name for name in _PLACE if name not in line]
            except (ValueError, TypeError):
                missing = ["object"]
            if missing:
                raise UserError(f"{str(path)!r}, line {number}: no line of a trace; its {missing[0]} is missing")
            if "kind" not in line:
                raise UserError(
                    f"{str(path)!r} traces rounds alone, from which nothing but themselves can be replayed; "
                    "expected a file that a run with --full-trace wrote"
                )
            yield line


def _generation(end: Line, parts: Sequence[Sequence[Line]]) -> Generation:
    rounds, walked = parts
    known = {f.name for f in fields(Record)}
    record = Record(**{name: value for name, value in end["record"].items() if name in known})
    settings = Settings()
    general = {name: str(record.settings[name]) for name in ("length", "processor", "seed")}
    texts = {name: text for name, text in (end["values"] | general).items() if name in PARAMETERS}
    values = {**settings, **{name: PARAMETERS[name].parse(text) for name, text in texts.items()}}
    start = len(end["prompt_ids"])
    return Generation(
        record=record,
        prompt_ids=tuple(end["prompt_ids"]),
        values=values,
        drafter=end["drafter"],
        visits=tuple(_visit(line, start) for line in rounds),
        walk=_walk(record, values, walked) if walked else None,
    )


def _walk(record: Record, values: Values, lines: Sequence[Line]) -> DraftWalk:
    return DraftWalk(
        method=record.method,
        values=values,
        prompt_tokens=record.prompt_tokens or 0,
        tokens=tuple(line["next"] for line in lines),
        reason=record.finish_reason,  # type: ignore[arg-type]
        ahead=tuple(map(_ahead, lines)),
        asked=how_asked(line["steps"] for line in lines),
        vocab_size=lines[0]["vocab_size"],
        prefill_s=record.prefill_s or 0.0,
        samples=tuple(map(_sample, lines)),
    )


def _visit(line: Line, start: int) -> TracedRound:
    emitted = line["accepted"] + (line["next"] is not None)
    where = line["position"] - start
    return TracedRound(
        where, _ahead(line), line["accepted"], emitted, tuple(line["p"]), tuple(line["q"]), _sample(line)
    )


def _ahead(line: Line) -> PositionDraft:
    size, drafts = line["vocab_size"], tuple(line["drafts"])
    seen = [
        None if figures is None else RecordedDistribution(size, figures[0], figures[1], token, figures[2])
        for token, figures in zip(drafts, line["beliefs"], strict=False)
    ]
    return PositionDraft(
        drafts=drafts,
        beliefs=tuple(seen),
        parents=None if line["parents"] is None else tuple(line["parents"]),
        most=line["most"],
        chances=None if line["chances"] is None else tuple(line["chances"]),
        match=line["match"],
        entropy=line["entropy"],
    )


def _sample(line: Line) -> Sample:
    return sample(
        line["drafts"], line["parents"], *(line[name] / 1e3 for name in ("draft_ms", "verify_ms", "other_ms"))
    )


def along(generation: Generation, walk: DraftWalk) -> DraftWalk:
    """The walk of a drafter along the answer of a generation, with what its own rounds drafted where they were.

    What drafted in the rounds may have been asked for more than the walk asked for, and what recycles verified drafts
    has others. Raises `UserError` where the answers differ, as they may by ties in rounded formats.
    """
    record = generation.record
    if tuple(record.output_ids or ()) != walk.tokens or record.finish_reason is None:
        said = place_of({"id": record.id, "turn": record.turn, "configuration": record.configuration})
        raise UserError(f"{said}: its answer is not the one that was walked along")
    drafts = list(walk.ahead)
    for visit in generation.visits:
        drafts[visit.position] = _seen(walk.ahead[visit.position], visit.ahead)
    return replace(
        walk,
        method=record.method,
        values=generation.values,
        reason=record.finish_reason,  # type: ignore[arg-type]
        ahead=tuple(drafts),
        prefill_s=record.prefill_s or 0.0,
        samples=generation.samples,
    )


def furthest(walk: DraftWalk, visits: Sequence[TracedRound]) -> DraftWalk:
    """A walk with what was drafted in rounds on the same answer, wherever more of it was right than of the walk's."""
    drafts = list(walk.ahead)
    for visit in visits:
        here, there = drafts[visit.position], visit.ahead
        alike = (here.parents is None) == (there.parents is None)
        right = (len(walk.path(visit.position, draft.drafts, draft.parents)) for draft in (here, there))
        if alike and next(right) < next(right):
            drafts[visit.position] = replace(there, most=max(here.most, len(there.drafts)))
    return replace(walk, ahead=tuple(drafts))


def _seen(walked: PositionDraft, visited: PositionDraft) -> PositionDraft:
    """What is known of a position from its walk and from a round that was run there."""
    count = len(visited.drafts)
    if not count:
        # A tree that was asked for and is not there: what recycles verified drafts knew of none yet.
        return replace(walked, drafts=(), parents=None, chances=None) if walked.parents and visited.most else walked
    if visited.parents is None and walked.parents is None and visited.drafts == walked.drafts[:count]:
        seen = visited.beliefs if len(visited.beliefs) == count else walked.beliefs[:count]
        return replace(walked, beliefs=(*seen, *walked.beliefs[count:]), entropy=visited.entropy)
    if (visited.drafts, visited.parents) == (walked.drafts, walked.parents):
        return replace(walked, entropy=visited.entropy)
    return replace(visited, most=max(count, 1)) if visited.parents is None else visited

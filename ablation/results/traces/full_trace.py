"""A full trace: beside each round what the models believed, and what every position of the answer would have met."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TextIO

from ablation.plan.traced import FULL, Traced
from ablation.results.column import column
from ablation.results.record import Record
from ablation.results.table import key_of
from ablation.results.traces.trace import GenerationLine, TraceLine, Tracer, of_generation, trace_line
from sampling.methods.rules import CHOOSERS
from sampling.methods.tables import METHODS
from utils.events import Round

if TYPE_CHECKING:
    from torch import Tensor

    from ablation.plan.grid import PlannedGeneration, RowKey
    from ablation.results.traces.trace import JsonLine
    from egag.draft_distribution import RecordedDistribution
    from sampling.engine import Engine
    from sampling.logits_probe import ObservedRound
    from sampling.measure.replay.walk import DraftWalk

TOP = 8
"""How many of the most likely tokens are written at each place."""

Top = list[tuple[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FullLine(TraceLine):
    """A line of a full trace: a round that was run, or one of a walk."""

    kind: str = column("", "`round`; or `walk`: what would have been drafted there, which nothing waited for")
    vocab_size: int = column("tokens", "of the target")
    steps: int = column("tokens", "drafts that the rule was asked about one by one; -1 where it was not asked")
    most: int = column("tokens", "drafts that were asked for at most")
    beliefs: list[list[float] | None] = column(
        "",
        "of each draft of a chain, of a tree's first: entropy (nats), chance of the likeliest token, chance of the "
        "draft, all raw; null where the drafter has no distribution",
    )
    chances: list[float] | None = column("", "that each draft and all before it are right, as the drafter told it")
    match: int = column("tokens", "of the text that a copy was found by")
    q_top: list[Top] | None = column("", f"of each draft: the drafter's {TOP} likeliest tokens (id, raw probability)")
    p_top: list[Top] | None = column("", f"at the root and behind each draft: the target's {TOP} likeliest tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine(GenerationLine):
    """The line that ends a generation's rounds: its record, which they are the rounds of."""

    kind: str = column("", "`run`")
    prompt_ids: list[int] = column("", "ids of the prompt")
    record: dict[str, Any] = column("", "the record of the generation, as `run --json` prints it")
    values: dict[str, Any] = column("", "every parameter of the method, also those that it did not read")
    drafter: str = column("", "what drafted, with its parameters: configurations that share it share one walk")


@dataclass(slots=True)
class _TracedGeneration:
    """A generation whose record is not there yet. walked: what its walk is known by, () for none."""

    place: "PlannedGeneration"
    ids: Sequence[int]
    values: Mapping[str, Any]
    walked: tuple[Any, ...] = ()
    walk: "DraftWalk | None" = None
    rounds: "list[JsonLine]" = field(default_factory=list)


class FullTracer(Tracer):
    """Writes a line a round with beliefs, then the generation's record and, once a drafter and prompt, its walk.

    The walk is made before the generation, when its drafter knows no more than the generation will, and is not part
    of any measured time. Answers that are not greedy, and engines of others, have rounds alone. A generation is
    written in one piece when its record comes, and that may be after others have run.
    """

    def __init__(self, file: TextIO) -> None:
        super().__init__(file)
        self._walked: set[tuple[Any, ...]] = set()
        self._waiting: dict[RowKey, _TracedGeneration] = {}
        self._engine: Any = None

    def prompted(
        self, place: "PlannedGeneration", engine: "Engine", values: Mapping[str, Any], ids: Sequence[int]
    ) -> None:
        """See `Tracer.prompted`: walks along the answer, then watches the generation."""
        from sampling.logits_probe import LogitsProbe
        from sampling.pair.local_engine import is_local

        self.close()
        super().prompted(place, engine, values, ids)
        traced = self._waiting[place.key] = _TracedGeneration(place, ids, values)
        if not is_local(engine):
            return
        if walkable(place.method, values):
            self._add_walk(traced, engine)
        self._engine, engine.raw = engine, LogitsProbe()

    def round(self, place: "PlannedGeneration", round: Round) -> None:
        """See `Tracer.round`."""
        seen = None if self._engine is None else self._engine.raw.take()
        self._waiting[place.key].rounds.append(_round_line(place, round, seen, self.phase(place, round)))

    def record(self, record: Record) -> None:
        """See `Tracer.record`."""
        self.close()
        super().record(record)
        traced = self._waiting.pop(key_of(record), None)
        if traced is None:
            return
        for line in traced.rounds:
            self.write(line)
        if record.error is not None:
            self._walked.discard(traced.walked)
            return
        self.write(_run_line(traced.place, record, traced.ids, traced.values))
        for line in _walk_lines(traced.place, traced.walk) if traced.walk else ():
            self.write(line)

    def ended(self, place: "PlannedGeneration") -> None:
        """See `Tracer.ended`: what follows, as its comparison, is no part of the generation."""
        self.close()

    def failed(self, place: "PlannedGeneration", error: str) -> None:
        """See `Tracer.failed`."""
        self.close()

    def close(self) -> None:
        """Look no longer."""
        if self._engine is not None:
            self._engine.raw = None
        self._engine = None

    def _add_walk(self, traced: _TracedGeneration, engine: Any) -> None:
        """Walk with this drafter along this prompt's answer, unless that was done already."""
        from sampling.measure.replay.walk import walk

        place, ids, values = traced.place, traced.ids, traced.values
        walked = (str(place.prompt.id), place.turn, place.target_weights, tuple(ids), drafter_of(place, values))
        if walked not in self._walked:
            self._walked.add(walked)
            traced.walked = walked
            traced.walk = walk(engine, place.method, values, ids, run=place.configuration.name)


def tracer(file: TextIO | None, traced: Traced) -> Tracer:
    """What writes a trace into a file."""
    return FullTracer(file) if file is not None and traced == FULL else Tracer(file)


def walkable(method: str, values: Mapping[str, Any]) -> bool:
    """Whether what a method would have drafted elsewhere can be known: under greedy, where one drafter drafts."""
    return METHODS[method].drafts and METHODS[method].drafter not in CHOOSERS and values["processor"].name == "greedy"


def drafter_of(place: "PlannedGeneration", values: Mapping[str, Any]) -> str:
    """What drafts, with all that its drafts depend on: where that is earlier prompts, each configuration has its own.

    A rule that remembers them drafts no other tokens.
    """
    from sampling.measure.replay.walk import most_drafts, walked_values
    from sampling.methods.tables import DRAFTERS

    method = METHODS[place.method]
    settings = walked_values(place.method, {**values, **method.preset})
    part = DRAFTERS[method.drafter]
    values_shown = [f"{p.name}={p.show(settings[p.name])}" for p in part.relevant(settings)]
    where = [f"of {place.configuration.name}, repeat {place.repeat}"] if any(part.memories(settings)) else []
    return ", ".join([method.drafter, *values_shown, f"{most_drafts(place.method, settings)} drafts", *where])


def _round_line(place: "PlannedGeneration", round: Round, seen: "ObservedRound | None", phase: str) -> FullLine:
    from sampling.logits_probe import ObservedRound
    from sampling.measure.replay.walk import beliefs

    seen = seen or ObservedRound()
    return _line(
        place,
        round,
        phase,
        kind="round",
        steps=seen.steps,
        beliefs=_figures(beliefs(round, seen)),
        chances=None if seen.chances is None else list(seen.chances),
        match=seen.match,
        q_top=[_top(row) for row in seen.drafter] or None,
        p_top=None if seen.target is None else [_top(row) for row in seen.target],
    )


def _line(place: "PlannedGeneration", round: Round, phase: str = "", **more: Any) -> FullLine:
    line = trace_line(place, round, phase)
    values = {f.name: getattr(line, f.name) for f in fields(TraceLine)}
    return FullLine(**values, vocab_size=round.vocab_size, most=round.gamma, **more)


def _figures(distributions: "Sequence[RecordedDistribution | None]") -> list[list[float] | None]:
    return [
        None if distribution is None else [distribution.entropy, distribution.top, distribution.token_chance]
        for distribution in distributions
    ]


def _top(logits: "Tensor | None") -> Top:
    """The likeliest tokens behind raw logits `[V]`; none where there are none."""
    if logits is None:
        return []
    import torch

    chances, tokens = torch.softmax(logits.float(), dim=-1).topk(min(TOP, logits.shape[-1]))
    return [(token, float(f"{chance:.6g}")) for token, chance in zip(tokens.tolist(), chances.tolist(), strict=True)]


def _run_line(place: "PlannedGeneration", record: Record, ids: Sequence[int], values: Mapping[str, Any]) -> RunLine:
    shown = {p.name: p.show(values[p.name]) for p in METHODS[place.method].parameters}
    return RunLine(
        **of_generation(place),
        kind="run",
        prompt_ids=list(ids),
        record=asdict(record),
        values=shown,
        drafter=drafter_of(place, values) if METHODS[place.method].drafts else "",
    )


def _walk_lines(place: "PlannedGeneration", walk: "DraftWalk") -> list[FullLine]:
    """A line for each position of a walk, in the form of a round that accepted nothing."""
    steps = {"never": -1, "once": 0, "each": 1}[walk.asked]
    lines = []
    for position, (ahead, token) in enumerate(zip(walk.ahead, walk.tokens, strict=True)):
        round = Round(
            number=position,
            position=walk.prompt_tokens + position,
            gamma=ahead.most,
            drafts=ahead.drafts,
            parents=ahead.parents,
            q=(),
            p=(),
            path=(),
            next_token=token,
            entropy=ahead.entropy,
            vocab_size=walk.vocab_size,
            draft_s=walk.samples[position].draft_s,
            verify_s=walk.samples[position].verify_s,
            other_s=walk.samples[position].other_s,
        )
        chances = None if ahead.chances is None else list(ahead.chances)
        more: dict[str, Any] = {"steps": steps, "chances": chances, "match": ahead.match}
        lines.append(_line(place, round, kind="walk", beliefs=_figures(ahead.beliefs), **more))
    return lines

"""One line a round: what was drafted, what was judged, where the time went."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from ablation.results.column import column
from ablation.results.table import key_of
from sampling.measure.acceptance.places import PhaseReader
from sampling.methods.settings import PARAMETERS
from utils.events import Round

if TYPE_CHECKING:
    from ablation.plan.grid import PlannedGeneration, RowKey
    from ablation.results.record import Record
    from sampling.engine import Engine


class JsonLine(Protocol):
    """What a trace is made of."""

    def to_json(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationLine:
    """A line that belongs to one generation."""

    id: str | int = column("", "the prompt's id")
    turn: int = column("", "turn of the conversation, from 1")
    method: str = column("", "name of the method")
    repeat: int = column("", "repeat of the run, from 0")
    configuration: str = column("", "the method with the parameters that set it apart in a grid")
    processor: str = column("", "how tokens were chosen")
    seed: int = column("", "random seed of the run")
    target_weights: str = column("", "the format of the target's weights")
    batch: int = column("texts", "answered at a time")
    rate: float = column("1/s", "prompts that arrived; 0: each came when there was room")
    engine: str = column("", "who wrote it")

    def to_json(self) -> str:
        """The object on one line, in ASCII."""
        return json.dumps(asdict(self), allow_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLine(GenerationLine):
    """A line of a trace file; lists have one entry a draft."""

    lossless: bool | None = column("", "the output has the target's own distribution; null for another output")
    round: int = column("", "number of the round, from 0")
    position: int = column(
        "",
        "index of the round's first new token in prompt + output; the prompt is what an encoder reads, if one does",
    )
    gamma: int = column("tokens", "the draft length that the rule asked for")
    drafts: tuple[int, ...] = column("", "ids of the drafts")
    parents: tuple[int, ...] | None = column("", "index of the draft that each one follows, -1 the text; null: a chain")
    q: tuple[float, ...] = column("", "each draft's probability under the drafter")
    p: tuple[float, ...] = column("", "each draft's probability under the target, at its place")
    path: tuple[int, ...] = column("", "indices of the drafts that were accepted, in order")
    accepted: int = column("tokens", "drafts accepted and emitted")
    next: int | None = column("", "id that the target chose after them; null after an accepted stop token")
    entropy: float | None = column("nats", "H of the drafter's raw distribution for the first draft")
    draft_ms: float = column("ms", "proposing and learning")
    verify_ms: float = column("ms", "the target's forward")
    other_ms: float = column("ms", "processors, judging, bookkeeping")
    source: str = column("", "who drafted, where several drafters take turns (`auto`); else empty")
    live: int = column("texts", "that shared this round, whose times are those of all of them")
    waited_ms: float = column("ms", "since the round before, while prompts of others were read")
    phase: str = column("", "of the text where the round began (docs/acceptance.md); empty where nobody can tell")


def of_generation(place: "PlannedGeneration") -> dict[str, Any]:
    """The keys of a `GenerationLine`."""
    return {
        "id": place.prompt.id,
        "turn": place.turn,
        "method": place.method,
        "repeat": place.repeat,
        "configuration": place.configuration.name,
        "processor": PARAMETERS["processor"].show(place.processor),
        "seed": place.seed,
        "target_weights": place.target_weights,
        "batch": place.batch,
        "rate": place.rate,
        "engine": place.engine,
    }


def trace_line(place: "PlannedGeneration", round: Round, phase: str = "") -> TraceLine:
    """The trace line of a round, which began in a phase of the text."""
    return TraceLine(
        **of_generation(place),
        lossless=place.lossless,
        round=round.number,
        position=round.position,
        gamma=round.gamma,
        drafts=round.drafts,
        parents=round.parents,
        q=round.q,
        p=round.p,
        path=round.path,
        accepted=round.accepted,
        next=round.next_token,
        entropy=round.entropy,
        draft_ms=round.draft_s * 1e3,
        verify_ms=round.verify_s * 1e3,
        other_ms=round.other_s * 1e3,
        source=round.source,
        live=round.live,
        waited_ms=round.waited_s * 1e3,
        phase=phase,
    )


class Tracer:
    """Writes a line a round to an open file; without a file it writes nothing."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self._phases: dict[RowKey, PhaseReader] = {}

    def begin(self, place: "PlannedGeneration") -> None:
        """A generation starts."""

    def prompted(
        self, place: "PlannedGeneration", engine: "Engine", values: Mapping[str, Any], ids: Sequence[int]
    ) -> None:
        """What the generation goes by is known; nothing is timed yet."""
        if self._file is not None and (pair := getattr(engine, "pair", None)) is not None:
            self._phases[place.key] = PhaseReader(ids, pair.piece)

    def round(self, place: "PlannedGeneration", round: Round) -> None:
        """A round is over."""
        if self._file is not None:
            self.write(trace_line(place, round, self.phase(place, round)))

    def phase(self, place: "PlannedGeneration", round: Round) -> str:
        """Of the text where the round began, which then goes on with what the round emitted."""
        reader = self._phases.get(place.key)
        if reader is None:
            return ""
        phase = reader.phase
        for token in round.emitted:
            reader.add(token)
        return phase

    def ended(self, place: "PlannedGeneration") -> None:
        """A text of a batch is whole."""

    def failed(self, place: "PlannedGeneration", error: str) -> None:
        """A text is given up."""

    def record(self, record: "Record") -> None:
        """The generation is over."""
        self._phases.pop(key_of(record), None)

    def close(self) -> None:
        """Nothing more is written."""

    def write(self, line: "JsonLine") -> None:
        """Add a line."""
        self.write_text(f"{line.to_json()}\n")

    def write_text(self, text: str) -> None:
        """Add lines as they are."""
        try:
            if self._file is not None:
                self._file.write(text)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._file.name if self._file else "") from None


def is_trace(path: Path) -> bool:
    """Whether a file is empty or begins as a line of a trace does."""
    with path.open("rb") as file:
        head = file.read(4096)
    return not head or (head.startswith(b'{"id": ') and b'"round": ' in head)


def is_full(path: Path) -> bool:
    """Whether a file is there and begins as a full trace does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return is_trace(path) and b'"kind": ' in file.readline()


def trace_path(results: Path) -> Path:
    """`name.trace.jsonl` beside `name.csv`."""
    return results.with_name(f"{results.stem}.trace.jsonl")

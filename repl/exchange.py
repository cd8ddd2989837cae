"""One prompt and what came of it, as it is kept for /export."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ablation.plan.grid import Configuration, PlannedGeneration
from ablation.plan.prompts.file import Prompt
from ablation.results.make_record import make_record
from ablation.results.record import Record
from repl.answers import Answers
from repl.own_settings import TURNS
from sampling.measure.answer import Answer, Decode, Span
from utils.device.machine import Machine

if TYPE_CHECKING:
    from utils.events import AnyRound


@dataclass(frozen=True, slots=True)
class Exchange:
    """A prompt with its table, the notes under it, a record of each run, and the answers by title.

    models: what answered. said: which turn of a dialogue it is, and whose answers it continues; empty where it stands
    alone.
    """

    prompt: str
    models: str
    said: str
    table: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    records: tuple[Record, ...]
    answers: tuple[tuple[str, tuple[Span, ...]], ...]


def exchange(
    number: int, mode: str, answers: Answers, table: tuple[tuple[str, ...], ...], notes: list[str]
) -> Exchange:
    """What is kept of answers that are over. number: of the dialogue. mode: whose answers it continues (`TURNS`)."""
    turns = answers.dialogue.turns
    return Exchange(
        turns[-1].prompt,
        "; ".join(_models(answers)),
        "" if mode == TURNS.default else f"turn {len(turns)}, turns {mode}",
        table,
        tuple(notes),
        tuple(_records(number, mode, answers)),
        tuple(
            (answers.title(name), tuple(_spans(answers.comparison.engine.text, rounds)))
            for name, rounds in answers.rounds.items()
            if rounds
        ),
    )


def _models(answers: Answers) -> Iterator[str]:
    about = answers.comparison.engine.describe()
    for role, info in (("target", about.target), ("drafter", about.drafter)):
        if info is not None:
            yield f"{role} {info.name}, {info.device}, {info.dtype}"


def _records(number: int, mode: str, answers: Answers) -> Iterator[Record]:
    """A record of each run that came to a token or to an error, as of a prompt file: turns share their prompt's id."""
    turns, values = answers.dialogue.turns, answers.comparison.values
    about = answers.comparison.engine.describe()
    prompt = Prompt(number, tuple(turn.prompt for turn in turns))
    for name, run in answers.runs.items():
        error = answers.failures.get(name)
        if error is None and not answers.rounds[name]:
            continue
        configuration = Configuration(run.method, tuple(run.parameters.items()), alias=run.name)
        place = PlannedGeneration(
            prompt=prompt,
            turn=len(turns),
            configuration=configuration,
            processor=values["processor"],
            seed=values["seed"],
            repeat=0,
            lossless=answers.lossless(name),
        )
        record = make_record(answers.comparison, place, answers.machines.get(name, Machine()), error, about)
        yield replace(record, settings={**record.settings, TURNS.name: mode})


def _spans(decode: Decode, rounds: Iterable["AnyRound"]) -> Iterator[Span]:
    """The whole answer with every rejected draft where it stood."""
    answer = Answer(decode)
    for round in rounds:
        answer.add(round)
        yield from answer.last
    kept = len(answer.old) + sum(span.kind != "rejected" for span in answer.last)
    answer.finish()
    yield from answer.old[kept:]

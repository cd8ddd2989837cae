"""Short answers of an engine, each by a seed of its own."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engines.home import ExternalEngine
from sampling.engine import Text
from utils.errors import UserError
from utils.events import FailedText, WholeAnswer


@dataclass(slots=True)
class Draws:
    """Answers by how often they came, and how many drafts stood behind them; None where the engine does not tell."""

    counts: Counter[tuple[int, ...]] = field(default_factory=Counter)
    drafted: int | None = 0
    accepted: int | None = 0

    def add(self, answer: WholeAnswer) -> None:
        """One more."""
        self.counts[answer.output_ids] += 1
        told = answer.acceptance
        self.drafted = None if self.drafted is None or told.drafted is None else self.drafted + told.drafted
        self.accepted = None if self.accepted is None or told.accepted is None else self.accepted + told.accepted

    @property
    def one_seed(self) -> bool:
        """Whether all answers are the same one."""
        return len(self.counts) == 1 < self.counts.total()


def drawn(
    engine: ExternalEngine,
    method: str,
    values: Mapping[str, Any],
    prompt: Sequence[int],
    seeds: Iterable[int],
    at_once: int,
) -> Iterator[WholeAnswer]:
    """An answer for each seed, in any order; so many are under way at a time. Raises `UserError`."""
    if at_once == 1:
        for seed in seeds:
            for event in engine.stream(method, {**values, "seed": seed}, prompt):
                yield _answer(event)
        return
    texts = (Text(seed, prompt, values["length"], seed=seed) for seed in seeds)
    for _, event in engine.stream_many(method, values, texts, at_once):
        yield _answer(event)


def _answer(event: Any) -> WholeAnswer:
    if isinstance(event, FailedText):
        raise UserError(event.error)
    if not isinstance(event, WholeAnswer):
        raise TypeError(f"{type(event).__name__} from another engine; expected a whole answer")
    return event

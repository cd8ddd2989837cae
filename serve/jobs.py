"""An order on its way: whom to tell of it, what is told, and what the live page shows."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock

from sampling.measure.answer import Answer, Decode, Span
from sampling.measure.metrics import RunMetrics
from sampling.pair.local_engine import LocalEngine
from serve.errors import ApiError
from serve.order import TextOrder
from serve.writing import ResponseWriting
from utils.events import Round

_SHOWN_ROUNDS = 24


@dataclass(frozen=True, slots=True)
class ServedPiece:
    """What a round added to an answer: its ids, and the text that may be told by now."""

    ids: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """An answer is whole: the text that was held back, and why it ended, `stop` or `length`."""

    text: str
    reason: str


Told = ServedPiece | AnswerEnd | ApiError


@dataclass(eq=False)
class TextJob:
    """An order, whom to tell, and its account. `tell` is called in the driver's thread and must not wait.

    cancelled: nobody waits for it any longer. recent: its last rounds, for the live page. lossless: whether its text
    has the target's distribution.
    """

    order: TextOrder
    tell: Callable[[Told], None]
    writing: ResponseWriting
    metrics: RunMetrics = field(default_factory=RunMetrics)
    cancelled: bool = False
    lossless: bool | None = None
    recent: deque[Round] = field(default_factory=lambda: deque[Round](maxlen=_SHOWN_ROUNDS))


@dataclass(frozen=True, slots=True)
class ServedSlot:
    """A text under way, for the live page: what it has brought, and its last words by who wrote them."""

    method: str
    prompt_tokens: int
    new_tokens: int
    rounds: int
    drafted: int
    accepted: int
    tail: tuple[Span, ...]


class Tokens:
    """The pair's tokenizer, for one thread at a time."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine, self._lock = engine, Lock()

    def encode(self, turns: Sequence[str], chat: bool, system: str | None = None) -> list[int]:
        """See `Engine.tokenise`."""
        with self._lock:
            return self._engine.tokenise(turns, chat, system)

    def decode(self, ids: Sequence[int]) -> str:
        """See `Engine.text`."""
        with self._lock:
            return self._engine.text(ids)


def slot_of(job: TextJob, decode: Decode) -> ServedSlot:
    """What the live page shows of a text."""
    metrics, answer = job.metrics, Answer(decode)
    for round in tuple(job.recent):
        answer.add(round)
    return ServedSlot(
        job.order.configuration.name,
        metrics.prompt_tokens,
        metrics.new_tokens,
        metrics.rounds,
        metrics.drafted,
        metrics.accepted,
        (*answer.old, *answer.last),
    )

"""The thread that owns the models: it plays the rounds of all texts and tells each what came of it."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Condition, Lock, Thread
from typing import Any

from ablation.plan.grid import Configuration
from sampling.batch import Batch, LiveText
from sampling.engine import Text
from sampling.measure.answer import Answer, Decode, Span
from sampling.measure.metrics import RunMetrics
from sampling.methods.settings import Settings
from sampling.pair.local_engine import LocalEngine
from serve.counters import Counters
from serve.errors import ApiError
from serve.order import TextOrder
from serve.writing import ResponseWriting
from utils.errors import UserError
from utils.events import Finished, Round

_log = logging.getLogger(__name__)
_MOST_IDLE = 4
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


class Driver:
    """Answers orders, `size` at a time; texts of one method with the same values share their forwards.

    Groups of different methods take turns, round by round. At most `most_waiting` orders wait for a place.
    """

    def __init__(self, engine: LocalEngine, tokens: Tokens, size: int, most_waiting: int) -> None:
        self.engine, self.tokens, self.size, self.most_waiting = engine, tokens, size, most_waiting
        self.counters = Counters()
        self._waiting: deque[TextJob] = deque()
        self._groups: dict[Configuration, Batch] = {}
        self._jobs: dict[LiveText, TextJob] = {}
        self._changed = Condition()
        self._closed = False
        self._thread = Thread(target=self._run, name="driver", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Give up what is under way and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, jobs: Sequence[TextJob]) -> None:
        """Put the orders of a request in the queue, all or none. Raises `ApiError` where too many wait."""
        with self._changed:
            if self._closed:
                raise ApiError(503, "the server is about to end")
            places = self.size - len(self._jobs) + self.most_waiting
            if len(self._waiting) + len(jobs) > places:
                waiting = max(0, len(self._waiting) - (self.size - len(self._jobs)))
                raise ApiError(
                    429,
                    f"{waiting} of at most {self.most_waiting} texts wait already and {len(jobs)} more came; "
                    "expected fewer at a time",
                )
            self._waiting.extend(jobs)
            self._changed.notify()

    def cancel(self, jobs: Sequence[TextJob]) -> None:
        """Nobody waits for these any longer: their places become free."""
        with self._changed:
            for job in jobs:
                job.cancelled = True
                with suppress(ValueError):
                    self._waiting.remove(job)
            self._changed.notify()

    @property
    def closed(self) -> bool:
        """Whether nothing more is answered."""
        return self._closed

    @property
    def waiting(self) -> int:
        """Orders that have no place yet."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Texts under way."""
        return len(self._jobs)

    def slots(self) -> list[ServedSlot]:
        """The texts under way."""
        return [_slot(job, self.tokens.decode) for job in list(self._jobs.values())]

    def _run(self) -> None:
        while self._something():
            self._drop_cancelled()
            self._admit()
            for configuration, batch in list(self._groups.items()):
                if batch.live:
                    self._play(configuration, batch)
        for job in (*self._jobs.values(), *self._waiting):
            job.tell(ApiError(503, "the server has ended"))
        self._jobs.clear()
        self._waiting.clear()

    def _something(self) -> bool:
        """Wait until there is something to do; False once it is closed."""
        with self._changed:
            while not (self._closed or self._waiting or self._jobs):
                self._changed.wait()
            return not self._closed

    def _drop_cancelled(self) -> None:
        for live, job in list(self._jobs.items()):
            if job.cancelled:
                self._groups[job.order.configuration].drop(live)
                self._over(live, job, "abort")

    def _admit(self) -> None:
        while len(self._jobs) < self.size:
            with self._changed:
                if not self._waiting:
                    return
                job = self._waiting.popleft()
            try:
                self._begin(job)
            except UserError as error:
                job.tell(ApiError(400, str(error)))
            except Exception as error:
                _log.exception("a prompt of %d tokens could not be read", len(job.order.prompt))
                job.tell(_failure(error))
                self._break(job.order.configuration, error)

    def _begin(self, job: TextJob) -> None:
        """Read an order's prompt; from then on it has a place."""
        order = job.order
        batch, values = self._group(order.configuration), {**_values(order.configuration), "seed": order.seed}
        values |= {"processor": order.processor, "length": order.length}
        request = self.engine.request(order.configuration.method, values, Text(job, order.prompt, order.length))
        live, prefilled = batch.admit(replace(request, stop=()) if order.to_the_end else request)
        self._jobs[live] = job
        job.lossless = self.engine.lossless(order.configuration.method, values)
        job.metrics.add(prefilled)
        self.counters.began(prefilled)

    def _group(self, configuration: Configuration) -> Batch:
        """The batch of a method with these values; those that have nothing to do give way."""
        if configuration not in self._groups:
            idle = [one for one, batch in self._groups.items() if not batch.live]
            for one in idle[: max(0, len(idle) - _MOST_IDLE + 1)]:
                del self._groups[one]
            values = _values(configuration)
            self._groups[configuration] = self.engine.batch(configuration.method, values, self.size)
        batch = self._groups.pop(configuration)
        self._groups[configuration] = batch  # the last one used is the last to give way
        return batch

    def _play(self, configuration: Configuration, batch: Batch) -> None:
        """A round of one group."""
        try:
            rounds = batch.play()
        except Exception as error:
            _log.exception("a round of %s failed", configuration.name)
            self._break(configuration, error)
            return
        for live, round in rounds:
            self._add(batch, live, self._jobs[live], round)

    def _break(self, configuration: Configuration, error: Exception) -> None:
        """Give up a group whose caches may be anything: its texts fail, the others go on."""
        self._groups.pop(configuration, None)
        for live, job in list(self._jobs.items()):
            if job.order.configuration == configuration:
                self._over(live, job, "error")
                job.tell(_failure(error))

    def _add(self, batch: Batch, live: LiveText, job: TextJob, round: Round) -> None:
        kept = job.writing.push(round.emitted)
        if kept < len(round.emitted):
            round = _cut(round, kept)
        job.metrics.add(round)
        job.recent.append(round)
        self.counters.add(round)
        if live.seq.reason is None and job.writing.stopped:
            batch.drop(live)
        job.tell(ServedPiece(round.emitted, job.writing.told()))
        if job.writing.stopped or live.seq.reason is not None:
            reason = "stop" if job.writing.stopped or live.seq.reason == "stop" else "length"
            job.metrics.add(Finished(live.seq.reason or "stop", job.metrics.new_tokens))
            self._over(live, job, reason)
            job.tell(AnswerEnd(job.writing.rest(), reason))

    def _over(self, live: LiveText, job: TextJob, reason: str) -> None:
        del self._jobs[live]
        self.counters.ended(reason)


def _values(configuration: Configuration) -> dict[str, Any]:
    return {**Settings(), **dict(configuration.parameters)}


def _cut(round: Round, kept: int) -> Round:
    """A round whose first tokens alone belong to the text."""
    path = round.path[:kept]
    return replace(round, path=path, next_token=round.next_token if kept > len(path) else None)


def _failure(error: Exception) -> ApiError:
    if isinstance(error, UserError):
        return ApiError(500, str(error))
    return ApiError(500, f"the text could not be written: {type(error).__name__}")


def _slot(job: TextJob, decode: Decode) -> ServedSlot:
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

"""The thread that owns the models: it plays the rounds of all texts and tells each what came of it."""

import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Condition, Thread
from time import perf_counter

from ablation.plan.grid import Configuration
from sampling.batch import Batch
from sampling.engine import Text
from sampling.methods.tables import METHODS
from sampling.pair.local_engine import LocalEngine
from sampling.scheduling.live_text import LiveText
from serve.answers.logprobs import TokenLogprob, placed, prompt_logprobs, token_logprobs
from serve.answers.writing import ResponseWriting
from serve.counters import Counters
from serve.errors import ApiError
from serve.jobs import AnswerEnd, ServedPiece, TextJob, TextOrder, Tokens
from serve.limits import ServerLimits, served_values
from utils.errors import NoDistribution, UserError
from utils.events import Finished, Prefilled, Round

_log = logging.getLogger(__name__)
_MOST_IDLE = 4


class Driver:
    """Answers orders, as many at a time as the limits say; texts of one method with the same values share forwards.

    Groups of different methods take turns, round by round. At most `most_waiting` orders wait for a place.
    """

    def __init__(self, engine: LocalEngine, tokens: Tokens, limits: ServerLimits) -> None:
        self.engine, self.tokens, self.size, self.most_waiting = engine, tokens, limits.size, limits.waiting
        self._limits = limits
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

    @property
    def longest_wait_s(self) -> float | None:
        """How long the order has waited that came first of those without a place; None where there is none."""
        with self._changed:
            return perf_counter() - self._waiting[0].arrived_s if self._waiting else None

    @property
    def rows(self) -> int:
        """Rows of the target's cache that the texts under way hold."""
        return sum(live.slot.length for live in list(self._jobs))

    def under_way(self) -> list[TextJob]:
        """The texts that have a place, in the order of their beginnings."""
        return list(self._jobs.values())

    def _run(self) -> None:
        try:
            while self._something():
                self._drop_cancelled()
                self._admit()
                for configuration, batch in list(self._groups.items()):
                    if batch.texts:
                        self._play(configuration, batch)
        finally:  # after a bug as well: nobody waits for a thread that is gone
            with self._changed:
                self._closed = True
                jobs = *self._jobs.values(), *self._waiting
                self._jobs.clear()
                self._waiting.clear()
            for job in jobs:
                _tell(job, ApiError(503, "the server has ended"))

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
                _tell(job, _failure(error) if isinstance(error, NoDistribution) else ApiError(400, str(error)))
            except Exception as error:
                _log.exception("a prompt of %d tokens could not be read", len(job.order.prompt))
                _tell(job, _failure(error))

    def _begin(self, job: TextJob) -> None:
        """Give an order a place; its prompt is read beside the rounds of others, or here where that cannot be."""
        order = job.order
        batch, values = self._group(order.configuration), {**served_values(order.configuration), "seed": order.seed}
        values |= {"processor": order.processor, "length": order.length, "grammar": order.grammar}
        request = self.engine.request(order.configuration.method, values, Text(job, order.prompt, order.length))
        job.lossless = self.engine.lossless(order.configuration.method, values)
        if order.of_prompt:
            job.of_prompt = self._prompt_logprobs(order)
        if not order.length:
            job.tell(AnswerEnd("", "length"))
            return
        stop = frozenset((*(() if order.to_the_end else request.stop), *order.stop_ids))
        watch = None if order.logprobs is None else job.note_rows
        job.begun_s = perf_counter()
        live, prefilled = batch.admit(replace(request, stop=stop, watch=watch))
        self._jobs[live] = job
        if prefilled is not None:
            self._read(job, prefilled)

    def _read(self, job: TextJob, prefilled: Prefilled) -> None:
        """The prompt of an order is in the caches."""
        job.metrics.add(prefilled)
        self.counters.began(prefilled, job.begun_s - job.arrived_s)

    def _prompt_logprobs(self, order: TextOrder) -> tuple[TokenLogprob, ...]:
        """The log-probabilities of a prompt's tokens, which cost one more forward over it."""
        runner = self.engine.pair.runner(METHODS[order.configuration.method])
        writing = ResponseWriting(self.tokens.decode, ())
        writing.push(order.prompt)
        try:
            found = prompt_logprobs(runner, order.prompt, order.logprobs or 0)
        except NoDistribution:
            self.engine.renew()
            raise
        return placed(found, writing.starts)

    def _group(self, configuration: Configuration) -> Batch:
        """The batch of a method with these values; those that have nothing to do give way."""
        if configuration not in self._groups:
            idle = [other for other, batch in self._groups.items() if not batch.texts]
            for other in idle[: max(0, len(idle) - _MOST_IDLE + 1)]:
                del self._groups[other]
            values = {**served_values(configuration), **self._limits.memory}
            self._groups[configuration] = self.engine.batch(configuration.method, values, self.size)
            self._groups[configuration].most_drafts = self._limits.drafts
        batch = self._groups.pop(configuration)
        self._groups[configuration] = batch  # the last one used is the last to give way
        return batch

    def _play(self, configuration: Configuration, batch: Batch) -> None:
        """A round of one group."""
        try:
            told = batch.play()
        except Exception as error:
            _log.exception("a round of %s failed", configuration.name)
            self._break(configuration, error)
            return
        for live, event in told:
            job = self._jobs.get(live)  # a text that is told already may fail as its drafter learns from it
            if job is not None and isinstance(event, Round):
                self._written(batch, live, job, event)
            elif job is not None and isinstance(event, Prefilled):
                self._read(job, event)
            elif job is not None:
                self._fail(live, job, live.error)

    def _break(self, configuration: Configuration, error: Exception) -> None:
        """Give up a group whose caches may be anything: its texts fail, the others go on."""
        self._groups.pop(configuration, None)
        for live, job in list(self._jobs.items()):
            if job.order.configuration == configuration:
                self._fail(live, job, error)

    def _fail(self, live: LiveText, job: TextJob, error: Exception | None) -> None:
        self._over(live, job, "error")
        _tell(job, _failure(error))

    def _written(self, batch: Batch, live: LiveText, job: TextJob, round: Round) -> None:
        """Take in a round; what goes wrong with its text, as with a stop string, ends it alone."""
        try:
            self._add(batch, live, job, round)
        except Exception as error:
            _log.exception("an answer of %d tokens could not be told", job.metrics.new_tokens)
            if live in batch.texts:
                batch.drop(live)
            self._fail(live, job, error)

    def _add(self, batch: Batch, live: LiveText, job: TextJob, round: Round) -> None:
        kept = job.writing.push(round.emitted)
        if kept < len(round.emitted):
            round = _cut(round, kept)
        job.metrics.add(round)
        job.recent.append(round)
        self.counters.add(round)
        self.counters.told(job, perf_counter())
        logprobs = self._logprobs(job, round)
        if live.seq.reason is None and job.writing.stopped:
            batch.drop(live)
        job.tell(ServedPiece(round.emitted, job.writing.told(), logprobs))
        if job.writing.stopped or live.seq.reason is not None:
            reason = "stop" if job.writing.stopped or live.seq.reason == "stop" else "length"
            job.metrics.add(Finished(live.seq.reason or "stop", job.metrics.new_tokens))
            self._over(live, job, reason)
            job.tell(AnswerEnd(job.writing.rest(), reason))

    def _logprobs(self, job: TextJob, round: Round) -> tuple[TokenLogprob, ...]:
        """The log-probabilities of a round's tokens, where they are wanted."""
        rows, job.rows = job.rows, None
        if job.order.logprobs is None or rows is None:
            return ()
        count = len(round.emitted)
        found = token_logprobs(rows[:count], round.emitted, job.order.logprobs)
        job.logprobs += (told := placed(found, job.writing.starts[-count:]))
        return told

    def _over(self, live: LiveText, job: TextJob, reason: str) -> None:
        if self._jobs.pop(live, None) is not None:
            self.counters.preemptions += live.preemptions
            self.counters.ended(reason, job)


def _tell(job: TextJob, told: ApiError) -> None:
    """Tell an error to whom it may concern; one who cannot be told is in nobody's way."""
    try:
        job.tell(told)
    except Exception:
        _log.exception("nobody could be told of an error")


def _cut(round: Round, kept: int) -> Round:
    """A round whose first tokens alone belong to the text."""
    path = round.path[:kept]
    return replace(round, path=path, next_token=round.next_token if kept > len(path) else None)


def _failure(error: Exception | None) -> ApiError:
    if isinstance(error, UserError):
        return ApiError(500, str(error))
    return ApiError(500, f"the text could not be written: {type(error).__name__}")

"""An engine behind a server: each answer is a stream, timed where it arrives."""

import json
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from engines.acceptance import sound
from engines.dialect import AnswerPiece, Dialect
from engines.dialect import Event as Told
from engines.home import ExternalEngine, wanted
from engines.server.api import OPEN, Api
from engines.spec import SERVER, EngineSpec
from engines.speculation import config_for
from sampling.engine import Description, Engine, Text
from sampling.methods.settings import Settings
from sampling.methods.tables import AR
from sampling.pair.model_info import ModelInfo
from utils.errors import UserError, one_of, wrong_value
from utils.events import Acceptance, Event, FailedText, FinishReason, WholeAnswer

_WARM, _WARM_PROMPT = 4, (1, 2, 3, 4, 5)
_REASONS: tuple[FinishReason, ...] = "stop", "length"


class ServedEngine(ExternalEngine):
    """A server in one of the dialects; spec tells which, and the name of its model.

    api_of: the server that speculates so, by its `speculative_config`. drafter: what it loads to draft, where its
    command line must say. end: ends what was started.

    Times are those of the client, the way to the server and back included.
    """

    def __init__(
        self,
        home: Engine,
        spec: EngineSpec,
        api_of: Callable[[Mapping[str, Any]], Api],
        drafter: Callable[[], str] | None = None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(home)
        self.name, self.version, self.model, self.weights = spec.name, spec.version, spec.model, spec.weights
        self.dialect = spec.speaks
        self._api_of, self._drafter, self._end, self._warm = api_of, drafter, end, set[Api]()

    def describe(self) -> Description:
        """See `Engine.describe`: what the server computes with is its own affair."""
        about = self.home.describe()
        called = PurePath(self.model).name if self.model != about.target.place else about.target.name
        info = ModelInfo(called or about.target.name, SERVER, "", self.dialect.name, stored=self.weights)
        return Description(info, None, about.window, about.device, version=self.version)

    def stream(
        self, name: str, values: Mapping[str, Any], prompt: Sequence[int], run: str | None = None
    ) -> Iterator[Event]:
        """See `Engine.stream`."""
        yield self._answered(name, values, prompt)

    def stream_many(
        self, name: str, values: Mapping[str, Any], texts: Iterable[Text], batch: int, run: str | None = None
    ) -> Iterator[tuple[Any, Event]]:
        """See `Engine.stream_many`: so many requests are under way at a time, a thread each."""
        config = self._config(name, values)
        self._warm_up(self._api_of(config), values, config)
        waiting, going = iter(texts), dict[Future[WholeAnswer], tuple[Any, float]]()
        with _threads(batch) as threads:
            text, begun = next(waiting, None), time.perf_counter()
            while going or text is not None:
                now = time.perf_counter() - begun
                while text is not None and len(going) < batch and (text.arrives_s or 0.0) <= now:
                    seed = values["seed"] if text.seed is None else text.seed
                    of_text = {**values, "length": text.length, "seed": seed}
                    asked = threads.submit(self._answered, name, of_text, text.prompt)
                    going[asked] = text.tag, 0.0 if text.arrives_s is None else now - text.arrives_s
                    text = next(waiting, None)
                coming = None if text is None or len(going) == batch else (text.arrives_s or 0.0) - now
                for index in _done(going, coming):
                    tag, queued_s = going.pop(index)
                    error = index.exception()
                    if isinstance(error, UserError):
                        yield tag, FailedText(str(error))
                    else:
                        yield tag, replace(index.result(), queued_s=queued_s)
                text = next(waiting, None) if text is None else text

    def close(self) -> None:
        """See `ExternalEngine.close`."""
        self._end()

    def greet(self, methods: Iterable[str]) -> None:
        """Ask the servers of these methods, which run already, for a few tokens. Raises `UserError`."""
        values = Settings()
        for method in methods:
            config = self._config(method, values)
            self._warm_up(self._api_of(config), values, config)

    def top_logprobs(
        self, name: str, values: Mapping[str, Any], prompt: Sequence[int], most: int
    ) -> tuple[list[int], list[dict[int, float]]]:
        """An answer, and of each of its tokens ln p of the best ones as the server tells them; none where it does not.

        Raises `UserError`.
        """
        config, reading = self._config(name, values), _Reading()
        asked = replace(wanted(values, prompt, self.dialect.samplers), logprobs=most)
        try:
            for event in self._api_of(config).events(self.dialect.path, self.dialect.body(asked, self.model, config)):
                reading.add(event, self.dialect.piece(event), 0.0)
            ids, told = reading.ids or [], self.dialect.top_logprobs(reading.events)
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise UserError(f"{self.name}: its log-probabilities are in another shape: {error!r}") from None
        self._check(ids)
        return ids, told

    def _answered(self, name: str, values: Mapping[str, Any], prompt: Sequence[int]) -> WholeAnswer:
        config, asked = self._config(name, values), wanted(values, prompt, self.dialect.samplers)
        api, reading = self._api_of(config), _Reading()
        self._warm_up(api, values, config)
        begun = time.perf_counter()
        try:
            for event in api.events(self.dialect.path, self.dialect.body(asked, self.model, config)):
                reading.add(event, self.dialect.piece(event), time.perf_counter() - begun)
                if len(reading.ids or ()) > asked.length:
                    raise UserError(f"{self.name}: it goes on behind the {asked.length} tokens that were asked for")
            ids = reading.ids if reading.ids is not None else self.home.tokenise([reading.text], False)
            if reading.reason is None or not ids:
                raise UserError(f"{self.name}: the answer has no end; the server may have failed, see what it printed")
            if reading.reason not in _REASONS:
                raise UserError(f"{self.name}: {wrong_value('its end', reading.reason, one_of(_REASONS))}")
            acceptance = sound(self.dialect.acceptance(reading.events, len(ids)), len(ids))
        except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
            raise UserError(
                f"{self.name}: {api.url} answers in another shape than {self.dialect.name}'s: {error!r}"
            ) from None
        self._check(ids)
        if name == AR:
            if acceptance.drafted:
                raise UserError(
                    f"{self.name}: plain decoding was asked for, and {acceptance.drafted} tokens were drafted: the "
                    f"server at {api.url} speculates, and what is measured against it means nothing"
                )
            acceptance = Acceptance.none(len(ids)) if acceptance == Acceptance() else acceptance
        return WholeAnswer(
            len(prompt),
            tuple(ids),
            reading.reason,
            reading.ttft_s,
            reading.wall_s,
            reading.first,
            acceptance,
        )

    def _check(self, ids: Sequence[Any]) -> None:
        """Raises `UserError` for what is no id of our target: it could not read such an answer, nor judge it."""
        most = self.home.describe().vocab_size
        for token in ids:
            if type(token) is not int or not 0 <= token < (most or token + 1):
                raise UserError(
                    f"{self.name}: it answered with the id {token!r}; expected ids from 0 to {(most or 0) - 1}"
                )

    def _config(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        config = config_for(self.dialect, name, values)
        if self._drafter is None or not self.dialect.loads(config):
            return config
        return {**config, "model": self._drafter()}

    def _warm_up(self, api: Api, values: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        """A server's first request pays for what no later one does: it is not timed, and its prompt is of no plan."""
        if api not in self._warm:
            self._warm.add(api)
            asked = replace(wanted(values, _WARM_PROMPT, self.dialect.samplers), length=_WARM)
            self.version = self.version or _version(api, self.dialect)
            for _ in api.events(self.dialect.path, self.dialect.body(asked, self.model, config)):
                pass


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that are waited for; where all ends early, whatever they wait for is cut off first."""
    with ThreadPoolExecutor(count) as threads:
        try:
            yield threads
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            for connection in list(OPEN):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            raise


def _done(going: Iterable[Future[WholeAnswer]], seconds: float | None) -> Iterable[Future[WholeAnswer]]:
    """Requests that have ended, once one has; seconds: until somebody else is to be asked, or None."""
    if going:
        return wait(going, seconds, FIRST_COMPLETED).done
    time.sleep(max(0.0, seconds or 0.0))
    return ()


def _version(api: Api, dialect: Dialect) -> str:
    """What a server says of itself; empty where it does not."""
    if dialect.version is None:
        return ""
    path, key = dialect.version
    try:
        return str(json.loads(api.get(path)).get(key) or "")
    except (UserError, ValueError, AttributeError):
        return ""


class _Reading:
    """A stream as it arrives. ids: None where the server tells text alone."""

    def __init__(self) -> None:
        self.events: list[Told] = []
        self.ids: list[int] | None = []
        self.text = ""
        self.reason: Any = None
        self.first = 0
        self.ttft_s = self.wall_s = 0.0

    def add(self, event: Told, piece: AnswerPiece, seconds: float) -> None:
        """One event, so long after the request."""
        self.events.append(event)
        self.reason = piece.reason or self.reason
        if piece.ids is None:
            self.ids = None
        if not (piece.ids or piece.text):
            return
        if self.ids is not None:
            whole = piece.total is not None and piece.total == len(piece.ids or ())
            self.ids = [*([] if whole else self.ids), *(piece.ids or ())]
        self.text += piece.text
        if not self.ttft_s:
            self.ttft_s, self.first = seconds, max(1, len(piece.ids or ()))
        self.wall_s = seconds

"""The routes: what comes in becomes orders for the driver, what it tells goes out."""

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from ablation.plan.grid import Configuration
from sampling.engine import Text
from sampling.methods.chat_template import UNTOLD, TemplateVariables
from sampling.methods.tables import METHODS
from sampling.pair.local_engine import LocalEngine
from serve.body import Model, read_chat, read_completion
from serve.counters import TEXT_FORMAT
from serve.driver import Driver
from serve.errors import ApiError, broken, not_routed
from serve.jobs import AnswerEnd, ParsedRequest, ServedPiece, TextJob, Tokens, Told
from serve.limits import ServerLimits, served_values
from serve.mimics import COMPLETIONS, MIMICS, as_ours
from serve.replies import ReplyObjects
from serve.writing import ResponseWriting
from utils.errors import UserError
from utils.provenance import project_version

_PAGE = Path(__file__).with_name("page.html")
_LOOKS_S = 0.2
VERSION = project_version()
T = TypeVar("T")


class Served:
    """The pair as requests see it: see `serve.body.Model`."""

    def __init__(self, engine: LocalEngine, tokens: Tokens, limits: ServerLimits, default: Configuration) -> None:
        about = engine.describe()
        self.engine, self.tokens, self.default = engine, tokens, default
        self.name, self.window, self.longest = about.target.name, about.window, limits.longest
        self.places = limits.size + limits.waiting
        self.vocab_size = engine.target.vocab_size
        self._limits = limits
        self.refuse(default)
        self.methods = tuple(name for name in METHODS if self._serves(name))

    def tokenise(
        self, turns: Sequence[str], chat: bool, system: str | None = None, variables: TemplateVariables = UNTOLD
    ) -> list[int]:
        """Ids of a prompt. Raises `UserError`."""
        return self.tokens.encode(turns, chat, system, variables)

    def refuse(self, configuration: Configuration) -> None:
        """Raises `UserError` for a method that cannot run here, or not for many at a time, or costs too much."""
        self.engine.request(configuration.method, served_values(configuration), Text(None, (), 1))
        if METHODS[configuration.method].search:
            raise UserError(f"{configuration.method} given, which answers one text at a time; expected another method")
        self._limits.check(configuration)

    def _serves(self, name: str) -> bool:
        try:
            self.refuse(Configuration(name))
        except UserError:
            return False
        return True


class Server:
    """A pair behind OpenAI's routes."""

    def __init__(
        self,
        engine: LocalEngine,
        default: Configuration,
        limits: ServerLimits,
        variables: TemplateVariables = UNTOLD,
    ) -> None:
        self.limits, self._mimic = limits, MIMICS[limits.dialect]
        tokens = Tokens(engine, variables)
        self.driver = Driver(engine, tokens, limits.size, limits.waiting, limits.drafts)
        self.model = Served(engine, tokens, limits, default)
        self.created = int(time.time())

    def app(self) -> Starlette:
        """The application; the driver runs while it does."""

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            self.driver.start()
            try:
                yield
            finally:
                await asyncio.to_thread(self.driver.close)

        routes = [
            Route("/v1/models", self._checked(self._models), methods=["GET"]),
            Route(self._mimic.path, self._checked(partial(self._generate, self._read_completion)), methods=["POST"]),
            Route("/v1/chat/completions", self._checked(partial(self._generate, read_chat)), methods=["POST"]),
            Route("/health", self._health, methods=["GET"]),
            Route("/metrics", self._checked(self._metrics), methods=["GET"]),
            Route("/live", self._checked(self._live), methods=["GET"]),
            Route("/", self._page, methods=["GET"]),
        ]
        return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: not_routed, 500: broken})

    def _checked(self, answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """A route that only who has the key may use, and whose refusals are error objects."""

        async def route(request: Request) -> Response:
            try:
                self._check_key(request)
                return await answer(request)
            except ApiError as error:
                return JSONResponse(error.as_dict(), error.status)
            except ClientDisconnect:
                return Response(status_code=499)

        return route

    def _check_key(self, request: Request) -> None:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        key = key if scheme.lower() == "bearer" else ""
        if self.limits.key is not None and not hmac.compare_digest(key.encode(), self.limits.key.encode()):
            raise ApiError(
                401, "no valid API key given; expected a header Authorization: Bearer KEY", None, "invalid_api_key"
            )

    async def _models(self, request: Request) -> Response:
        about = {"id": self.model.name, "object": "model", "created": self.created, "owned_by": "speculative-workbench"}
        return JSONResponse({"object": "list", "data": [about | {"max_model_len": self.model.window}]})

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "version": VERSION})

    async def _metrics(self, request: Request) -> Response:
        driver = self.driver
        page = driver.counters.page(self.model.name, driver.running, driver.waiting)
        return PlainTextResponse(page, media_type=TEXT_FORMAT)

    async def _page(self, request: Request) -> Response:
        return HTMLResponse(_PAGE.read_text(encoding="utf-8"))

    async def _live(self, request: Request) -> Response:
        """The slots, several times a second, as events for the page."""

        async def looks() -> AsyncIterator[str]:
            while not self.driver.closed:
                yield _event(await asyncio.to_thread(self._look))
                await asyncio.sleep(_LOOKS_S)

        return StreamingResponse(looks(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    def _look(self) -> dict[str, Any]:
        driver, counters = self.driver, self.driver.counters
        return {
            "model": self.model.name,
            "methods": [{"name": name, "label": METHODS[name].label} for name in self.model.methods],
            "default": self.model.default.method,
            "size": driver.size,
            "waiting": driver.waiting,
            "tokens": counters.generation_tokens,
            "rounds": counters.rounds,
            "drafted": counters.drafted,
            "accepted": counters.accepted,
            "slots": [asdict(slot) for slot in driver.slots()],
        }

    async def _generate(self, read: Callable[[bytes, Model], ParsedRequest], request: Request) -> Response:
        body = await self._body(request)
        asked = await asyncio.to_thread(read, body, self.model)
        answers: asyncio.Queue[tuple[int, Told]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def telling(number: int) -> Callable[[Told], None]:
            def tell(piece: Told) -> None:
                with suppress(RuntimeError):  # the loop is closed: nobody listens any longer
                    loop.call_soon_threadsafe(answers.put_nowait, (number, piece))

            return tell

        decode = self.driver.tokens.decode
        jobs = [
            TextJob(order, telling(n), ResponseWriting(decode, order.stops)) for n, order in enumerate(asked.orders)
        ]
        reply = (self._mimic.reply if asked.kind == "text" else ReplyObjects)(asked, jobs, self.model.name)
        self.driver.submit(jobs)
        if not asked.stream:
            return await self._whole(request, reply, answers)
        try:
            number, first = await _unless_gone(request, answers.get())
            if isinstance(first, ApiError):
                raise first
        except BaseException:
            self.driver.cancel(jobs)
            raise
        told_so_far = _after((number, first), answers)
        return StreamingResponse(
            self._stream(reply, told_so_far), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    def _read_completion(self, body: bytes, model: Model) -> ParsedRequest:
        """A completion in the server's dialect. Raises `ApiError`."""
        return read_completion(body if self._mimic.path == COMPLETIONS else as_ours(self._mimic, body), model)

    async def _whole(
        self, request: Request, reply: ReplyObjects, answers: "asyncio.Queue[tuple[int, Told]]"
    ) -> Response:
        """The answer once all of it is there; if the client leaves before, the places are free."""
        texts, reasons = [""] * len(reply.jobs), [""] * len(reply.jobs)

        async def collect() -> None:
            while not all(reasons):
                number, piece = await answers.get()
                if isinstance(piece, ApiError):
                    raise piece
                texts[number] += piece.text
                if isinstance(piece, AnswerEnd):
                    reasons[number] = piece.reason

        try:
            await _unless_gone(request, collect())
        finally:
            self.driver.cancel(reply.jobs)
        return JSONResponse(reply.whole(texts, reasons))

    async def _stream(self, reply: ReplyObjects, answers: AsyncIterator[tuple[int, Told]]) -> AsyncIterator[str]:
        """A chunk a round; where the client leaves, this is closed, and the places are free."""
        open_texts = set(range(len(reply.jobs)))
        try:
            for number in sorted(open_texts):
                if first := reply.first(number):
                    yield _event(first)
            while open_texts:
                number, piece = await anext(answers)
                if isinstance(piece, ApiError):
                    yield _event(piece.as_dict())
                    return
                if isinstance(piece, ServedPiece):
                    yield _event(reply.chunk(number, piece.text, piece.ids))
                else:
                    yield _event(reply.chunk(number, piece.text, (), piece.reason))
                    open_texts.discard(number)
            if reply.asked.include_usage:
                yield _event(reply.usage())
            yield "data: [DONE]\n\n"
        finally:
            self.driver.cancel(reply.jobs)

    async def _body(self, request: Request) -> bytes:
        """The body, of which no more is read than may be."""
        most, body = self.limits.body, bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise ApiError(413, f"the body has more than {most:,} bytes; expected at most so many")
        return bytes(body)


async def _after(
    first: tuple[int, Told], answers: "asyncio.Queue[tuple[int, Told]]"
) -> AsyncIterator[tuple[int, Told]]:
    yield first
    while True:
        yield await answers.get()


async def _unless_gone(request: Request, work: Awaitable[T]) -> T:
    """What the work comes to. Raises `ClientDisconnect` as soon as the client has left."""
    doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise ClientDisconnect
        return doing.result()
    finally:
        for task in (doing, leaving):
            task.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False, allow_nan=False)}\n\n"

"""The routes: what comes in becomes orders for the driver, what it tells goes out."""

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from ablation.plan.grid import Configuration
from sampling.methods.chat_template import UNTOLD, TemplateVariables
from sampling.pair.local_engine import LocalEngine
from serve.answers.logprobs import Spelled
from serve.answers.mimics import COMPLETIONS, MIMICS, as_ours
from serve.answers.replies import ERROR, ReplyObjects
from serve.answers.syntax import SYNTAXES
from serve.answers.writing import ResponseWriting
from serve.counters import TEXT_FORMAT
from serve.driver import Driver
from serve.errors import ApiError, broken, not_routed
from serve.jobs import AnswerEnd, ParsedRequest, ServedPiece, TextJob, Tokens, Told
from serve.limits import ServerLimits
from serve.page.routes import PageRoutes
from serve.requests.body import Model, check_name, read_chat, read_completion
from serve.requests.tokenizing import detokenized, tokenized
from serve.served import Served
from serve.streams import Answers, event, following, unless_gone
from utils.provenance import project_version

VERSION = project_version()


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
        self.driver = Driver(engine, tokens, limits)
        self.model = Served(engine, tokens, limits, default)
        self.created = int(time.time())
        self._page = PageRoutes(self.driver, self.model)

    def app(self) -> Starlette:
        """The application; the driver runs while it does."""

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            self.driver.start()
            try:
                yield
            finally:
                await asyncio.to_thread(self.driver.close)

        asked: dict[str, dict[str, Callable[[Request], Awaitable[Response]]]] = {
            "GET": {
                "/v1/models": self._models,
                "/v1/models/{name:path}": self._model,
                "/metrics": self._metrics,
                "/live": self._page.live,
            },
            "POST": {
                self._mimic.path: partial(self._generate, self._read_completion),
                "/v1/chat/completions": partial(self._generate, read_chat),
                "/tokenize": partial(self._told_ids, tokenized),
                "/detokenize": partial(self._told_ids, detokenized),
            },
        }
        routes = [
            Route(path, self._checked(answer), methods=[method])
            for method, answers in asked.items()
            for path, answer in answers.items()
        ]
        routes += [Route("/health", self._health, methods=["GET"]), Route("/version", self._version, methods=["GET"])]
        routes.append(Route("/", self._page.page, methods=["GET"]))
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

    def _about(self) -> dict[str, Any]:
        about = {"id": self.model.name, "object": "model", "created": self.created, "owned_by": "speculative-workbench"}
        return about | {"max_model_len": self.model.window}

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._about()]})

    async def _model(self, request: Request) -> Response:
        check_name(request.path_params["name"], self.model)
        return JSONResponse(self._about())

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "version": VERSION})

    async def _version(self, request: Request) -> Response:
        return JSONResponse({"version": VERSION})

    async def _metrics(self, request: Request) -> Response:
        driver = self.driver
        page = driver.counters.page(self.model.name, driver.running, driver.waiting)
        return PlainTextResponse(page, media_type=TEXT_FORMAT)

    async def _told_ids(self, answer: Callable[[bytes, Model, Tokens], dict[str, Any]], request: Request) -> Response:
        body = await self._body(request)
        return JSONResponse(await asyncio.to_thread(answer, body, self.model, self.driver.tokens))

    async def _generate(self, read: Callable[[bytes, Model], ParsedRequest], request: Request) -> Response:
        body = await self._body(request)
        asked = await asyncio.to_thread(read, body, self.model)
        answers: Answers = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def telling(number: int) -> Callable[[Told], None]:
            def tell(piece: Told) -> None:
                with suppress(RuntimeError):  # the loop is closed: nobody listens any longer
                    loop.call_soon_threadsafe(answers.put_nowait, (number, piece))

            return tell

        tokens, form = self.driver.tokens, asked.form
        written = SYNTAXES[form.syntax].tokens if form.calls == "written" else ()
        decode = tokens.decode_keeping(written)
        jobs = [
            TextJob(order, telling(n), ResponseWriting(decode, order.stops, order.stop_ids))
            for n, order in enumerate(asked.orders)
        ]
        shapes = self._mimic.reply if asked.kind == "text" else ReplyObjects
        reply = shapes(asked, jobs, self.model.name, Spelled(tokens.bytes_of, asked.tokens_as_ids))
        self.driver.submit(jobs)
        if not asked.stream:
            return await self._whole(request, reply, answers)
        try:
            number, first = await unless_gone(request, answers.get())
            if isinstance(first, ApiError) and len(jobs) == 1:
                raise first
        except BaseException:
            self.driver.cancel(jobs)
            raise
        stream = self._stream(reply, following((number, first), answers))
        return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    def _read_completion(self, body: bytes, model: Model) -> ParsedRequest:
        """A completion in the server's dialect. Raises `ApiError`."""
        return read_completion(body if self._mimic.path == COMPLETIONS else as_ours(self._mimic, body), model)

    async def _whole(self, request: Request, reply: ReplyObjects, answers: Answers) -> Response:
        """The answer once all of it is there; if the client leaves before, the places are free."""
        texts, reasons = [""] * len(reply.jobs), [""] * len(reply.jobs)
        errors = dict[int, ApiError]()

        async def collect() -> None:
            while not all(reasons):
                number, piece = await answers.get()
                if isinstance(piece, ApiError):
                    reasons[number], errors[number] = ERROR, piece
                    continue
                texts[number] += piece.text
                if isinstance(piece, AnswerEnd):
                    reasons[number] = piece.reason

        try:
            await unless_gone(request, collect())
        finally:
            self.driver.cancel(reply.jobs)
        if len(errors) == len(texts):
            raise errors[0]
        return JSONResponse(reply.whole(texts, reasons, errors))

    async def _stream(self, reply: ReplyObjects, answers: AsyncIterator[tuple[int, Told]]) -> AsyncIterator[str]:
        """A chunk a round; where the client leaves, this is closed, and the places are free."""
        open_texts = set(range(len(reply.jobs)))
        try:
            for number in sorted(open_texts):
                if first := reply.first(number):
                    yield event(first)
            while open_texts:
                number, piece = await anext(answers)
                if isinstance(piece, ApiError) and len(reply.jobs) == 1:
                    yield event(piece.as_dict())
                    return
                yield event(reply.told(number, piece))
                if not isinstance(piece, ServedPiece):
                    open_texts.discard(number)
            if reply.asked.include_usage:
                yield event(reply.usage())
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

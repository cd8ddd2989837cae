"""Answers as they go out: server-sent events, and an end where the client has left."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from serve.jobs import Told

T = TypeVar("T")
Answers = asyncio.Queue[tuple[int, Told]]
"""What is told of each text of a request, by its number."""


def event(content: dict[str, Any]) -> str:
    """A server-sent event."""
    return f"data: {json.dumps(content, ensure_ascii=False, allow_nan=False)}\n\n"


async def following(first: tuple[int, Told], answers: Answers) -> AsyncIterator[tuple[int, Told]]:
    """What was told first, and all that comes behind it."""
    yield first
    while True:
        yield await answers.get()


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
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

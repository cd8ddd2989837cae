"""The routes of the page: the document, and the looks as events."""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from serve.driver import Driver
from serve.page.document import document
from serve.page.look import LOOKS_S, Looks
from serve.served import Served
from serve.streams import event


class PageRoutes:
    """What answers who opens the server in a browser."""

    def __init__(self, driver: Driver, model: Served) -> None:
        self._driver, self._looks = driver, Looks(driver, model)

    async def page(self, request: Request) -> Response:
        """The page, which holds nothing of the server's."""
        made = document()
        headers = {"Content-Security-Policy": made.policy, "Cache-Control": "no-cache"}
        return HTMLResponse(made.text, headers=headers)

    async def live(self, request: Request) -> Response:
        """The looks, several times a second; the first event says what does not change, too."""

        async def events() -> AsyncIterator[str]:
            about = {"about": self._looks.about()}
            while not self._driver.closed:
                yield event({**about, **await asyncio.to_thread(self._looks.look)})
                about = {}
                await asyncio.sleep(LOOKS_S)

        return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

"""The web server around the routes, at whose end every open answer gets one too."""

import asyncio
import socket

import uvicorn

from serve.app import Server

_LAST_WORDS_S = 1


class _WebServer(uvicorn.Server):
    """Ends the driver first, which tells whoever waits; so no connection has to be cut off."""

    def __init__(self, config: uvicorn.Config, server: Server) -> None:
        super().__init__(config)
        self._server = server

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await asyncio.to_thread(self._server.driver.close)
        await super().shutdown(sockets)


def web_server(server: Server) -> uvicorn.Server:
    """What answers on sockets: run it with them. It is silent, as the application tells what goes wrong in it."""
    config = uvicorn.Config(
        server.app(), log_level="critical", access_log=False, timeout_graceful_shutdown=_LAST_WORDS_S
    )
    return _WebServer(config, server)

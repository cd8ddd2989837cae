"""What a client is told when a request cannot be met: OpenAI's error object."""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from utils.errors import UserError, one_of
from utils.text import quoted

_log = logging.getLogger(__name__)
T = TypeVar("T")

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """A request that cannot be met: its HTTP status, why, and which field of the body is at fault."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code = status, code
        self.message, self.param = _sendable(message), None if param is None else _sendable(param)

    def as_dict(self) -> dict[str, Any]:
        """The body of the response."""
        kind = "server_error" if self.status >= 500 else _TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def refused_as(name: str, read: Callable[[], T]) -> T:
    """What is read; a `UserError` becomes an `ApiError` at this field."""
    try:
        return read()
    except UserError as error:
        raise ApiError(400, str(error), name) from None


def wrong_field(name: str, value: object, expected: str) -> ApiError:
    """A field of the body that is something else than is expected."""
    return ApiError(400, f"{name}: {quoted(value)} given; expected {expected}", name)


def _sendable(text: str) -> str:
    """What a request called its fields may be no text: half a surrogate pair is shown as an escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


async def not_routed(request: Request, error: Exception) -> Response:
    """A route that is none, or is asked in another way."""
    assert isinstance(error, HTTPException)
    what, code = f"{request.method} {request.url.path}: {error.detail}", None
    if error.status_code == 404:
        there = sorted(route.path for route in request.app.routes if "{" not in route.path)
        what, code = f"{what}; expected {one_of(there)}", "unknown_url"
    return JSONResponse(ApiError(error.status_code, what, None, code).as_dict(), error.status_code, error.headers)


async def broken(request: Request, error: Exception) -> Response:
    """The answer where the server itself fails; the reason goes to its log."""
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return JSONResponse(ApiError(500, f"the server failed: {type(error).__name__}").as_dict(), 500)

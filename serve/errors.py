"""What a client is told when a request cannot be met: OpenAI's error object."""

from collections.abc import Callable
from typing import Any, TypeVar

from utils.errors import UserError
from utils.text import quoted

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

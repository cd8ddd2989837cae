"""The messages of a chat, read strictly."""

from collections.abc import Mapping
from typing import Any

from serve.errors import ApiError, refused_as, wrong_field
from utils.errors import checked_text


def conversation(messages: Any) -> tuple[list[str], str | None]:
    """The turns, the user's and the assistant's in turn, the user's last; and the system message.

    Raises `ApiError`.
    """
    expected = "a list of messages: a system message at most, then the user's and the assistant's in turn"
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise wrong_field("messages", messages, expected)
    turns = [_message(number, message) for number, message in enumerate(messages)]
    system = turns.pop(0)[1] if turns and turns[0][0] == "system" else None
    roles = [role for role, _ in turns]
    if roles != ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2) or len(roles) % 2 == 0:
        raise wrong_field("messages", ", ".join(roles) or "none", f"{expected}, the last one the user's")
    return [text for _, text in turns], system


def _message(number: int, message: Mapping[str, Any]) -> tuple[str, str]:
    where = f"messages[{number}]"
    for name, value in message.items():
        if name not in ("role", "content", "name") and value not in (None, []):
            raise ApiError(400, f"{where}.{name} given; expected role and content", f"{where}.{name}")
    if not isinstance(message.get("name", ""), str | None):
        raise wrong_field(f"{where}.name", message["name"], "a text")
    role, content = message.get("role"), message.get("content")
    role = "system" if role == "developer" else role
    if role not in ("system", "user", "assistant"):
        raise wrong_field(f"{where}.role", role, "system, user or assistant")
    if isinstance(content, list):
        content = _text_of(content)
    if not isinstance(content, str):
        raise wrong_field(f"{where}.content", message.get("content"), "a text, or parts of type text")
    return str(role), refused_as(f"{where}.content", lambda: checked_text(content, f"{where}.content"))


def _text_of(parts: list[Any]) -> str | None:
    """The text of a message's parts; None where they are something else."""
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    known = [text for text in texts if isinstance(text, str)]
    return "".join(known) if len(known) == len(parts) else None

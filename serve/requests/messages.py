"""The messages of a chat, read strictly."""

from collections.abc import Collection, Mapping
from typing import Any

from serve.errors import ApiError, refused_as, wrong_field
from utils.errors import UserError, checked_text
from utils.json_text import read_json

_TEXT = ("role", "content", "name")
_OF_ASSISTANT = ("tool_calls", "reasoning_content")


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


def beyond_text(messages: Any) -> bool:
    """Whether messages hold more than texts: results of tools, calls of them, reasoning of earlier answers."""
    return isinstance(messages, list) and any(
        isinstance(message, dict) and (message.get("role") == "tool" or any(map(message.get, _OF_ASSISTANT)))
        for message in messages
    )


def tool_conversation(messages: Any) -> list[dict[str, Any]]:
    """Messages as chat templates take them where tools are used; the arguments of calls are objects.

    Raises `ApiError`.
    """
    expected = "a list of messages, a system message at the beginning at most, the last one the user's or a tool's"
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise wrong_field("messages", messages, expected)
    said, called = list[dict[str, Any]](), set[str]()
    for number, message in enumerate(messages):
        said.append(_tool_message(number, message, called))
        if said[-1]["role"] == "assistant":
            called = {call["id"] for call in said[-1].get("tool_calls", ())}
    roles = [message["role"] for message in said]
    if not roles or roles[-1] not in ("user", "tool") or "system" in roles[1:]:
        raise wrong_field("messages", ", ".join(roles) or "none", expected)
    return said


def _tool_message(number: int, message: Mapping[str, Any], called: Collection[str]) -> dict[str, Any]:
    """A message of any role. called: ids of the calls of the assistant's last message."""
    where, role = f"messages[{number}]", message.get("role")
    if role == "tool":
        _check_names(where, message, (*_TEXT, "tool_call_id"), "role, content and tool_call_id")
        if message.get("tool_call_id") not in called:
            raise wrong_field(f"{where}.tool_call_id", message.get("tool_call_id"), f"one of {_listed(called)}")
        return {"role": role, "content": _content(where, message), "tool_call_id": message["tool_call_id"]}
    if role != "assistant":
        return dict(zip(("role", "content"), _message(number, message), strict=True))
    _check_names(where, message, (*_TEXT, *_OF_ASSISTANT), f"role, content, {' and '.join(_OF_ASSISTANT)}")
    calls, reasoning = message.get("tool_calls") or [], message.get("reasoning_content")
    said: dict[str, Any] = {"role": role, "content": ""}
    if message.get("content") is not None or not calls:
        said["content"] = _content(where, message)
    if reasoning is not None:
        if not isinstance(reasoning, str):
            raise wrong_field(f"{where}.reasoning_content", reasoning, "a text")
        said["reasoning_content"] = reasoning
    if not isinstance(calls, list):
        raise wrong_field(f"{where}.tool_calls", calls, "a list of calls")
    if calls:
        said["tool_calls"] = [_call(f"{where}.tool_calls[{place}]", call) for place, call in enumerate(calls)]
    return said


def _call(where: str, call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    texts = (call.get("id"), function.get("name"), function.get("arguments")) if isinstance(function, dict) else ()
    if not texts or not all(isinstance(text, str) for text in texts):
        raise wrong_field(where, call, '{"id": ID, "type": "function", "function": {"name": NAME, "arguments": JSON}}')
    id, name, arguments = texts
    try:
        value = read_json(arguments or "{}")
    except UserError:
        value = None
    if not isinstance(value, dict):
        raise wrong_field(f"{where}.function.arguments", arguments, "a JSON object as a text")
    return {"id": id, "type": "function", "function": {"name": name, "arguments": value}}


def _listed(ids: Collection[str]) -> str:
    return ", ".join(sorted(ids)) or "the ids of calls in the message before"


def _message(number: int, message: Mapping[str, Any]) -> tuple[str, str]:
    where = f"messages[{number}]"
    _check_names(where, message, _TEXT, "role and content")
    role = message.get("role")
    role = "system" if role == "developer" else role
    if role not in ("system", "user", "assistant"):
        raise wrong_field(f"{where}.role", role, "system, user or assistant")
    return str(role), _content(where, message)


def _check_names(where: str, message: Mapping[str, Any], allowed: Collection[str], expected: str) -> None:
    for name, value in message.items():
        if name not in allowed and value not in (None, []):
            raise ApiError(400, f"{where}.{name} given; expected {expected}", f"{where}.{name}")
    if not isinstance(message.get("name", ""), str | None):
        raise wrong_field(f"{where}.name", message["name"], "a text")


def _content(where: str, message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = _text_of(content)
    if not isinstance(content, str):
        raise wrong_field(f"{where}.content", message.get("content"), "a text, or parts of type text")
    return refused_as(f"{where}.content", lambda: checked_text(content, f"{where}.content"))


def _text_of(parts: list[Any]) -> str | None:
    """The text of a message's parts; None where they are something else."""
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    known = [text for text in texts if isinstance(text, str)]
    return "".join(known) if len(known) == len(parts) else None

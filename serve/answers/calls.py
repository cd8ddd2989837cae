"""Calls of tools in the text of an answer, read while it is written: each is told once it is whole."""

import json
import re
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from json import JSONDecoder
from typing import Any, Protocol

from serve.answers.writing import begun
from utils.errors import UserError
from utils.json_text import read_json

OPENS, CLOSES = "<tool_call>", "</tool_call>"
_BEGUN = re.compile(r'\{"name": "([\w-]+)", "arguments": ')
_BETWEEN = "[], \n"


@dataclass(frozen=True, slots=True)
class ToolCallPiece:
    """What was added to a call. index: which call of the answer. id, name: in its first piece. arguments: JSON text."""

    index: int
    arguments: str
    id: str | None = None
    name: str | None = None


class CallsReader(Protocol):
    """Tells calls from the other text."""

    def push(self, text: str, last: bool) -> tuple[str, Sequence[ToolCallPiece]]:
        """Content and pieces of calls. last: nothing follows."""
        ...


class NoCalls:
    """An answer without calls: all of it is content."""

    def push(self, text: str, last: bool) -> tuple[str, Sequence[ToolCallPiece]]:
        """See `CallsReader.push`."""
        return text, ()


class _Numbered:
    """Counts the calls of an answer, each with an id of its own."""

    def __init__(self, tools: Collection[str]) -> None:
        self.tools, self.count, self.held = tools, 0, ""

    def call(self, name: str, arguments: str) -> ToolCallPiece:
        """The next call."""
        self.count += 1
        return ToolCallPiece(self.count - 1, arguments, f"call_{uuid.uuid4().hex[:24]}", name)


class ArgumentsReader(_Numbered):
    """The whole text is the arguments of the one tool."""

    def push(self, text: str, last: bool) -> tuple[str, Sequence[ToolCallPiece]]:
        """See `CallsReader.push`."""
        if not text:
            return "", ()
        (name,) = self.tools
        return "", (ToolCallPiece(0, text) if self.count else self.call(name, text),)


class ListReader(_Numbered):
    """The whole text is a JSON list of calls, spelled as a grammar spells it."""

    def push(self, text: str, last: bool) -> tuple[str, Sequence[ToolCallPiece]]:
        """See `CallsReader.push`. A call that the end cuts off is told as far as it came."""
        self.held, calls = self.held + text, list[ToolCallPiece]()
        while "}" in text or last:
            self.held = self.held.lstrip(_BETWEEN)
            named = _BEGUN.match(self.held)
            try:
                _, end = JSONDecoder().raw_decode(self.held)
            except ValueError:
                if named is None or not last:
                    break
                end = len(self.held) + 1
            if named is None:
                break
            calls.append(self.call(named[1], self.held[named.end() : end - 1]))
            self.held = self.held[end:]
        return self.held if last else "", calls


class TagsReader(_Numbered):
    """Calls stand between tags in other text, as Hermes and Qwen write them; space at the tags is no content."""

    inside = False

    def push(self, text: str, last: bool) -> tuple[str, Sequence[ToolCallPiece]]:
        """See `CallsReader.push`. What stands between tags and is no call of a known tool stays content."""
        self.held += text
        content, calls = "", list[ToolCallPiece]()
        while True:
            before, tag, behind = self.held.partition(CLOSES if self.inside else OPENS)
            if not tag and not (last and self.inside):
                break
            self.held = behind
            if not self.inside:
                content, self.inside = content + before.rstrip(), True
                continue
            self.inside, named = False, _named(before, self.tools)
            if named is None:
                content += f"{OPENS}{before}{tag}"
            else:
                calls.append(self.call(*named))
        return content + self._told(last), calls

    def _told(self, last: bool) -> str:
        """The content that may be told of what is held."""
        if self.inside:
            return ""
        if self.count:
            self.held = self.held.lstrip()
        told = self.held if last else self.held[: len(self.held) - begun(self.held, OPENS)].rstrip()
        self.held = self.held[len(told) :]
        return told


def calls_reader(kind: str, tools: Collection[str]) -> CallsReader:
    """The reader of a way to write calls: see `AnswerForm`."""
    return _READERS[kind](tools)


_READERS: Mapping[str, Callable[[Collection[str]], CallsReader]] = {
    "tags": TagsReader,
    "list": ListReader,
    "arguments": ArgumentsReader,
}


def _named(text: str, tools: Collection[str]) -> tuple[str, str] | None:
    """Name and arguments of a call; None where it is none, or of no known tool."""
    try:
        value = read_json(text.strip())
    except UserError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or value["name"] not in tools:
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    return (value["name"], _written(arguments)) if isinstance(arguments, dict) else None


def _written(arguments: Any) -> str:
    return json.dumps(arguments, ensure_ascii=False)

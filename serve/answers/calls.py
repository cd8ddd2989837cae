"""Calls of tools in the text of an answer, read while it is written: each is told once it is whole."""

import json
import re
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from json import JSONDecoder
from typing import Any, Protocol

from serve.answers.syntax import SYNTAXES, CallSyntax
from serve.answers.writing import begun

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

    def __init__(self, tools: Collection[str], syntax: CallSyntax) -> None:
        self.tools, self.syntax, self.count, self.held = tools, syntax, 0, ""

    def call(self, name: str, arguments: str) -> ToolCallPiece:
        """The next call."""
        self.count += 1
        unique, length = uuid.uuid4().hex, self.syntax.id_length
        return ToolCallPiece(self.count - 1, arguments, unique[:length] if length else f"call_{unique[:24]}", name)


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


class SyntaxReader(_Numbered):
    """Calls stand in other text, as a model writes them; space at their marks is no content."""

    def __init__(self, tools: Collection[str], syntax: CallSyntax) -> None:
        super().__init__(tools, syntax)
        self._inside = self._said = False
        self._opened = ""

    def push(self, text: str, last: bool) -> tuple[str, Sequence[ToolCallPiece]]:
        """See `CallsReader.push`. What stands at the place of calls and is none of a known tool stays content."""
        self.held += text
        content, calls = "", list[ToolCallPiece]()
        while True:
            if not self._inside and not self._open():
                break
            if not self._inside:
                before, _, self.held = self.held.partition(self._opened)
                content, self._inside = content + before.rstrip(), True
            inner, closed, behind = self._closed()
            if not closed and not last:
                break
            self.held, self._inside = behind, False
            found = self.syntax.read(inner)
            if found is None or any(name not in self.tools for name, _ in found):
                content += f"{self._opened}{inner}{closed}"
                self._said = True
                if not closed:
                    break
                continue
            calls += [self.call(name, _written(arguments)) for name, arguments in found]
        self._said |= bool(content.strip())
        return content + self._told(last), calls

    def _open(self) -> bool:
        """Whether calls begin in what is held: at a mark, or at the beginning of the answer without one."""
        self._opened = self.syntax.opens
        if self.syntax.opens in self.held:
            return True
        self._opened = ""
        bare = bool(self.syntax.bare) and not self._said and not self.count
        self._inside = bare and self.held.lstrip().startswith(self.syntax.bare)
        return self._inside

    def _closed(self) -> tuple[str, str, str]:
        """What stands between the marks, the closing one, and what follows; empty where it is not there yet."""
        return self.held.partition(self.syntax.closes) if self.syntax.closes else (self.held, "", "")

    def _told(self, last: bool) -> str:
        """The content that may be told of what is held."""
        if self._inside:
            return ""
        if self.count:
            self.held = self.held.lstrip()
        told = self.held if last else self.held[: len(self.held) - begun(self.held, self.syntax.opens)].rstrip()
        self.held = self.held[len(told) :]
        self._said |= bool(told)
        return told


def calls_reader(kind: str, tools: Collection[str], syntax: str) -> CallsReader:
    """The reader of a way to write calls: see `AnswerForm`."""
    return _READERS[kind](tools, SYNTAXES[syntax])


_READERS: Mapping[str, Callable[[Collection[str], CallSyntax], CallsReader]] = {
    "written": SyntaxReader,
    "list": ListReader,
    "arguments": ArgumentsReader,
}


def _written(arguments: Any) -> str:
    return json.dumps(arguments, ensure_ascii=False)

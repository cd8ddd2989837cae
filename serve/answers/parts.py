"""The text of a chat's answer taken apart while it is written: what it thought, what it says, what it calls."""

from dataclasses import dataclass
from typing import Literal

from serve.answers.calls import NoCalls, ToolCallPiece, calls_reader
from serve.answers.writing import begun

OPENS, CLOSES = "<think>", "</think>"
State = Literal["before", "inside", "closed", "behind"]


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """What an answer's text may hold. thinks: reasoning before the answer, in `<think>` tags.

    open: the prompt has opened them already. calls: how calls of tools are written: `written` as the model writes
    them in its syntax, `list` as JSON, `arguments` of one tool alone, or empty for no calls. tools: the names that may
    be called. syntax: see `serve.answers.syntax`.
    """

    thinks: bool = False
    open: bool = False
    calls: Literal["", "written", "list", "arguments"] = ""
    tools: tuple[str, ...] = ()
    syntax: str = "hermes"


PLAIN = AnswerForm()


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """What some text added to an answer."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[ToolCallPiece, ...] = ()


class AnswerParts:
    """Reads an answer's text piece by piece. All of it comes out, in one part or another, but tags and space at them.

    called: whether a call of a tool is in it.
    """

    def __init__(self, form: AnswerForm) -> None:
        self.form, self.called = form, False
        self._thinking = _Thinking(form)
        self._calls = calls_reader(form.calls, form.tools, form.syntax) if form.calls else NoCalls()

    def push(self, text: str, last: bool = False) -> AnswerDelta:
        """What this text adds. last: nothing follows, so nothing is held back."""
        reasoning, content = self._thinking.push(text, last)
        content, calls = self._calls.push(content, last)
        self.called |= bool(calls)
        return AnswerDelta(content, reasoning, tuple(calls))


class _Thinking:
    """Splits the reasoning at the beginning of an answer from what follows it."""

    def __init__(self, form: AnswerForm) -> None:
        self._state: State = "inside" if form.open else "before" if form.thinks else "behind"
        self._held, self._said = "", False

    def push(self, text: str, last: bool) -> tuple[str, str]:
        """Reasoning and content."""
        self._held += text
        reasoning = ""
        if self._state == "before":
            self._open(last)
        if self._state == "inside":
            reasoning = self._reasoning(last)
        if self._state == "closed":
            self._held = self._held.lstrip()
            self._state = "behind" if self._held else "closed"
        if self._state != "behind" and not last:
            return reasoning, ""
        content, self._held = self._held, ""
        return reasoning, content

    def _open(self, last: bool) -> None:
        """Look for the tag that opens the reasoning, which nothing but space may precede."""
        start = self._held.lstrip()
        if start.startswith(OPENS):
            self._state, self._held = "inside", start[len(OPENS) :]
        elif last or not OPENS.startswith(start):
            self._state = "behind"

    def _reasoning(self, last: bool) -> str:
        """The reasoning that may be told; the tag that ends it and the space around it are no part of it."""
        if not self._said:
            self._held = self._held.lstrip()
        found, tag, behind = self._held.partition(CLOSES)
        if tag or last:
            self._held, self._state = behind, "closed"
            return found.rstrip() if tag else found
        told = found[: len(found) - begun(found, CLOSES)].rstrip()
        self._held, self._said = found[len(told) :], self._said or bool(told)
        return told

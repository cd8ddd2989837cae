"""The text of an answer, token by token: which part was drafted, which the target wrote."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from utils.events import AnyRound, BeamRound

Decode = Callable[[Sequence[int]], str]
SpanKind = Literal["accepted", "rejected", "target"]

_UNFINISHED = "\ufffd"
# A character has four bytes at most. Where more tokens than that end in none, only the last three signs can become one.
_PATIENCE, _OPEN = 6, 3
# Ids that are decoded again at most while no end of a character comes.
_LONGEST_WINDOW = 32


class TokenText:
    """Turns token ids into text as they come, at a cost that does not grow with the text.

    Decodes a window of the last few ids and takes the difference, so that leading spaces come out as they
    do in the whole. A token that ends inside a character is held back until the character is complete.

    Example: the two halves of an emoji, then "!" -> "", "🙂", "!".
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._window: list[int] = []
        self._context = 0  # ids of the window that were told before what it is decoded for
        self._told = 0  # characters of the window's text that were told

    def push(self, token: int) -> str:
        """The text that this token completes; empty when it completes none."""
        self._window.append(token)
        text = self._decode(self._window)
        held = len(text) - len(text.rstrip(_UNFINISHED))
        if len(self._window) - self._context >= _PATIENCE:
            held = min(held, _OPEN)
        new, self._told = text[self._told : len(text) - held], max(self._told, len(text) - held)
        if not held:
            self._forget(self._context, 0)
            self._context = len(self._window)
        elif len(self._window) > _LONGEST_WINDOW:
            self._forget(len(self._window) - _LONGEST_WINDOW // 2, len(text) - self._told)
        return new

    def peek(self, token: int) -> str:
        """The text this token would have added here."""
        return self._decode([*self._window, token])[self._told :].rstrip(_UNFINISHED)

    def flush(self) -> str:
        """What is held back, as far as it can be shown; call it at the end."""
        text = self._decode(self._window)
        new, self._told = text[self._told :], len(text)
        return new

    def _forget(self, count: int, held: int) -> None:
        """Drop the first ids of the window, behind whose others `held` characters are not told yet."""
        del self._window[:count]
        self._context = 0
        self._told = len(self._decode(self._window)) - held


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of the answer: drafted and accepted, drafted and rejected, or the target's own."""

    text: str
    kind: SpanKind


@dataclass
class Answer:
    """The answer of one run: `old` rounds, and the `last` one with its rejected draft; `begun`: there is a round.

    Example: drafts " a", " b" with the second rejected and " c" recovered -> last = " a" accepted, " b"
    rejected, " c" target; the rejected one is dropped when the next round comes.
    """

    decode: Decode
    old: list[Span] = field(default_factory=list)
    last: list[Span] = field(default_factory=list)
    begun: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._text = TokenText(self.decode)

    def add(self, round: AnyRound) -> None:
        """Append one round."""
        self.begun = True
        self._settle()
        if isinstance(round, BeamRound):
            for token in round.emitted:
                self._append(self._text.push(token), "target")
            return
        for row in round.path:
            self._append(self._text.push(round.drafts[row]), "accepted")
        if round.rejected is not None:
            self._append(self._text.peek(round.drafts[round.rejected]), "rejected")
        if round.next_token is not None:
            self._append(self._text.push(round.next_token), "target")

    def finish(self) -> None:
        """No round follows."""
        self._settle()
        if rest := self._text.flush():
            self.old.append(Span(rest, "target"))

    @property
    def text(self) -> str:
        """All that was emitted so far."""
        return "".join(span.text for span in (*self.old, *self.last) if span.kind != "rejected")

    def _append(self, text: str, kind: SpanKind) -> None:
        if text:
            self.last.append(Span(text, kind))

    def _settle(self) -> None:
        self.old.extend(span for span in self.last if span.kind != "rejected")
        self.last = []

"""The text of an answer, token by token: which part was drafted, which the target wrote."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from utils.events import AnyRound, BeamRound

Decode = Callable[[Sequence[int]], str]
SpanKind = Literal["accepted", "rejected", "target"]

_UNFINISHED = "\ufffd"
# A character has four bytes at most; what is still no text after more tokens than that never becomes one.
_PATIENCE = 6


class TokenText:
    """Turns token ids into text as they come, at a cost that does not grow with the text.

    Decodes a window of the last few ids and takes the difference, so that leading spaces come out as they
    do in the whole. A token that ends inside a character is held back until the character is complete.

    Example: the two halves of an emoji, then "!" -> "", "🙂", "!".
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._window: list[int] = []
        self._shown = 0

    def push(self, token: int) -> str:
        """The text that this token completes; empty when it completes none."""
        text = self._new([*self._window, token])
        self._window.append(token)
        if text.endswith(_UNFINISHED) and len(self._window) - self._shown < _PATIENCE:
            return ""
        return self._advance(text)

    def peek(self, token: int) -> str:
        """The text this token would have added here."""
        return self._new([*self._window, token]).rstrip(_UNFINISHED)

    def flush(self) -> str:
        """What is held back, as far as it can be shown; call it at the end."""
        return self._advance(self._new(self._window))

    def _new(self, window: list[int]) -> str:
        shown = self._decode(window[: self._shown])
        return self._decode(window)[len(shown) :]

    def _advance(self, text: str) -> str:
        # The tokens just shown stay in the window as the context of the next ones.
        self._window = self._window[self._shown :]
        self._shown = len(self._window)
        return text


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

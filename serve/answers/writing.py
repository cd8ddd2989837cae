"""An answer while it is written: text that may be told already, and where a stop string ends it."""

from collections.abc import Callable, Collection, Sequence

from sampling.measure.answer import TokenText


class ResponseWriting:
    """Turns ids into text; what may still become a stop string, or is half a character, is held back.

    ends: ids that end the text and are no part of it. starts: of each id, how many characters stand before it.

    Example: stops ("END",), tokens "a", " E", "N", "D", "!" -> "a ", and it is `stopped` by the fourth.
    """

    def __init__(
        self, decode: Callable[[Sequence[int]], str], stops: Collection[str], ends: Collection[int] = ()
    ) -> None:
        self._tokens, self._stops, self._ends, self._held = TokenText(decode), tuple(stops), frozenset(ends), ""
        self._length = 0
        self.starts = list[int]()
        self.stopped = False

    def push(self, ids: Sequence[int]) -> int:
        """Take new ids; how many of them belong to the answer, whose last one may complete a stop string."""
        for count, token in enumerate(ids, start=1):
            self.starts.append(self._length)
            ended = token in self._ends
            added = self._tokens.flush() if ended else self._tokens.push(token)
            self._held, self._length = self._held + added, self._length + len(added)
            if self._cut() or ended:
                self.stopped = True
                return count
        return len(ids)

    def told(self) -> str:
        """The text that may be told now."""
        keep = 0 if self.stopped else max((begun(self._held, stop) for stop in self._stops), default=0)
        text, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return text

    def rest(self) -> str:
        """All that is left, at the end."""
        if not self.stopped:
            self._held += self._tokens.flush()
            self._cut()
        text, self._held = self._held, ""
        return text

    def _cut(self) -> bool:
        """End the text before the first stop string in it, where there is one."""
        places = [place for stop in self._stops if (place := self._held.find(stop)) >= 0]
        if places:
            self._held, self.stopped = self._held[: min(places)], True
        return self.stopped


def begun(text: str, stop: str) -> int:
    """How many of the last characters may be the beginning of a stop string, which is not complete."""
    return next((count for count in range(min(len(stop) - 1, len(text)), 0, -1) if stop.startswith(text[-count:])), 0)

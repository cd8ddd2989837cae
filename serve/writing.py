"""An answer while it is written: text that may be told already, and where a stop string ends it."""

from collections.abc import Callable, Collection, Sequence

from sampling.measure.answer import TokenText


class ResponseWriting:
    """Turns ids into text; what may still become a stop string, or is half a character, is held back.

    Example: stops ("END",), tokens "a", " E", "N", "D", "!" -> "a ", and it is `stopped` by the fourth.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stops: Collection[str]) -> None:
        self._tokens, self._stops, self._held = TokenText(decode), tuple(stops), ""
        self.stopped = False

    def push(self, ids: Sequence[int]) -> int:
        """Take new ids; how many of them belong to the answer, whose last one may complete a stop string."""
        for count, token in enumerate(ids, start=1):
            self._held += self._tokens.push(token)
            if self._cut():
                return count
        return len(ids)

    def told(self) -> str:
        """The text that may be told now."""
        keep = 0 if self.stopped else max((_begun(self._held, stop) for stop in self._stops), default=0)
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


def _begun(text: str, stop: str) -> int:
    """How many of the last characters may be the beginning of a stop string."""
    return next((count for count in range(min(len(stop) - 1, len(text)), 0, -1) if stop.startswith(text[-count:])), 0)

"""Whether texts that share their rounds should draft at all, by the tokens per second that were measured of both."""

import math
from collections.abc import Generator

# Drafted rounds before the first comparison; rounds between two comparisons with the same outcome, doubled each time.
_FIRST, _STRETCH, _LONGEST = 1, 32, 128
# Pairs of rounds in a comparison.
_LEAST, _MOST = 3, 8
# Standard deviations over means: of a text's tokens of a round with drafts, and of the seconds of a round.
_TOKENS, _SECONDS = 0.5, 0.1
_PART = 1e-6


class _Played:
    """A round of all texts: tokens, each weighed with the priced seconds of a plain one, and seconds."""

    def __init__(self) -> None:
        self.gained_s = self.seconds = 0.0
        self.texts = 0

    def add(self, gained_s: float, seconds: float) -> None:
        self.gained_s, self.seconds, self.texts = self.gained_s + gained_s, self.seconds + seconds, self.texts + 1


class Goodput:
    """Turns drafting off for all texts of a batch while plain rounds bring more tokens per second, and on again.

    A text's own estimate cannot tell: the others draft meanwhile, and what they share is divided by a guess. So rounds
    of both kinds are played in turn and timed, as in closed-loop control of goodput (arXiv 2406.14066), until one is
    better by more than a standard error. It is kept for a while, and for twice as long if the next comparison has the
    same outcome. drafting: whether the texts may draft in their next round.
    """

    def __init__(self) -> None:
        self._schedule = self._compared()
        self.drafting = next(self._schedule)
        self._round, self._played = _Played(), 0.0

    def learn(self, drafted: bool, tokens: float, plain_s: float, seconds: float, texts: int) -> None:
        """Learn from one text's round, and from its share of the seconds.

        drafted: `drafting` when it began. plain_s: the priced seconds of a plain round of one of so many texts.
        """
        if drafted is not self.drafting:  # it ended behind the turn
            return
        self._round.add(tokens * plain_s, seconds)
        self._played += 1.0 / texts
        if self._played > 1.0 - _PART:
            self.drafting = self._schedule.send(self._round)
            self._round, self._played = _Played(), 0.0

    @staticmethod
    def _compared() -> Generator[bool, _Played, None]:
        """Whether the next round drafts; it receives what that brought."""
        better, stretch = True, _FIRST
        while True:
            for _ in range(stretch):
                yield better
            yield True  # it is not counted, for drafters read what they have missed
            drafted, plain = list[_Played](), list[_Played]()
            while not _decided(drafted, plain):
                plain.append((yield False))
                drafted.append((yield True))
            before, better = better, _ratio(drafted, plain) > 1.0
            again = better is before and stretch > _FIRST
            stretch = min(2 * stretch, _LONGEST) if again else _STRETCH


def _ratio(drafted: list[_Played], plain: list[_Played]) -> float:
    """Tokens per second with drafts, over those without."""
    with_drafts, without = (
        sum(one.gained_s for one in rounds) / sum(one.seconds for one in rounds) for rounds in (drafted, plain)
    )
    return with_drafts / without


def _decided(drafted: list[_Played], plain: list[_Played]) -> bool:
    """Whether the two differ by more than a standard error, or further rounds would cost more than they tell."""
    if len(drafted) < _LEAST:
        return False
    error = math.hypot(_TOKENS / math.sqrt(sum(one.texts for one in drafted)), _SECONDS * math.sqrt(2 / len(drafted)))
    return len(drafted) >= _MOST or abs(math.log(_ratio(drafted, plain))) > error

"""What a round is expected to bring and to take, and how much exploring may cost."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from utils.events import Round


@dataclass(frozen=True, slots=True)
class ExpectedRound:
    """Tokens that a round is expected to emit, and the seconds that it is expected to take."""

    tokens: float
    seconds: float

    @classmethod
    def of(cls, round: Round) -> "ExpectedRound":
        """What a round that is over brought and took."""
        return cls(float(len(round.emitted)), round.draft_s + round.verify_s + round.other_s)

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds

    def loss(self, rate: float) -> float:
        """Seconds that the round takes longer than its tokens would at this rate; never below 0."""
        return max(0.0, self.seconds - self.tokens / rate)


@dataclass(frozen=True, slots=True)
class TruncatedProposal:
    """How many drafts of a proposal are kept, what is then expected, and the survival of each, kept or not."""

    count: int
    expected: ExpectedRound
    survival: tuple[float, ...]


def expected_tokens(survival: Iterable[float]) -> float:
    """Tokens that a round emits on average: one of the target's own, and each draft as often as it is accepted.

    survival: that a draft and all above it are right. It holds for a tree as for a chain: of the drafts at one place
    at most one is right with all above it, so that the accepted path is as long as there are such drafts.

    Example: a chain .8, .4 brings 2.2; with a sibling of .1 beside the first draft 2.3.
    """
    return 1.0 + sum(survival)


def best_length(
    survival: Sequence[float], seconds: Callable[[int], float], tokens: float = 1.0
) -> tuple[int, ExpectedRound]:
    """How many of some drafts to verify, so that tokens over seconds are the most, the fewest of equals.

    survival: the chance that a draft is reached and accepted, draft after draft. seconds: a round with so many. tokens:
    what the round brings without them.

    Example: survival .8, .4, .1 at 20, 21, 22 and 26 ms: 1/20, 1.8/21, 2.2/22 and 2.3/26 -> 2 drafts.
    """
    best, best_s = 0, seconds(0)
    most = expected = tokens
    for count, chance in enumerate(survival, 1):
        expected += chance
        taken = seconds(count)
        if expected * best_s > most * taken:
            best, best_s, most = count, taken, expected
    return best, ExpectedRound(most, best_s)


@dataclass(slots=True)
class ExplorationBudget:
    """Seconds that may be lost by trying what seems to be worse: a share of all that passes, saved up and spent.

    What a trial lost is charged when it is known, so that all trials together never lose more than the share and what
    the last one lost.

    Example: share .01, rounds of 20 ms: a trial that is expected to lose 2 ms is played after ten rounds.
    """

    share: float
    saved: float = 0.0
    rate: float | None = None

    def tries(self, gain: ExpectedRound, rate: float) -> bool:
        """Whether the next round is a trial, expected to bring this, where tokens come at this rate otherwise."""
        if self.share and self.saved >= gain.loss(rate):
            self.rate = rate
            return True
        return False

    def passed(self, gain: ExpectedRound) -> None:
        """A round is over that brought this."""
        self.saved += self.share * gain.seconds
        if self.rate is not None:
            self.saved -= gain.loss(self.rate)
            self.rate = None

"""Expected tokens and seconds of a round, and the budget for exploration."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from egag.rollback_price import TakenBack
from utils.events import Round


@dataclass(frozen=True, slots=True)
class ExpectedRound:
    """The expected number of emitted tokens of a round, and its expected seconds."""

    tokens: float
    seconds: float

    @classmethod
    def of(cls, round: Round) -> "ExpectedRound":
        """The tokens and seconds of a finished round."""
        return cls(float(len(round.emitted)), round.draft_s + round.verify_s + round.other_s)

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds

    def loss(self, rate: float) -> float:
        """The seconds that the round takes beyond those of its tokens at this rate; at least 0."""
        return max(0.0, self.seconds - self.tokens / rate)


@dataclass(frozen=True, slots=True)
class TruncatedProposal:
    """The cut of a proposal: the number of kept drafts, the expected round, and the survival of all drafts."""

    count: int
    expected: ExpectedRound
    survival: tuple[float, ...]


def expected_tokens(survival: Iterable[float]) -> float:
    """The mean number of emitted tokens of a round: one token of the target, and each draft with its survival.

    survival: the probability that a draft and all its ancestors are accepted. The sum holds for chains and trees: at
    most one draft per depth is accepted with all its ancestors, so the length of the accepted path is the number of
    accepted drafts.

    Example: a chain .8, .4 gives 2.2; with a sibling of .1 beside the first draft 2.3.
    """
    return 1.0 + sum(survival)


def best_length(
    survival: Sequence[float],
    seconds: Callable[[int], float],
    tokens: float = 1.0,
    rollback_s: Callable[[TakenBack], float] | None = None,
) -> tuple[int, ExpectedRound]:
    """The number of drafts with the most expected tokens per second, the smallest on a tie, and its expected round.

    survival: the probability that each draft is reached and accepted. seconds: the time of a round by its number of
    drafts. tokens: the tokens of the round without drafts. rollback_s: the time of taking tokens back, for a chain on a
    target where that is not free.

    Example: survival .8, .4, .1 at 20, 21, 22 and 26 ms: 1/20, 1.8/21, 2.2/22 and 2.3/26 -> 2 drafts.
    """
    best, best_s = 0, seconds(0)
    most = expected = tokens
    for count, chance in enumerate(survival, 1):
        expected += chance
        taken = seconds(count)
        if rollback_s is not None:
            taken += rollback_s(TakenBack.of_chain(survival[:count]))
        if expected * best_s > most * taken:
            best, best_s, most = count, taken, expected
    return best, ExpectedRound(most, best_s)


@dataclass(slots=True)
class ExplorationBudget:
    """The seconds that trials of seemingly worse choices may lose: a share of all time, saved and spent.

    The loss of a trial is charged afterwards. All trials together thus lose at most the share plus the loss of the last
    trial.

    Example: share .01, rounds of 20 ms: a trial with an expected loss of 2 ms is played after ten rounds.
    """

    share: float
    saved: float = 0.0
    rate: float | None = None

    def tries(self, gain: ExpectedRound, rate: float) -> bool:
        """Whether the next round is a trial. gain: its expected round.

        rate: the tokens per second of the usual choice.
        """
        if self.share and self.saved >= gain.loss(rate):
            self.rate = rate
            return True
        return False

    def passed(self, gain: ExpectedRound) -> None:
        """Count a finished round. gain: its tokens and seconds."""
        self.saved += self.share * gain.seconds
        if self.rate is not None:
            self.saved -= gain.loss(self.rate)
            self.rate = None

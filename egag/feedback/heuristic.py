"""The draft-length schedule of transformers (`num_assistant_tokens_schedule="heuristic"`)."""

from egag.length_rule import LengthRule
from utils.events import Round
from utils.parameter import MOST_DRAFTS


class HeuristicGamma(LengthRule):
    """Two more drafts after a fully accepted round, one fewer (at least 1) after any other.

    A round without drafts, for lack of room or of a match, changes nothing.
    """

    def __init__(self, heuristic_gamma: int = 5) -> None:
        self.start = heuristic_gamma
        self.begin()

    def begin(self) -> None:
        self.gamma = self.start

    def update(self, round: Round) -> None:
        if round.drafts:
            longer = min(self.gamma + 2, MOST_DRAFTS)
            self.gamma = longer if round.accepted == round.depth else max(1, self.gamma - 1)

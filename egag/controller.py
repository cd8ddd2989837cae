"""The contract of a draft-length rule, and the simplest rule: a fixed gamma.

A rule may stop before a token is drawn or after one, which is then kept. No rule drops a token already
drawn: that would bias the output's distribution. Rules read only the draft side of the current round; `update`
tells them the verdict and the times of the round before the next one starts.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from egag.belief import Belief, Token
from egag.price import ASSUMED, Price
from utils.parameter import integer

if TYPE_CHECKING:
    from sampling.events import Round

_GAMMA = integer("gamma", None, "", minimum=0)


class GammaController:
    """How many tokens to draft this round.

    `gamma` is this round's limit: the rule sets it in `begin`, `update`, or in `before` when
    `drafted == 0`, where the distribution of the first draft is at hand.
    """

    gamma: int
    price: Price = ASSUMED

    @classmethod
    def build(cls, pair: Any, values: Mapping[str, Any]) -> Self:
        """The rule with the given parameters; it needs no model."""
        return cls(**values)

    def priced(self, price: Price) -> None:
        """What a round costs here; told before the first round, where it was measured."""
        self.price = price

    def begin(self) -> None:
        """Forget everything about earlier prompts."""

    def before(self, drafted: int, belief: Belief | None) -> bool:
        """Whether to draw one more draft, given the drafter's belief of it.

        `belief` is None for a drafter that has no distribution (n-grams).
        """
        return drafted < self.gamma

    def after(self, drafted: int, belief: Belief | None, token: Token | None) -> bool:
        """Whether to go on after the draft `token` (0-d) was drawn by this `belief`; it is kept anyway.

        Asked before the drafter pays for its next forward; `drafted` counts this token.
        """
        return drafted < self.gamma

    def keep(self, chances: Sequence[float], match: int = 0) -> int:
        """How many drafts of a proposal to have verified, of those that were not drawn: copies, and nodes of trees.

        chances: that a draft and all before it are right, as the drafter tells it, most likely first. match: how many
        tokens of the text the copy was found by. What is proposed here follows from the text alone, so that leaving
        the end of it out biases nothing.
        """
        return len(chances)

    def update(self, round: "Round") -> None:
        """Learn from a judged round and the seconds it took; what that costs counts as drafting of the next one."""

    def adopt(self, earlier: "GammaController") -> None:
        """Go on with what `earlier`, of the same kind, remembers of earlier prompts."""

    def memory(self) -> str:
        """What is kept of earlier prompts, in words; empty where nothing is."""
        return ""


class FixedGamma(GammaController):
    """The same gamma in every round; 0 is plain autoregression. Raises `UserError` for one below 0."""

    def __init__(self, gamma: int = 4) -> None:
        self.gamma = _GAMMA.checked(gamma)


class DraftBudget(GammaController):
    """The same budget in every round, for drafters that copy: drafts that cost nothing may be many."""

    def __init__(self, num_speculative_tokens: int = 10) -> None:
        self.gamma = num_speculative_tokens

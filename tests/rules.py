"""Beliefs and rounds that are written down, for tests of draft-length rules."""

from collections.abc import Sequence
from dataclasses import dataclass

from egag.draft_distribution import Token
from egag.length_rule import LengthRule
from utils.events import Round


@dataclass(frozen=True)
class Told:
    """A belief whose figures are given: entropy in nats, the probability of the top token and of the drawn one."""

    entropy: float = 0.0
    top: float = 1.0
    drawn: float = 1.0
    size: int = 64
    acceptance: float | None = None

    def chance(self, token: Token) -> float:
        return self.drawn


def judged(
    drafted: int, accepted: int, gamma: int = 4, seconds: float = 0.0, parents: tuple[int, ...] | None = None
) -> Round:
    """A round with so many drafts, of which the first were accepted, and all its seconds in the forward."""
    flat = (0.5,) * drafted
    path = tuple(range(accepted))
    return Round(0, 9, gamma, tuple(range(drafted)), parents, flat, flat, path, 1, None, 64, 0.0, seconds)


def lengths(rule: LengthRule, verdicts: Sequence[tuple[int, int]]) -> list[int]:
    """gamma after each round of (drafted, accepted)."""
    found = []
    for drafted, accepted in verdicts:
        rule.update(judged(drafted, accepted, rule.gamma))
        found.append(rule.gamma)
    return found


def drafts(rule: LengthRule, beliefs: Sequence[Told | None]) -> int:
    """How many drafts a rule has drawn from these beliefs, one after the other, as a drafter asks."""
    drawn = 0
    for distribution in beliefs:
        if not rule.before(drawn, distribution):
            break
        drawn += 1
        if not rule.after(drawn, distribution, None if distribution is None else 0):
            break
    return drawn

"""Acceptance read off a text: what drafts at each of its places would have met."""

from collections.abc import Sequence

from sampling.forward.tree import depths
from utils.events import Round

# So many judged drafts make a share.
_ENOUGH = 8


def judged(rounds: Sequence[Round]) -> list[tuple[int, int]]:
    """(accepted, tested) of the drafts of each round of one token, had they been judged: by the text that followed.

    Example: rounds that emitted 5, 7 and 9, the first with the drafts 5 8 -> (1, 2): 5 was right, 8 was not.
    """
    text = [token for round in rounds for token in round.emitted]
    shares_judged = []
    for place, round in enumerate(rounds):
        known = min(len(round.drafts), len(text) - place)
        passed = _passed(round, text[place : place + known], known)
        shares_judged.append((passed, min(passed + 1, known)))
    return shares_judged


def shares(verdicts: Sequence[tuple[int, int]]) -> tuple[float, ...]:
    """Accepted of tested at position 1, 2, ..., as far as enough were tested."""
    each_share: list[float] = []
    while (tested := sum(least > len(each_share) for _, least in verdicts)) >= _ENOUGH:
        each_share.append(sum(most > len(each_share) for most, _ in verdicts) / tested)
    return tuple(each_share)


def tokens_per_round(rounds: Sequence[Round], nodes: int, levels: int) -> float:
    """The mean tokens of rounds with such drafts, each cut to its first nodes of so many levels; 1 without any.

    rounds: of one text, a token each. Those count that have so many levels, and a text behind them to judge them all.
    """
    text = [token for round in rounds for token in round.emitted]
    passed = [
        _passed(round, text[place : place + levels], nodes)
        for place, round in enumerate(rounds)
        if place + levels <= len(text) and levels_of(round) >= levels
    ]
    return 1.0 + sum(passed) / max(1, len(passed))


def levels_of(round: Round) -> int:
    """Levels of a round's drafts: as many as there are in a chain."""
    return len(round.drafts) if round.parents is None else max(depths(round.parents), default=0)


def _passed(round: Round, text: Sequence[int], nodes: int) -> int:
    """How many of a round's first drafts the text goes on with.

    Example: drafts 5 7 9 with parents -1 -1 1 before the text 7 9: 2, and 1 of the first two.
    """
    drafts, above, row = round.drafts[:nodes], round.parents, -1
    parents = range(-1, len(drafts) - 1) if above is None else above
    for passed, token in enumerate(text):
        below = [at for at in range(row + 1, len(drafts)) if parents[at] == row and drafts[at] == token]
        if not below:
            return passed
        row = below[0]
    return len(text)

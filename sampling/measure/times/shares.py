"""Acceptance read off a text: what drafts at each of its places would have met."""

from collections.abc import Sequence

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
        drafts = round.drafts[: len(text) - place]
        wrong = next((at for at, token in enumerate(drafts) if token != text[place + at]), None)
        shares_judged.append((len(drafts), len(drafts)) if wrong is None else (wrong, wrong + 1))
    return shares_judged


def shares(verdicts: Sequence[tuple[int, int]]) -> tuple[float, ...]:
    """Accepted of tested at position 1, 2, ..., as far as enough were tested."""
    each_share: list[float] = []
    while (tested := sum(least > len(each_share) for _, least in verdicts)) >= _ENOUGH:
        each_share.append(sum(most > len(each_share) for most, _ in verdicts) / tested)
    return tuple(each_share)

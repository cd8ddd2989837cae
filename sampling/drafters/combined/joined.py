"""Joins two proposals of point masses to one tree: a model's drafts and a copy."""

from collections.abc import Callable, Sequence

from torch.nn import functional as F

from egag.expected_round import best_length
from sampling.proposal import Proposal
from utils.device.sent import sent


def joined(
    drafted: Proposal,
    survival: Sequence[float],
    copy: Sequence[int],
    copied: Sequence[float],
    seconds: Callable[[int], float],
) -> tuple[Proposal, tuple[int, ...]]:
    """`drafted` with the profitable part of the copy, and the rows of the copy's drafts in the tree.

    survival, copied: for each draft, the probability that it is reached and accepted. seconds: the time of a round by
    its number of drafts. The copy shares the rows of `drafted` while both agree. After the first difference the copy
    has the probability that `drafted` leaves.

    Example: drafted a -> b and the copy a c d: rows a 0, b 1, c 2 behind a, d 3; the copy's rows are (0, 2, 3).
    """
    tokens, parents = drafted.tokens.tolist(), list(drafted.parent_rows)
    row_of = {(parent, token): row for row, (parent, token) in enumerate(zip(parents, tokens, strict=True))}
    at, rows, shared = -1, list[int](), 0
    while shared < len(copy) and (at, copy[shared]) in row_of:
        at = row_of[at, copy[shared]]
        rows.append(at)
        shared += 1
    left = (1.0 if at < 0 else _at(survival, at)) - sum(_at(survival, row) for row, p in enumerate(parents) if p == at)
    more = copied[shared:]
    scale = max(0.0, min(1.0, left / more[0])) if more and more[0] > 0.0 else 0.0
    count, _ = best_length(
        [scale * factor for factor in more], lambda number: seconds(len(tokens) + number), 1.0 + sum(survival)
    )
    for token in copy[shared : shared + count]:
        rows.append(len(tokens))
        tokens.append(token)
        parents.append(at)
        at = rows[-1]
    if not count:
        return drafted, tuple(rows)
    ids = sent(tokens, drafted.tokens.device)
    chances = None if drafted.point_mass_check is None else F.pad(drafted.point_mass_check, (0, count), value=1.0)
    return Proposal(ids, tuple(parents), None, drafted.first_entropy, chances), tuple(rows)


def _at(survival: Sequence[float], row: int) -> float:
    """The survival of a draft; 0 for a draft without an estimate."""
    return survival[row] if row < len(survival) else 0.0

"""What engines count in their own ways, in the workbench's."""

from collections.abc import Sequence


def with_draftless(hist: Sequence[int], rounds: int) -> tuple[int, ...]:
    """A histogram of the rounds with drafts as one of all rounds: those without have accepted none.

    Counts behind the last that is any are left out, as ours have none. Example: (3, 2, 0) of 7 rounds -> (5, 2).
    """
    first, *rest = [*hist] or [0]
    while rest and not rest[-1]:
        rest.pop()
    return first + max(0, rounds - sum(hist)), *rest

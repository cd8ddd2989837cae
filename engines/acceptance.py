"""What engines count in their own ways, in the workbench's."""

from collections.abc import Sequence

from utils.events import Acceptance


def with_draftless(hist: Sequence[int], rounds: int) -> tuple[int, ...]:
    """A histogram of the rounds with drafts as one of all rounds: those without have accepted none.

    Counts behind the last that is any are left out, as ours have none. Example: (3, 2, 0) of 7 rounds -> (5, 2).
    """
    first, *rest = [*hist] or [0]
    while rest and not rest[-1]:
        rest.pop()
    return first + max(0, rounds - sum(hist)), *rest


def sound(acceptance: Acceptance, new_tokens: int) -> Acceptance:
    """The acceptance. Raises `ArithmeticError` for counts that no answer of so many tokens can have."""
    counts = {name: getattr(acceptance, name) for name in ("rounds", "drafted", "accepted")}
    of_each: dict[str, list[int]] = {name: [] if count is None else [count] for name, count in counts.items()}
    of_each["hist"] = [*(acceptance.hist or ())]
    of_each["by_round"] = [count for both in acceptance.by_round or () for count in both]
    for name, values in of_each.items():
        for value in values:
            if type(value) is not int or value < 0:
                raise ArithmeticError(f"{name}: {value!r} is no count")
    rounds, drafted, accepted = (counts[name] or 0 for name in ("rounds", "drafted", "accepted"))
    if accepted > (new_tokens if counts["drafted"] is None else min(drafted, new_tokens)):
        raise ArithmeticError(f"accepted: {accepted} of {drafted} drafts in {new_tokens} tokens")
    if max(rounds, sum(of_each["hist"])) > new_tokens + 1:
        raise ArithmeticError(f"rounds: {max(rounds, sum(of_each['hist']))} in {new_tokens} tokens")
    return acceptance

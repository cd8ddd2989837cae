"""What a verifier accepts on average of drafts that were judged by another: from p and q alone, under sampling too."""

from collections.abc import Callable, Sequence

from utils.errors import UnknownName

Pass = Callable[[float, float], float]

STRATEGIES: dict[str, Pass] = {
    "rejection": lambda p, q: min(1.0, p / q) if q > 0.0 else 0.0,
    "target_match": lambda p, q: p,
}
"""The chance that a judged draft passes, by p and q of it."""


def expected_accepted(
    strategy: str, p: Sequence[float], q: Sequence[float], parents: Sequence[int] | None = None
) -> float:
    """Drafts of a round that a strategy accepts on average over its own coins.

    p, q: of each draft, processed. parents: of a tree, whose nodes are point masses: a node is accepted with
    probability p under both strategies. Of a chain each draft is reached when all before it have passed.

    Example: rejection, p (0.6, 0.2), q (0.5, 0.4) -> 1 + 1 * 0.5 = 1.5; target_match 0.6 + 0.6 * 0.2 = 0.72.
    Raises `UnknownName` for a strategy of which p and q do not tell what it accepts.
    """
    if strategy not in STRATEGIES:
        raise UnknownName("verify strategy to expect acceptance of", strategy, STRATEGIES)
    passes = STRATEGIES[strategy if parents is None else "target_match"]
    reached: list[float] = []
    for row, (p_x, q_x) in enumerate(zip(p, q, strict=True)):
        above = row - 1 if parents is None else parents[row]
        reached.append((1.0 if above < 0 else reached[above]) * passes(p_x, q_x))
    return sum(reached)

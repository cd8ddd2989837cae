"""Where two greedy outputs part, and whether rounding explains it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from sampling.forward.noise_floor import NoiseFloor

Judgement = Literal["exact", "tie", "BUG"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first index at which the outputs differ (None: they are equal), and the verdict on it.

    margin: difference of the two candidates' logits at that place; noise: how much those two logits move
    between two ways to compute the same row, which is what the dtype can resolve there.
    """

    verdict: Judgement
    index: int | None = None
    margin: float | None = None
    noise: float | None = None


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Index of the first differing id; a proper prefix differs where it ends. None when equal."""
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return index
    return None if len(a) == len(b) else min(len(a), len(b))


def judge(
    ask: Callable[[Sequence[int]], NoiseFloor],
    reference: Sequence[int],
    output: Sequence[int],
    batch_invariant: bool = False,
) -> Divergence:
    """Compare a greedy output with the reference's and, where they part, ask the target again.

    ask: the target's row behind what was said. The row at the parting is computed twice: a tie is
    when in one of them neither candidate is further below the best token than twice the larger of the
    measured noise and the spacing of the dtype's numbers at that size. Anything else is a BUG, and so is any difference
    on a target that is batch-invariant.
    """
    index = first_difference(reference, output)
    if index is None:
        return Divergence("exact")
    if index in (len(reference), len(output)):
        return Divergence("BUG", index)
    row, pair = ask(reference[:index]), [reference[index], output[index]]
    noise = float((row.block[pair] - row.stepped[pair]).abs().max())
    spacing = row.eps * float(row.block[pair].abs().max())
    margin = min(abs(float(logits[pair[0]] - logits[pair[1]])) for logits in (row.block, row.stepped))
    behind = min(float(logits.max() - logits[pair].min()) for logits in (row.block, row.stepped))
    tie = not batch_invariant and behind <= 2 * max(noise, spacing)
    return Divergence("tie" if tie else "BUG", index, margin, noise)

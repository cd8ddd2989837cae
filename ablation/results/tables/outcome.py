"""The sentences under a comparison of one run each: which method was the fastest and by how much, or that none was."""

from collections.abc import Iterator, Sequence

from ablation.results.tables.comparison import BUG, STOPPED, ComparisonLine

NOISE = 0.05
"""Ratios of one run each that differ by less are not told apart: a convention, as one run has no test."""


def outcome(lines: Sequence[ComparisonLine]) -> list[str]:
    """What won; then which ratios say nothing. Empty where nothing is compared with AR."""
    compared = [line for line in lines if not line.reference and line.speedup is not None]
    idle = [line for line in compared if _accepted_nothing(line)]
    racing = [line for line in compared if line not in idle and line.lossless and _whole(line)]
    ranked = sorted(racing, key=_speedup, reverse=True)
    return [*_winner(ranked), *(_noise(line) for line in idle)]


def _winner(ranked: Sequence[ComparisonLine]) -> Iterator[str]:
    if not ranked:
        return
    best = _speedup(ranked[0])
    if best <= 1 + NOISE:
        known = "slower than AR" if best < 1 - NOISE else "as fast as AR, within the noise of one run"
        yield f"No method was faster than AR here: the best, {ranked[0].title} at {best:.2f}x, is {known}"
        return
    close = [line for line in ranked if best <= _speedup(line) * (1 + NOISE)]
    named = " and ".join(f"{line.title} at {_speedup(line):.2f}x AR" for line in close)
    if len(close) > 1:
        yield f"Fastest here: {named}; one run cannot tell them apart"
    elif len(ranked) > 1:
        yield f"Fastest here: {named}; next is {ranked[1].title} at {_speedup(ranked[1]):.2f}x"
    else:
        yield f"Fastest here: {named}"


def _noise(line: ComparisonLine) -> str:
    ratio = _speedup(line)
    cause = "noise" if ratio > 1 else "what drafting for nothing costs, and noise"
    return f"{line.title}: no draft was accepted, so its {ratio:.2f}x is {cause}"


def _accepted_nothing(line: ComparisonLine) -> bool:
    return not line.acceptance_rate and line.tokens_per_round is not None


def _whole(line: ComparisonLine) -> bool:
    """Whether it came to its end, and its output is right: else its speed counts for nothing."""
    return not any(word.startswith((BUG, STOPPED)) for word, _ in line.output)


def _speedup(line: ComparisonLine) -> float:
    assert line.speedup is not None
    return line.speedup

"""Who won: what one run each may claim."""

from dataclasses import replace

import pytest

from ablation.results.tables.comparison import REFERENCE_WORDS, ComparisonLine
from ablation.results.tables.outcome import outcome

AR = ComparisonLine(title="AR (target)", reference=True, speedup=1.0, output=(REFERENCE_WORDS,), lossless=True)


def line(title: str, speedup: float | None, accepted: float | None = 0.6) -> ComparisonLine:
    return ComparisonLine(
        title=title,
        lossless=True,
        speedup=speedup,
        acceptance_rate=accepted,
        tokens_per_round=1 + (accepted or 0),
        output=(("exact", "green"),),
    )


@pytest.mark.parametrize(
    ("speedups", "said"),
    [
        ((1.42,), "Fastest here: A at 1.42x AR"),
        ((1.10, 1.42), "Fastest here: B at 1.42x AR; next is A at 1.10x"),
        ((1.42, 1.40, 1.1), "Fastest here: A at 1.42x AR and B at 1.40x AR; one run cannot tell them apart"),
        ((1.04, 0.7), "No method was faster than AR here: the best, A at 1.04x, is as fast as AR, within the noise"),
        ((0.5, 0.7), "No method was faster than AR here: the best, B at 0.70x, is slower than AR"),
    ],
)
def test_the_fastest_is_named_with_what_one_run_may_claim(speedups: tuple[float, ...], said: str) -> None:
    lines = [line(title, speedup) for title, speedup in zip("ABC", speedups, strict=False)]
    (sentence,) = outcome([AR, *lines])
    assert sentence.startswith(said)


@pytest.mark.parametrize("accepted", [0.0, None])
def test_a_ratio_without_an_accepted_draft_is_noise_and_never_wins(accepted: float | None) -> None:
    said = outcome([AR, line("A", 1.76, accepted), line("B", 1.2)])
    assert said == ["Fastest here: B at 1.20x AR", "A: no draft was accepted, so its 1.76x is noise"]


@pytest.mark.parametrize(
    "wrong",
    [
        replace(line("A", 9.0), output=(("BUG at 3", "bold red"),)),
        replace(line("A", 9.0), output=(("stopped", "yellow"),)),
        replace(line("A", 9.0), lossless=False),
        replace(line("A", 9.0), lossless=None),
    ],
    ids=["bug", "stopped", "lossy", "other output"],
)
def test_what_is_wrong_unfinished_or_another_output_never_wins(wrong: ComparisonLine) -> None:
    assert outcome([AR, wrong, line("B", 1.2)]) == ["Fastest here: B at 1.20x AR"]


@pytest.mark.parametrize("lines", [(), (AR,), (line("A", None),)])
def test_nothing_is_said_where_nothing_is_compared(lines: tuple[ComparisonLine, ...]) -> None:
    assert outcome(lines) == []

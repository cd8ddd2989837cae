"""The comparison table, from accounts made by hand."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from repl.screen.tables import TableRow, comparison_table, notes
from sampling.measure.divergence import Divergence
from sampling.measure.ledger import Ledger
from sampling.measure.metrics import RunMetrics
from sampling.methods.part import unless

AR = RunMetrics(output_ids=[1] * 20, finish_reason="length", verify_s=2.0, rounds=20)
SD = RunMetrics(
    output_ids=[1] * 20,
    finish_reason="length",
    draft_s=0.5,
    verify_s=0.5,
    rounds=8,
    drafted=32,
    tested=18,
    accepted=12,
)
STOPPED = RunMetrics(output_ids=[1] * 5, verify_s=1.0, rounds=5)
REFERENCE = TableRow("AR", AR, 1.0, None, reference=True)


def _draw(*lines: TableRow, width: int = 120) -> list[str]:
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(comparison_table(lines, console))
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def _row(line: TableRow) -> list[str]:
    heading, _, row = _draw(REFERENCE, line)
    assert heading.split() == [
        "method",
        "tokens",
        "tok/s",
        "speedup",
        "accepted",
        "alpha",
        "tok/round",
        "c",
        "output",
    ]
    return row.split()


def test_a_fast_lossless_row() -> None:
    row = _row(TableRow("SD", SD, 2.0, 0.31, Divergence("exact")))
    assert row == ["SD", "20", "20.0", "2.00x", "38%", "0.67", "2.50", "0.31", "exact"]


def test_unknown_is_a_dash_and_never_zero() -> None:
    reference = _draw(REFERENCE)[1]
    assert reference.split() == ["AR", "20", "10.0", "1.00x", "-", "-", "1.00", "-", "reference"]


def test_a_rate_that_is_zero_is_zero() -> None:
    none = RunMetrics(output_ids=[1] * 4, finish_reason="stop", verify_s=1.0, rounds=4, drafted=8, tested=4)
    assert _row(TableRow("SD", none, 0.4, 0.3, Divergence("exact")))[4:6] == ["0%", "0.00"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (TableRow("SD", SD, 0.62, 0.3, Divergence("exact")), "0.62x"),
        (TableRow("SD", SD, 2.0, 0.3, Divergence("tie", 37, 0.0123)), "tie at 37 (margin 0.012)"),
        (TableRow("SD", SD, 2.0, 0.3, Divergence("BUG", 12, 1.0)), "BUG at 12"),
        (TableRow("SD", SD, 2.0, 0.3, lossless=False), "LOSSY"),
        (TableRow("SD", STOPPED, None, None), "stopped"),
        (TableRow("SD", STOPPED, None, None, lossless=False), "SD LOSSY"),
        (TableRow("AR drafter", SD, other="other model"), "other model"),
    ],
)
@pytest.mark.parametrize("width", [40, 120])
def test_what_a_row_must_say_at_any_width(line: TableRow, words: str, width: int) -> None:
    assert words in " ".join(" ".join(_draw(REFERENCE, line, width=width)).split())


@pytest.mark.parametrize("width", [20, 40, 60, 79, 80, 120])
def test_nothing_is_cut_or_wider_than_the_terminal(width: int) -> None:
    drawn = _draw(REFERENCE, TableRow("SD EGAG", SD, 0.62, 0.31, Divergence("tie", 37, 0.01)), width=width)
    assert all(len(line) <= width for line in drawn)
    assert not any("…" in line for line in drawn)
    joined = " ".join(" ".join(drawn).split())
    for part in ("SD EGAG", "20.0", "0.62x", "38%", "0.67", "2.50", "0.31", "tie at 37"):
        assert part in joined


def test_eighty_columns_are_enough_for_one_line_a_method() -> None:
    assert len(_draw(REFERENCE, TableRow("SD EGAG", SD, 0.62, 0.31, Divergence("exact")), width=80)) == 3


def test_notes_say_what_a_speedup_is_against() -> None:
    assert "our own AR" in notes([REFERENCE, TableRow("SD", SD, 2.0)], "gamma 4", False)[0]
    assert "reference is off" in notes([TableRow("SD", SD)], "gamma 4", False)[0]
    assert "stopped" in notes([TableRow("AR", STOPPED, reference=True), TableRow("SD", SD)], "gamma 4", False)[0]


def test_notes_warn_of_what_they_must() -> None:
    split = Ledger(
        0.0328, 0.0102, 0.0079, 0.0, 0.0003, plain=0.0404, rows=5.0, tokens=1.22, alpha=0.21, needed_alpha=0.4
    )
    slow = " ".join(notes([REFERENCE, TableRow("SD", SD, 0.79, ledger=split)], "gamma 4", False))
    lossy = " ".join(notes([REFERENCE, TableRow("SD", SD, 2.0, lossless=False)], "gamma 4", True))
    assert (
        "SD 0.79: 1.22 tokens a round, 21% of" in slow
        and "drafting takes 7.9" in slow
        and "break-even needs 1.55 tokens" in slow
    )
    assert "LOSSY" not in slow and "first answer" not in slow
    assert "break-even" not in lossy and "LOSSY" in lossy and "first answer" in lossy
    assert "gamma 4" in slow


@pytest.mark.parametrize(("least", "said"), [(2, "asked for 2 to 4 drafts a round"), (4, "a fixed gamma of 4")])
def test_a_note_tells_what_a_rule_made_of_its_freedom(least: int, said: str) -> None:
    account = replace(SD, min_gamma=least, max_gamma=4)
    told = notes([TableRow("EGAG", account, adapts=True)], "", False)
    assert any(note.startswith("EGAG: asked") and said in note for note in told)
    assert not any(
        "asked for" in note for note in notes([TableRow("SD", replace(SD, min_gamma=4, max_gamma=4))], "", False)
    )


def test_a_note_tells_who_drafts_from_earlier_answers() -> None:
    suffix = TableRow("Suffix", SD, 3.0, memories=(unless("max_cached_requests", 0),))
    bandit = TableRow("UCB", SD, 3.0, memories=(unless("ucb_remember", False),))
    remembering = [REFERENCE, suffix]
    (told,) = [note for note in notes(remembering, "", False) if "earlier answers" in note]
    assert told.startswith("Suffix: also drafted from earlier answers")
    assert told.endswith("; /max_cached_requests 0 forgets them"), "settings of other methods would change nothing"
    (told,) = [note for note in notes([*remembering, bandit], "", False) if "earlier answers" in note]
    assert told.endswith("; /max_cached_requests 0 and /ucb_remember off forget them")
    assert not any("earlier answers" in note for note in notes(remembering, "", True)), "there are none yet"
    assert not any("earlier answers" in note for note in notes([REFERENCE, TableRow("SD", SD, 3.0)], "", False))

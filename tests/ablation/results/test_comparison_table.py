"""One table for the session, for a run and for a report: the same headings and cells for the same quantities."""

import re
from collections.abc import Callable
from io import StringIO

import pandas as pd
import pytest
from rich.console import Console

from ablation.commands.show import show
from ablation.plan.grid import Configuration
from ablation.report.load import load_results
from ablation.report.tables.summary import summarise
from ablation.report.terminal import print_summary
from ablation.results.record import Record
from ablation.results.stamp import stamped, unstamped, warning
from ablation.results.tables.comparison import COLUMNS, LEDGER, MANY_RUNS, ONE_RUN, PROFILE, UNKNOWN, ComparisonLine
from repl.screen.tables import TableRow, comparison_table
from sampling.measure.divergence import Divergence
from sampling.measure.metrics import RunMetrics
from tests.ablation.synthetic import GREEDY, PLAIN, four, invented, record, write_results

SD = Configuration("speculative", (("gamma", 4),))
REFERENCE = RunMetrics(output_ids=[1] * 20, finish_reason="length", verify_s=2.0, rounds=20)
ACCOUNT = RunMetrics(
    output_ids=[1] * 20,
    finish_reason="length",
    draft_s=0.5,
    verify_s=0.5,
    rounds=8,
    drafted=32,
    tested=18,
    accepted=12,
)
KNOWN = {"c": 0.31, "speedup": 2.0, "divergence_verdict": "tie", "first_divergence": 12}

# A column that nobody knows is left out.
SHOWN = tuple(column for column in MANY_RUNS if not column.optional)


def drawn(width: int, draw: Callable[[Console], object]) -> list[str]:
    """The lines that land on a console of this width."""
    console = Console(file=StringIO(), width=width, color_system=None)
    draw(console)
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def of_session(width: int) -> list[str]:
    lines = [TableRow("AR", REFERENCE, 1.0, reference=True), TableRow("SD", ACCOUNT, 2.0, 0.31, Divergence("tie", 12))]
    return drawn(width, lambda console: console.print(comparison_table(lines, console)))


def measured(metrics: RunMetrics, configuration: Configuration, **more: object) -> Record:
    names = ("new_tokens", "tokens_per_s", "acceptance_rate", "alpha", "tokens_per_round")
    return record(configuration, **{name: getattr(metrics, name) for name in names}, **more)


def of_run(width: int, *more: Record) -> list[str]:
    records = [measured(REFERENCE, PLAIN, speedup=1.0), measured(ACCOUNT, SD, **KNOWN), *more]
    return drawn(width, lambda console: show(console, records))[1:]


def test_the_session_and_a_run_draw_the_same_line() -> None:
    session, run = (lines[2].split()[-9:] for lines in (of_session(120), of_run(120)))
    assert session == run == ["20.0", "2.00x", "38%", "0.67", "2.50", "0.31", "tie", "at", "12"]
    assert of_session(120)[0].split() == of_run(120)[0].split() == [column.heading for column in ONE_RUN]


def test_a_run_without_the_reference_says_why_it_shows_no_speedup() -> None:
    alone = drawn(120, lambda console: show(console, [measured(ACCOUNT, SD)]))
    assert "no speedup: the reference, target, did not run" in alone
    assert not any("did not run" in line for line in of_run(120))


def of_report(summary: pd.DataFrame, width: int) -> list[str]:
    return drawn(width, lambda console: print_summary(console, summary, ()))[1:]


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    place = tmp_path_factory.mktemp("report") / "r.csv"
    return summarise(load_results(write_results(place, invented(four(), prompts=6, processors=(GREEDY,)))))


def test_a_report_has_the_headings_of_a_run_and_intervals(summary: pd.DataFrame) -> None:
    first, second, head, *rows = of_report(summary, 130)
    assert (first.split(), second.split()) == (["ratio"], ["median", "of"])
    last = [column.heading.split()[-1] if " " in column.heading[:-2] else column.heading for column in SHOWN]
    assert re.split(r"\s+(?!%)", head) == last
    of_one_run = [column.heading for column in COLUMNS if column not in (*MANY_RUNS, *LEDGER, PROFILE)]
    assert of_one_run == ["tokens", "speedup"]
    assert re.fullmatch(
        r"NASD \(ngram\) top_k_filler=3 +[\d.]+ +1.64x n\.s\. 1.45-1.68 +1.61 +17% .* 5 exact, 1 tie", rows[3]
    )


def test_a_report_fits_eighty_columns_as_a_table(summary: pd.DataFrame) -> None:
    first, broken, head, *_ = of_report(summary, 80)
    assert (first.split(), broken.split()) == (["ratio"], ["median", "of", "tok/"]) and head.startswith("method ")
    assert all(column.heading.removeprefix("tok/r").split()[-1] in head for column in SHOWN)


@pytest.mark.parametrize("draw", [of_session, of_run, of_report])
def test_no_width_cuts_a_word_or_is_passed(draw: Callable[..., list[str]], summary: pd.DataFrame) -> None:
    given = (summary,) if draw is of_report else ()
    wide = draw(*given, 200)
    head = next(place for place, line in enumerate(wide) if line.startswith("method"))
    words = set(" ".join(wide[head + 1 :]).split())
    for width in range(30, 120):
        lines = draw(*given, width)
        assert max(map(len, lines)) <= width
        said = set(" ".join(lines).replace(",", "").split())
        assert said >= {word.strip(",") for word in words} - {UNKNOWN}


def test_names_of_methods_stay_whole_on_eighty_columns() -> None:
    slow = measured(ACCOUNT, Configuration("suffix_or_model"), speedup=0.62, c=0.3, lossless=False, method="suffix")
    lines = of_run(80, slow)
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("Suffix or model LOSSY ") for line in lines)
    assert "0.62x" in " ".join(lines) and "slower" not in " ".join(lines)


def test_a_failed_run_and_one_that_is_not_compared_say_so() -> None:
    failed = record(Configuration("ngram"), error="planted")
    other = measured(ACCOUNT, Configuration("drafter"))
    lines = of_run(100, failed, other)
    assert [line.split()[-1] for line in lines if line.startswith("NASD (ngram) ")][:1] == ["failed"]
    assert any(line.startswith("AR drafter (drafter) ") and line.endswith("other model") for line in lines)


def test_a_line_of_which_nothing_is_known_says_so_in_every_column() -> None:
    cells = [column.cell(ComparisonLine(title="SD")).plain for column in COLUMNS]
    assert cells == ["SD", *[UNKNOWN] * (len(COLUMNS) - 1)]


def test_what_is_lossy_is_stamped_once_and_what_is_not_judged_never() -> None:
    assert stamped("SD", False) == stamped(stamped("SD", False), False) == "SD LOSSY"
    assert stamped("SD", True) == stamped("SD", None) == unstamped("SD LOSSY") == "SD"
    assert warning(["SD LOSSY", "NASD"]).startswith("LOSSY: the output of SD, NASD does not follow")

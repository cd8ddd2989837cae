"""One progress bar: on a terminal painted between pieces of work only, elsewhere plain lines."""

from io import StringIO
from threading import active_count

import pytest
from rich.console import Console
from rich.text import Text

from ablation.results.record import Record
from ablation.run import bar as progress
from ablation.run.bar import Bar, told
from ablation.run.display import display
from ablation.run.progress import tracked
from tests.ablation.synthetic import record


def _console(terminal: bool) -> tuple[Console, StringIO]:
    file = StringIO()
    return Console(file=file, width=100, force_terminal=terminal, color_system=None), file


def _records() -> list[Record]:
    return [record(id=name) for name in ("p1", "p1", "p2")]


def test_a_bar_counts_shows_notes_and_starts_no_thread() -> None:
    console, file = _console(True)
    threads = active_count()
    with told("training", console) as tell:
        tell(3, 10, "loss 2.5")
        assert active_count() == threads
    said = file.getvalue()
    assert "training" in said and "3/10" in said and "loss 2.5" in said and "left" in said


def test_a_long_line_under_a_bar_is_cut_and_not_broken() -> None:
    console, file = _console(True)
    with Bar(console, total=2) as bar:
        bar.paint(Text("x" * 300))
    assert max(line.count("x") for line in file.getvalue().splitlines()) == 99
    assert "x…" in file.getvalue()


def test_elsewhere_there_is_a_line_now_and_then_and_one_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    console, file = _console(False)
    with told("training", console) as tell:
        for done in range(1, 4):
            tell(done, 4)
        assert not file.getvalue()
        monkeypatch.setattr(progress, "SILENCE", -1.0)
        tell(3, 4, "loss 2.5")
        tell(4, 4)
    assert file.getvalue() == "3/4 training, loss 2.5\n4/4 training\n"


def test_records_pass_while_the_bar_is_wiped() -> None:
    console, file = _console(True)
    for number, found in enumerate(tracked(iter(_records()), 3, console)):
        console.print(f"record {number} {found.id}")
    said = file.getvalue()
    assert "generating" in said and "2/3" in said
    assert all(f"record {number}" in said for number in range(3))


def test_plain_lines_of_a_run_and_of_an_ablation_look_alike() -> None:
    run, ran = _console(False)
    assert list(tracked(iter(_records()), 3, run)) == _records()
    assert ran.getvalue() == "2/3 prompt p1\n3/3 prompt p2\n"
    ablation, out = _console(False)
    with display(ablation, 0, 1) as shown:
        shown.record(record(id="p1"))
    assert out.getvalue() == "1/1 p1: target 8.0 tok/s\n"

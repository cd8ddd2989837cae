"""One progress bar: on a terminal painted between pieces of work only, elsewhere plain lines."""

from io import StringIO
from threading import active_count

import pytest
from rich.console import Console
from rich.text import Text

from ablation.plan.grid import Configuration, PlannedGeneration
from ablation.plan.prompts.file import Prompt
from ablation.run.progress import bar as progress
from ablation.run.progress.bar import Bar, told
from ablation.run.progress.display import display
from tests.ablation.synthetic import GREEDY, PLAIN, record

CURSOR_UP, ERASE_LINE = "\x1b[1A", "\x1b[2K"


def _console(terminal: bool) -> tuple[Console, StringIO]:
    file = StringIO()
    return Console(file=file, width=100, force_terminal=terminal, color_system=None), file


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


def test_what_is_printed_while_the_bar_is_wiped_stays_whole() -> None:
    console, file = _console(True)
    with Bar(console, "generating", 2) as bar:
        bar.paint(Text("first"))
        bar.wipe()
        wiped = file.getvalue()
        assert wiped.endswith(f"{CURSOR_UP}{ERASE_LINE}{CURSOR_UP}{ERASE_LINE}")
        console.print("a table")
        bar.advance()
        bar.paint(Text("second"))
        again = file.getvalue().removeprefix(wiped)
        assert "1/2" in again and "second" in again and ERASE_LINE not in again


def test_a_plain_line_tells_the_speed() -> None:
    ablation, out = _console(False)
    with display(ablation, 0, 1) as shown:
        shown.record(record(id="p1"))
    assert out.getvalue() == "1/1 p1: target 8.0 tok/s\n"


def test_a_plain_line_without_a_ratio_tells_the_speed_too() -> None:
    alone, out = _console(False)
    with display(alone, 0, 1) as shown:
        shown.record(record(Configuration("egag"), id="p1", speedup=None))
    assert out.getvalue() == "1/1 p1: egag 8.0 tok/s\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_ids_and_errors_steer_no_terminal_and_are_no_markup(terminal: bool) -> None:
    console, file = _console(terminal)
    name = "[/nope] \x1b]0;owned\x07"
    with display(console, 0, 1) as shown:
        shown.begin(PlannedGeneration(Prompt(name, ("a",)), 1, PLAIN, GREEDY, 1, 0))
        shown.record(record(id=name, error="[red]\x1b[8m"))
    assert "[/nope] \\x1b]0;owned\\x07" in file.getvalue()
    assert "\x1b]0" not in file.getvalue() and "\x1b[8m" not in file.getvalue()

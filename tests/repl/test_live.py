"""The live view: what is on the screen while an answer grows, and what it costs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from io import StringIO

import pytest
from rich.console import Console

from repl.screen.live import LiveView, PaintPace, coloured, numbers, tail
from repl.screen.round_text import round_text
from sampling.measure.answer import Answer, Span
from sampling.measure.metrics import RunMetrics
from tests.repl.test_answer import make_round
from utils.events import Event, Finished, Prefilled, Round

WORDS = ["the ", "fox ", "🙂", "日本 ", "tree\n", "\x1b[2Jevil "]


def _decode(ids: Sequence[int]) -> str:
    return "".join(WORDS[i % len(WORDS)] for i in ids)


def _console(width: int, height: int = 10, **options: object) -> Console:
    return Console(file=StringIO(), force_terminal=True, width=width, height=height, **options)  # type: ignore[arg-type]


def _run(rounds: Sequence[Round]) -> Iterator[tuple[Event, RunMetrics]]:
    account = RunMetrics()
    for event in (Prefilled(3, 0.1), *rounds, Finished("length", len(rounds))):
        account.add(event)
        yield event, account


ROUNDS = [make_round((i, i + 1, i + 2), (0,), i + 3) for i in range(60)]


@pytest.mark.parametrize("width", [20, 40, 120])
def test_the_tail_fits_and_ends_with_the_newest(width: int) -> None:
    console, answer = _console(width), Answer(_decode)
    for round in ROUNDS:
        answer.add(round)
    lines = tail(answer, console, 5).wrap(console, width)
    assert len(lines) <= 5
    assert all(line.cell_len <= width for line in lines)
    # Wrapping swallows blanks at the ends of lines.
    shown = "".join("".join(line.plain for line in lines).split())
    assert "".join(coloured(answer).plain.split()).endswith(shown) and shown


def test_the_colours_tell_who_wrote_what() -> None:
    answer = Answer(_decode, [Span("old", "accepted")], [Span("bad", "rejected"), Span("own", "target")])
    text = coloured(answer)
    assert {text.plain[span.start : span.end]: span.style for span in text.spans} == {
        "old": "green",
        "bad": "strike red",
        "own": "bold blue",
    }


@pytest.mark.parametrize("width", [40, 100])
@pytest.mark.parametrize("colour", [None, "standard"])
def test_the_whole_answer_stays_and_no_control_character_gets_out(width: int, colour: str | None) -> None:
    console, answer = _console(width, color_system=colour), Answer(_decode)
    LiveView(console).watch("SD", _run(ROUNDS), answer, None)
    assert isinstance(console.file, StringIO)
    written = console.file.getvalue()
    assert "\x1b[2J" not in written and "[2Jevil" in written
    last = re.sub(r"\x1b\[[0-9;]*m", "", written.rpartition("\x1b[1A")[2])
    assert last.count("日本") == answer.text.count("日本") > 10
    assert f"{len(ROUNDS) * 2} tokens" in " ".join(last.split()) and "length reached" in " ".join(last.split())


def test_debugging_leaves_a_line_a_round() -> None:
    console = _console(300, color_system=None)
    LiveView(console).watch("SD", _run(ROUNDS), Answer(_decode), partial(round_text, decode=_decode))
    assert isinstance(console.file, StringIO)
    assert sum("#1  position 10" in line for line in console.file.getvalue().splitlines()) == len(ROUNDS)


def test_what_is_unknown_is_not_shown() -> None:
    account = RunMetrics(output_ids=[1, 2], rounds=2, verify_s=0.5)
    assert numbers(account, make_round()) == ["4.0 tok/s", "1.00 tok/round", "round 2"]


@pytest.mark.parametrize(("gamma", "shown"), [(2, "gamma 2"), (16, "gamma 16 (drafted 2)"), (1, "gamma 1")])
def test_a_round_with_fewer_drafts_than_were_asked_for_says_so(gamma: int, shown: str) -> None:
    round = replace(make_round(drafts=(1, 2)), gamma=gamma)
    assert shown in numbers(RunMetrics(output_ids=[1], rounds=1, verify_s=0.5), round)


@pytest.mark.parametrize(("least", "most", "shown"), [(2, 2, "gamma 2"), (1, 6, "gamma 1 to 6"), (0, 0, None)])
def test_a_whole_answer_tells_which_lengths_were_drafted(least: int, most: int, shown: str | None) -> None:
    facts = numbers(RunMetrics(output_ids=[1], rounds=1, verify_s=0.5, min_gamma=least, max_gamma=most), None)
    assert [fact for fact in facts if fact.startswith("gamma")] == ([shown] if shown else [])


@pytest.mark.parametrize("cost_s", [0.0001, 0.003, 0.2])
def test_painting_is_rare_and_cheap(cost_s: float) -> None:
    now, painted = 0.0, 0

    def draw() -> None:
        nonlocal now, painted
        now += cost_s
        painted += 1

    pace = PaintPace(lambda: now)
    while now < 100:
        now += 0.001
        pace.paint(draw)
    assert painted <= 100 * 15 + 1
    assert painted * cost_s <= 0.011 * now + cost_s
    assert painted >= 5


@pytest.mark.parametrize(("width", "there"), [(60, False), (80, False), (140, True)])
def test_acceptance_by_position_stands_where_a_line_has_room(width: int, there: bool) -> None:
    console = _console(width, color_system=None)
    LiveView(console).watch("SD", _run(ROUNDS), Answer(_decode), None)
    assert isinstance(console.file, StringIO)
    heading = console.file.getvalue().rpartition("SD  120 tokens")[2]
    assert ("· by position 1.00 0.00\n" in heading) is there

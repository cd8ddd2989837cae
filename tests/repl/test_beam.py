"""Beam search in a session: its command, its parameters, its answer, its row."""

import signal
from collections.abc import Callable

import pytest

from repl.replies import Message
from repl.screen.live import numbers
from repl.screen.round_text import round_text
from repl.screen.tables import TableRow, comparison_table, notes, rows
from repl.session import Session
from sampling.measure.answer import Answer
from tests.repl.executing import execute
from tests.repl.test_tables import REFERENCE, SD
from utils.events import BeamRound, Hypothesis

PARAMETERS = (("num_beams", "6"), ("beam_top_k", "5"), ("beam_min_length", "0"), ("beam_alpha", "0.5"))


def _session(new_session: Callable[[], Session]) -> Session:
    session = new_session()
    for line in ("/speculative off", "/ngram off", "/suffix off", "/auto off", "/beam on", "/length 12"):
        execute(session, line)
    return session


def _answer(session: Session) -> tuple[tuple[int, ...], str]:
    """The ids of the search and the text that the view shows."""
    answers = session.ask("Why is the sky blue?")
    shown = Answer(session.engine.pair.decode)
    for event, _ in answers.run("beam"):
        if isinstance(event, BeamRound):
            shown.add(event)
    shown.finish()
    assert not answers.failures
    return tuple(answers.comparison.metrics["beam"].output_ids), shown.text


def test_the_command_and_its_parameters(idle_session: Session) -> None:
    reply = execute(idle_session, "/num_beams 2")
    assert isinstance(reply, Message) and "read after /beam on" in reply.text
    execute(idle_session, "/beam on")
    assert idle_session.settings.enabled()[-1] == "beam"
    for name, value in PARAMETERS:
        execute(idle_session, f"/{name} {value}")
        assert idle_session.show(name) == value


def test_what_is_shown_is_the_answer(new_session: Callable[[], Session]) -> None:
    session = _session(new_session)
    ids, text = _answer(session)
    assert len(ids) == 12 and text == session.engine.pair.decode(ids)


@pytest.mark.parametrize(("name", "value"), [("num_beams", "1"), ("beam_top_k", "1")])
def test_each_width_changes_the_answer(new_session: Callable[[], Session], name: str, value: str) -> None:
    session = _session(new_session)
    before = _answer(session)
    execute(session, f"/{name} {value}")
    assert _answer(session) != before


def test_the_processor_and_the_seed_play_no_part(new_session: Callable[[], Session]) -> None:
    session = _session(new_session)
    before = _answer(session)
    for line in ("/processor multinomial 2", "/seed 7"):
        execute(session, line)
    assert _answer(session) == before


def test_the_row_claims_no_speedup(new_session: Callable[[], Session]) -> None:
    session = _session(new_session)
    answers = session.ask("Why?")
    for name in answers.runs:
        for _ in answers.run(name):
            pass
    target, beam = rows(answers.comparison, answers.finished(), answers.verdicts(), answers.runs)
    assert (beam.other, beam.speedup, beam.cost_ratio, beam.divergence) == ("other output", None, None, None)
    assert answers.title("beam") == "Beam search"
    assert any("score -" in note and "ms a token" in note for note in notes([target, beam], "", False))
    assert any(fact.startswith("score -") for fact in numbers(beam.metrics, None))
    assert not any("tok/round" in fact or "accepted" in fact for fact in numbers(beam.metrics, None))


def test_ctrl_c_leaves_a_session_whose_next_answer_is_that_of_a_fresh_one(new_session: Callable[[], Session]) -> None:
    session = _session(new_session)
    answers = session.ask("Why?")
    for _, account in answers.run("beam"):
        if account.rounds == 5:
            signal.raise_signal(signal.SIGINT)
    assert answers.stopped and answers.comparison.metrics["beam"].rounds == 5
    assert answers.verdicts() == {"beam": None}
    assert _answer(session) == _answer(_session(new_session))


def test_a_debug_line_names_beams_and_what_is_settled() -> None:
    beams = (Hypothesis((1, 2), -0.5, -0.4), Hypothesis((1, 3), -1.5, -1.2))
    text = round_text(BeamRound(1, (1,), beams, (Hypothesis((9,), -3.0, -3.0),), 0.02), str)
    assert text.plain.split("\n   ") == [
        "#2  verify 20.0 ms",
        "'(2,)'  score -0.400",
        "'(3,)'  score -1.200",
        "found 1, best score -3.000",
        "settled '(1,)'",
    ]


def test_the_word_fits_a_line() -> None:
    from rich.console import Console

    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(comparison_table([REFERENCE, TableRow("Beam search", SD, other="other output")], console))
    assert "other output" in " ".join(captured.get().split())

"""/turns and /new: a dialogue that each method continues, or all of them together."""

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from ablation.run.dialogue import DialogueHistory
from repl.answers import Answers
from repl.player import SessionPlayer
from repl.screen.plain import PlainView
from repl.session import Session
from tests.refusals import refused
from tests.repl.executing import execute


def test_a_dialogue_alternates_and_takes_back_what_nobody_answered() -> None:
    dialogue = DialogueHistory()
    for prompt, answers in (("a", {"x": "1", "y": "2"}), ("lost", {}), ("b", {"x": "3"})):
        dialogue.begin(prompt)
        for name, text in answers.items():
            dialogue.answered(name, text)
    dialogue.begin("c")
    assert dialogue.heard("x") == ["a", "1", "b", "3", "c"]
    assert dialogue.heard("y") == ["a", "2", "b", "3", "c"], "what it has not said is the first answer that was given"
    assert dialogue.heard("new") == ["a", "1", "b", "3", "c"]
    assert dialogue.heard("x", "y") == ["a", "2", "b", "3", "c"]


def ask(session: Session, prompt: str, but: tuple[str, ...] = ()) -> Answers:
    answers = session.ask(prompt)
    for name in answers.runs:
        if name not in but:
            for _ in answers.run(name):
                pass
    assert not answers.failures
    return answers


def said(answers: Answers, name: str) -> str:
    return answers.dialogue.turns[-1].answers[name]


@pytest.fixture
def session(new_session: Callable[[], Session]) -> Session:
    """Runs that answer differently: each draws its own tokens."""
    session = new_session()
    for line in ("/length 8", "/processor multinomial 1", "/ngram off", "/suffix off", "/add drafter"):
        execute(session, line)
    return session


@pytest.mark.parametrize("mode", ["off", "on", "reference"])
def test_what_each_method_reads_in_the_second_turn(mode: str, session: Session) -> None:
    execute(session, f"/turns {mode}")
    first = ask(session, "Hello")
    texts = {name: said(first, name) for name in first.runs}
    assert texts["drafter"] != texts["target"]
    second = session.ask("And then?")
    for name, ids in second.prompts.items():
        before = {"off": [], "on": ["Hello", texts[name]], "reference": ["Hello", texts["target"]]}[mode]
        assert ids == session.engine.pair.encode([*before, "And then?"], chat=True)


def test_new_begins_another_and_off_forgets(session: Session) -> None:
    execute(session, "/turns on")
    for line, turns in (("", 2), ("/new", 1), ("/turns off", 1), ("/turns on", 2)):
        ask(session, "Hello")
        if line:
            execute(session, line)
        assert len(ask(session, "And then?").dialogue.turns) == turns
    execute(session, "/new")
    assert len(ask(session, "Hello").dialogue.turns) == 1


def test_who_joins_or_was_stopped_continues_what_was_said(session: Session) -> None:
    execute(session, "/turns on")
    first = ask(session, "Hello", but=("speculative",))
    execute(session, "/egag on")
    second = session.ask("And then?")
    assert second.prompts["egag"] == second.prompts["speculative"] == second.prompts["target"]
    assert second.prompts["drafter"] != second.prompts["target"]
    assert first.dialogue is second.dialogue


def test_a_full_context_is_told_and_the_turn_is_taken_back(session: Session) -> None:
    execute(session, "/turns on")
    ask(session, "Hello")
    with refused("dialogue", 512, "/new"):
        session.ask("x" * 480)
    assert len(ask(session, "And then?").dialogue.turns) == 2


def test_the_reference_has_to_be_on_to_be_continued(session: Session) -> None:
    for line in ("/turns reference", "/target off"):
        execute(session, line)
    with refused("turns reference", "/target on", "/turns on"):
        session.ask("Hello")


def test_the_view_and_the_records_say_which(session: Session) -> None:
    out = Console(file=io.StringIO(), width=300)
    player = SessionPlayer(session, PlainView(out, out))
    for line in ("/turns reference", "Hello", "And then?", "/new", "/turns off", "Hello"):
        player.execute(line)
    assert isinstance(out.file, io.StringIO) and not player.failures, out.file.getvalue()
    told = out.file.getvalue()
    assert told.count("turn 2: all methods continue AR's answers") == 1 and "turn 1" not in told
    assert told.count("turns reference") == 1 + 2, "the confirmation, and the line under each table"
    records = [record for one in session.log for record in one.records if record.method == "speculative"]
    assert [(record.id, record.turn, record.settings["turns"]) for record in records] == [
        (1, 1, "reference"),
        (1, 2, "reference"),
        (2, 1, "off"),
    ]

"""Turns of a dialogue go on from kept rows, unless the user wants otherwise."""

from collections.abc import Callable

import pytest

from repl.exchange import exchange
from repl.session import Session
from tests.repl.executing import execute
from tests.repl.test_dialogue import ask


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ((), False),
        (("/turns on",), True),
        (("/turns on", "/prefix_cache off"), False),
        (("/turns reference",), True),
        (("/prefix_cache on",), True),
    ],
)
def test_what_a_second_turn_reads(lines: tuple[str, ...], kept: bool, new_session: Callable[[], Session]) -> None:
    session = new_session()
    for line in ("/length 8", "/ngram off", "/suffix off", "/speculative on", *lines):
        execute(session, line)
    first = ask(session, "How are you today?")
    second = ask(session, "How are you tomorrow?")
    turns = bool(lines) and lines[0].startswith("/turns")
    for record in exchange(1, session.show("turns"), second, (), []).records:
        before = first.comparison.metrics[record.configuration]
        known = before.prompt_tokens + before.new_tokens - 1
        assert record.settings["prefix_cache"] is kept
        assert (record.prefix_hits or 0) > 10 if kept else record.prefix_hits is None
        if not turns:
            assert record.reread_target is record.reread_drafter is None
            continue
        assert record.reread_target is not None and record.prompt_tokens is not None
        assert record.reread_target + (record.prefix_hits or 0) <= known < record.prompt_tokens
        assert record.reread_target == 0 if kept else record.reread_target > 30
        if record.method in ("target", "speculative"):
            assert record.reread_drafter == (record.reread_target if record.method == "speculative" else None)


def test_answers_are_those_without_it(new_session: Callable[[], Session]) -> None:
    answers = []
    for line in ("/prefix_cache off", "/turns on"):
        session = new_session()
        for command in ("/length 8", "/turns on", line):
            execute(session, command)
        ask(session, "Hello")
        last = ask(session, "And then?")
        answers.append({name: run.output_ids for name, run in last.comparison.metrics.items()})
    assert answers[0] == answers[1]

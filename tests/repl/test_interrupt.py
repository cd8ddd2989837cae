"""Ctrl-C stops a generation and leaves a session whose next answer is that of a fresh one."""

import io
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from repl.answers import Answers
from repl.player import SessionPlayer
from repl.screen.live import LiveView
from repl.screen.plain import PlainView
from repl.session import Session
from sampling.forward.runner import ModelRunner
from sampling.pair.pair_engine import PairEngine
from tests.repl.executing import execute
from utils.events import Prefilled

# What auto draws goes by the clock: a seed repeats it in law only.
METHODS = ("/egag on", "/drafter on", "/auto off", "/processor multinomial 1")


def _outputs(session: Session, prompt: str) -> dict[str, list[int]]:
    answers = session.ask(prompt)
    for name in answers.runs:
        for _ in answers.run(name):
            pass
    assert not answers.stopped and not answers.failures
    return {name: answers.comparison.metrics[name].output_ids for name in answers.runs}


def _assert_like_a_fresh_session(session: Session, new_session: Callable[[], Session]) -> None:
    fresh = new_session()
    for line in METHODS:
        execute(fresh, line)
    assert _outputs(session, "What now?") == _outputs(fresh, "What now?")


def _session(new_session: Callable[[], Session]) -> Session:
    session = new_session()
    for line in METHODS:
        execute(session, line)
    return session


def _interrupted(answers: Answers, name: str, rounds: int) -> None:
    for _, account in answers.run(name):
        if account.rounds == rounds:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("name", ["target", "speculative", "ngram", "egag", "drafter"])
def test_between_rounds(name: str, new_session: Callable[[], Session]) -> None:
    session = _session(new_session)
    answers = session.ask("Hello there")
    _interrupted(answers, name, rounds=3)
    account = answers.comparison.metrics[name]
    assert answers.stopped and account.rounds == 3 and account.finish_reason is None
    assert answers.finished() == [name]
    _assert_like_a_fresh_session(session, new_session)


@pytest.mark.parametrize("name", ["speculative", "ngram"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_inside_a_forward(
    name: str, when: str, new_session: Callable[[], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second Ctrl-C does not wait for the round: here it strikes in the middle of the seventh forward."""
    session = _session(new_session)
    answers = session.ask("Hello there")
    whole, calls = ModelRunner._eager, 0

    def struck(self: ModelRunner, *args: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 7 and when == "before":
            raise KeyboardInterrupt
        output = whole(self, *args)  # type: ignore[arg-type]
        if calls == 7:
            raise KeyboardInterrupt
        return output

    with monkeypatch.context() as patched:
        patched.setattr(ModelRunner, "_eager", struck)
        for _ in answers.run(name):
            pass
    assert answers.stopped and calls == 7
    _assert_like_a_fresh_session(session, new_session)


def test_the_second_one_does_not_wait(new_session: Callable[[], Session], monkeypatch: pytest.MonkeyPatch) -> None:
    session = _session(new_session)
    answers = session.ask("Hello there")
    whole, calls = ModelRunner._eager, 0

    def struck(self: ModelRunner, *args: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 5:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("the second Ctrl-C was ignored")
        return whole(self, *args)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(ModelRunner, "_eager", struck)
        for _ in answers.run("target"):
            pass
    assert answers.stopped and not answers.failures
    _assert_like_a_fresh_session(session, new_session)


def test_a_crash_in_one_method_is_a_line_and_the_others_go_on(
    new_session: Callable[[], Session], monkeypatch: pytest.MonkeyPatch, state_folder: Path
) -> None:
    session = _session(new_session)
    answers = session.ask("Hello there")
    stream = PairEngine.stream

    def failing(self: PairEngine, name: str, *args: object) -> object:
        if name == "speculative":
            raise RuntimeError("out of something")
        return stream(self, name, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(PairEngine, "stream", failing)
    for name in answers.runs:
        for _ in answers.run(name):
            pass
    assert list(answers.failures) == ["speculative"]
    assert "RuntimeError: out of something" in answers.failures["speculative"]
    assert "\n" not in answers.failures["speculative"]
    (log,) = state_folder.rglob("errors.log")
    assert "Traceback" in log.read_text()
    assert set(answers.finished()) == set(answers.runs) - {"speculative"}


def test_outside_a_run_what_is_finished_is_still_compared(
    new_session: Callable[[], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, err = (Console(file=io.StringIO(), width=200) for _ in range(2))
    session = _session(new_session)
    player, watch, seen = SessionPlayer(session, PlainView(out, err)), PlainView.watch, []

    def watched(view: PlainView, title: str, *rest: Any) -> None:
        seen.append(title)
        if len(seen) == 3:
            raise KeyboardInterrupt
        watch(view, title, *rest)

    monkeypatch.setattr(PlainView, "watch", watched)
    player.execute("Hello there")
    assert isinstance(out.file, io.StringIO) and isinstance(err.file, io.StringIO)
    table, told = out.file.getvalue(), err.file.getvalue()
    assert player.interrupted and len(seen) == 3 and f"stopped before a token: {seen[2]}" in told
    assert all(table.count(title) >= 2 for title in seen[:2]), "over the answer, and in the table"
    monkeypatch.undo()
    _assert_like_a_fresh_session(session, new_session)


@pytest.mark.parametrize("live", [False, True])
def test_stopped_while_the_prompt_is_read_is_told_once(live: bool, new_session: Callable[[], Session]) -> None:
    """No answer of no tokens beside the line that says that there is none."""
    out = Console(file=io.StringIO(), width=200)
    session = _session(new_session)
    whole = Answers.run

    def struck(self: Answers, name: str) -> Any:
        for event, account in whole(self, name):
            if name == "speculative" and isinstance(event, Prefilled):
                signal.raise_signal(signal.SIGINT)
            yield event, account

    player = SessionPlayer(session, LiveView(out) if live else PlainView(out, out))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Answers, "run", struck)
        player.execute("Hello there")
    assert isinstance(out.file, io.StringIO)
    told = out.file.getvalue()
    assert player.interrupted and "stopped before a token: SD, " in " ".join(told.split())
    assert "0 tokens" not in told and "[SD]" not in told and "reference" in told


def test_the_handler_is_put_back(new_session: Callable[[], Session]) -> None:
    before = signal.getsignal(signal.SIGINT)
    session = _session(new_session)
    _interrupted(session.ask("Hello"), "target", rounds=1)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("soon", [False, True])
def test_a_person_skips_a_method_and_twice_soon_stops_the_answer(
    soon: bool, new_session: Callable[[], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = _session(new_session)
    answers = session.ask("Hello there")
    answers.skips = True
    clock = iter([100.0, 101.0 if soon else 103.0])
    monkeypatch.setattr("repl.answers.time.monotonic", lambda: next(clock))
    _interrupted(answers, "target", rounds=3)
    assert not answers.stopped and answers.skipped == {"target"}
    _interrupted(answers, "speculative", rounds=3)
    assert answers.stopped is soon
    assert all(verdict is None for verdict in answers.verdicts().values()), "with a reference that is not whole"
    _assert_like_a_fresh_session(session, new_session)


@pytest.mark.parametrize("typed", [False, True])
def test_a_skipped_method_leaves_the_others_and_a_script_stops(typed: bool, new_session: Callable[[], Session]) -> None:
    session = _session(new_session)
    out = Console(file=io.StringIO(), width=200)
    player = SessionPlayer(session, PlainView(out, out), typed=typed)
    run = Answers.run

    def struck(self: Answers, name: str) -> Any:
        for event, account in run(self, name):
            if name == "speculative" and account.rounds == 2:
                signal.raise_signal(signal.SIGINT)
            yield event, account

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Answers, "run", struck)
        player.execute("Hello there")
    assert player.interrupted is not typed
    assert session.answers is not None
    whole = {name for name, account in session.answers.comparison.metrics.items() if account.finish_reason}
    assert ("ngram" in whole) is typed and "target" in whole and "speculative" not in whole

"""Costs that a session measures while the prompt waits, and never while anything is generated."""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from prompt_toolkit import PromptSession
from rich.console import Console

from repl import prompt
from repl.costs import MEASURED, Costs
from repl.player import SessionPlayer
from repl.screen.plain import PlainView
from repl.session import Session
from sampling.measure import drift
from sampling.measure.times import profiling
from sampling.methods.rules import CONTROLLERS
from sampling.pair.pair import Pair
from sampling.pair.profile import DraftTimes, LatencyProfile
from sampling.pair.profile_store import keep, store_path, with_stored
from tests.waiting import PATIENCE_S, until
from utils.device import machine
from utils.files import CACHE_VARIABLE

PROFILE = LatencyProfile(
    {100: ((1, 0.02), (5, 0.03))}, ((100, 0.5),), 0.001, {"model": DraftTimes(0.005, 0.004, (0.7,))}, "then"
)
STEPS = 40


class Work:
    """A measurement whose steps are counted; `gate` holds the one under way."""

    def __init__(self) -> None:
        self.done = 0
        self.gate = threading.Event()
        self.gate.set()

    def measuring(self, pair: Pair, budget_s: float) -> Generator[float, None, LatencyProfile]:
        for self.done in range(1, STEPS + 1):
            self.gate.wait()
            time.sleep(0.005)
            yield self.done / STEPS
        return PROFILE


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache folder, and a machine that is free."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "_busy_s", lambda: 0.0)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    found = Work()
    monkeypatch.setattr(profiling, "measuring", found.measuring)
    return found


@pytest.fixture
def session(new_session: Callable[[], Session]) -> Session:
    made = new_session()
    made.loading.wait()
    return made


def kept(session: Session) -> LatencyProfile | None:
    return with_stored(replace(session.engine.pair, profile=None)).profile


def player_of(session: Session) -> tuple[SessionPlayer, StringIO]:
    said = StringIO()
    console = Console(file=said, width=200)
    return SessionPlayer(session, PlainView(console, console)), said


def test_it_works_only_between_resume_and_pause(session: Session, work: Work) -> None:
    costs = session.costs
    costs.resume()
    until(lambda: work.done > 3)
    costs.pause()
    stopped_at = work.done
    time.sleep(0.1)
    assert work.done == stopped_at < STEPS and session.engine.profile() is None and not costs.news()
    costs.resume()
    until(lambda: session.engine.profile() is not None)
    costs.pause()
    assert session.engine.profile() == kept(session) == PROFILE
    until(lambda: costs._news)
    assert (costs.news(), costs.news()) == (MEASURED, "")


def test_pause_waits_for_the_step_under_way(session: Session, work: Work) -> None:
    costs = session.costs
    work.gate.clear()
    costs.resume()
    until(lambda: work.done == 1)
    paused = threading.Thread(target=costs.pause)
    paused.start()
    paused.join(0.1)
    assert paused.is_alive()
    work.gate.set()
    paused.join(PATIENCE_S)
    assert not paused.is_alive() and work.done == 1


def test_nothing_is_measured_while_a_line_is_answered(
    session: Session, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter(["Hello", "/gamma 2", "Hello again"])

    def read(waiting: object) -> str:
        before = work.done
        until(lambda: work.done > before or session.engine.profile())
        return next(typed, None) or _end()

    monkeypatch.setattr(PromptSession, "prompt", read)
    monkeypatch.setattr(prompt, "_history", lambda: None)
    player, _ = player_of(session)
    during = []
    for line in prompt.lines(session):
        before = work.done
        player.execute(line)
        time.sleep(0.05)
        during.append(work.done - before)
    assert during == [0, 0, 0] and work.done > 0 and player.failures == 0


def _end() -> str:
    raise EOFError


def test_it_is_told_once_in_a_line(session: Session, work: Work) -> None:
    player, said = player_of(session)
    session.costs.resume()
    until(lambda: session.costs._news)
    session.costs.pause()
    player.execute("/gamma 2")
    player.execute("/gamma 3")
    assert said.getvalue().count(MEASURED) == 1


def test_a_known_profile_is_not_measured_again(new_session: Callable[[], Session], work: Work) -> None:
    first = new_session()
    keep(first.engine.pair, PROFILE)
    session = new_session()
    assert session.engine.profile() == PROFILE
    session.costs.resume()
    assert session.costs._thread is not None
    session.costs._thread.join(PATIENCE_S)
    assert not session.costs._thread.is_alive() and work.done == 0 and session.costs.ensure() == PROFILE


def test_a_busy_stretch_is_used_and_not_kept(session: Session, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(0, 1_000_000, 1000))
    monkeypatch.setattr(machine, "_busy_s", lambda: float(next(ticks)))
    monkeypatch.setattr(machine, "_SHORTEST_S", 0.0)
    session.costs.resume()
    until(lambda: session.engine.profile() is not None)
    session.costs.pause()
    assert session.engine.profile() == PROFILE and not store_path().exists()


def test_what_goes_wrong_is_told_and_ends_nothing(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object) -> Iterator[float]:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(profiling, "measuring", fails)
    session.costs.resume()
    until(lambda: session.costs._news)
    assert "RuntimeError: out of memory" in session.costs.news()
    session.costs.pause()


def test_what_a_line_needs_is_measured_to_its_end_at_once(session: Session, work: Work) -> None:
    session.costs.resume()
    until(lambda: work.done > 3)
    session.costs.pause()
    before = work.done
    assert session.costs.ensure() == PROFILE == session.engine.profile()
    assert before < STEPS == work.done


def test_ctrl_c_keeps_nothing_and_another_try_begins_anew(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(pair: Pair, budget_s: float) -> Generator[float, None, LatencyProfile]:
        yield 0.5
        raise KeyboardInterrupt

    monkeypatch.setattr(profiling, "measuring", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.costs.ensure()
    assert session.engine.profile() is None and not store_path().exists()
    monkeypatch.setattr(profiling, "measuring", Work().measuring)
    assert session.costs.ensure() == PROFILE


def test_the_page_of_profile(session: Session, work: Work) -> None:
    player, said = player_of(session)
    player.execute("/profile")
    text = " ".join(said.getvalue().split())
    for part in (
        "measuring the costs of forwards and drafts on this machine, once",
        "The target's forward behind 100 tokens",
        "1 row 20.0 ms v 1.00",
        "5 rows 30.0 ms v 1.50",
        "model 5.00 ms, each further 4.00 ms c 0.200, finds a draft in 100%, accepted 0.70",
        "Plain decoding runs at 47.6 tokens/s",
    ):
        assert part in text, part
    player.execute("/status all")
    assert "what rounds cost measured then; /profile shows it" in " ".join(said.getvalue().split())
    player.execute("/profile now")
    assert player.failures == 1 and work.done == STEPS


def test_an_answer_that_weighs_costs_says_that_they_are_guessed_and_does_not_wait(
    session: Session, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    player, said = player_of(session)
    player.execute("Hello")
    assert work.done == 0 and session.engine.profile() is None
    object.__setattr__(CONTROLLERS["ucb"], "weighs", True)
    try:
        player.execute("/ucb on")
        player.execute("Hello")
        player.execute("Hello")
    finally:
        object.__setattr__(CONTROLLERS["ucb"], "weighs", False)
    assert work.done == 0 and player.failures == 0
    assert " ".join(said.getvalue().split()).count("costs of a round are estimated") == 1


def test_answers_that_take_other_times_are_told_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_SHORTEST_S", 0.0)
    monkeypatch.setattr(drift, "_ROUNDS", 1)
    slow = replace(PROFILE, forward={100: ((1, 100.0), (5, 100.0))})
    keep(session.engine.pair, slow)
    session.engine.use_profile(slow)
    player, said = player_of(session)
    for _ in range(4):
        player.execute("Hello")
    assert said.getvalue().count("times differ from the profile's") == 1
    assert kept(session) is None


def test_costs_of_a_session_that_never_loads(idle_session: Session) -> None:
    assert isinstance(idle_session.costs, Costs)
    idle_session.costs.resume()
    idle_session.costs.pause()
    assert idle_session.costs.news() == ""

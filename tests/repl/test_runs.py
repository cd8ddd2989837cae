"""The same method beside itself: /add, /drop, and what knows of them."""

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from repl.commands.completion import complete
from repl.files import script
from repl.files.user_files import state_folder
from repl.player import SessionPlayer
from repl.replies import Message, SectionSheet
from repl.screen.plain import PlainView
from repl.session import Session
from tests.repl.executing import execute
from utils.errors import UserError

NGRAM = "ngram set_ngramstorage=onelevel 4, top_k_filler=1"


def names(session: Session) -> list[str]:
    return [run.name for run in session.runs()]


def said(session: Session, line: str) -> str:
    reply = execute(session, line)
    assert isinstance(reply, Message)
    return reply.text


def test_a_run_stands_beside_its_method(idle_session: Session) -> None:
    said(idle_session, "/add speculative gamma=1")
    said(idle_session, '/add ngram top_k_filler=1 set_ngramstorage="onelevel 4"')
    assert names(idle_session) == ["target", "speculative", "speculative gamma=1", "ngram", NGRAM]
    titles = [run.title for run in idle_session.runs()]
    assert titles[2:] == ["SD gamma=1", "NASD", "NASD set_ngramstorage=onelevel 4, top_k_filler=1"]
    page = execute(idle_session, "/status")
    assert isinstance(page, SectionSheet) and "SD (speculative) gamma=1" in [
        row[0] for section in page.sections for row in section.rows
    ]
    said(idle_session, "/speculative off")
    assert names(idle_session)[:2] == ["target", "speculative gamma=1"], "it needs no method beside it"


@pytest.mark.parametrize(
    "name", ["speculative gamma=1", "SD gamma=1", "sd gamma=1", "SD (speculative) gamma=1", "speculative  gamma = 1"]
)
def test_a_run_is_dropped_by_what_it_is_called(name: str, idle_session: Session) -> None:
    said(idle_session, "/add speculative gamma=1, speculative gamma=2")
    assert "dropped" in said(idle_session, f"/drop {name}")
    assert names(idle_session) == ["target", "speculative", "speculative gamma=2", "ngram"]


def test_a_method_alone_is_switched_on_and_off(idle_session: Session) -> None:
    """In the words of any other run."""
    assert said(idle_session, "/add mtp") == "mtp added (/drop mtp removes it)"
    assert idle_session.show("mtp") == "on"
    assert said(idle_session, "/drop mtp") == "mtp dropped"
    assert idle_session.show("mtp") == "off"
    both = said(idle_session, "/add mtp, mtp gamma=1")
    assert both == "mtp added (/drop mtp removes it), mtp gamma=1 added (/drop mtp gamma=1 removes it)"
    assert [said(idle_session, "/drop all") for _ in range(2)] == ["mtp gamma=1 dropped", "nothing was added"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/add", ["no method given", "/add mtp gamma=2"]),
        ("/add mpt gamma=1", ["'mpt'", "Did you mean 'mtp'?"]),
        ("/add mtp gama=1", ["'gama'", "Did you mean 'gamma'?"]),
        ("/add mtp top_k_filler=1", ["not a parameter of mtp", "it belongs to ngram"]),
        ("/add mtp tree_width=99", ["tree_width", "'99'", "from 1 to 64"]),
        ("/add speculative gamma=1", ["'speculative gamma=1' is already there", "/drop"]),
        ("/add speculative", ["'speculative' is already there; /drop speculative removes it"]),
        ("/drop speculative gamma=3", ["'speculative gamma=3'", "speculative gamma=1", "all"]),
        ("/drop nothing", ["unknown run 'nothing'", "speculative gamma=1"]),
        ("/drop mtp", ["'mtp'", "speculative gamma=1"]),
        ("/drop", ["unknown run ''"]),
    ],
)
def test_what_cannot_be_changes_nothing_and_says_why(line: str, words: list[str], idle_session: Session) -> None:
    said(idle_session, "/add speculative gamma=1")
    before = names(idle_session)
    with pytest.raises(UserError) as caught:
        execute(idle_session, line)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert names(idle_session) == before


def test_a_saved_session_brings_its_runs_back(idle_session: Session) -> None:
    said(idle_session, '/add ngram set_ngramstorage="onelevel 4" top_k_filler=1')
    said(idle_session, "/add speculative gamma=1")
    other = Session(idle_session.loading)
    said(other, "/add egag egag_ema=0")
    for line in script.lines_of(idle_session):
        if line.startswith("/"):
            execute(other, line)
    assert names(other) == names(idle_session)


def test_completion_knows_methods_and_their_parameters() -> None:
    def completed(text: str) -> set[str]:
        return {text[: len(text) - found.length] + found.text for found in complete(text)}

    assert completed("/add mt") == {"/add mtp"}
    assert completed("/add mtp tree_w") == {"/add mtp tree_width="}
    assert completed("/add mtp gamma=1 tree_w") == {"/add mtp gamma=1 tree_width="}


@pytest.fixture
def player(new_session: Callable[[], Session]) -> SessionPlayer:
    out, err = Console(file=io.StringIO(), width=100), Console(file=io.StringIO(), width=200)
    return SessionPlayer(new_session(), PlainView(out, err))


def told(player: SessionPlayer) -> tuple[str, str]:
    out, err = player.view.out.file, player.view.err.file
    assert isinstance(out, io.StringIO) and isinstance(err, io.StringIO)
    return out.getvalue(), err.getvalue()


def test_each_is_a_row_with_its_own_values_and_memory(player: SessionPlayer) -> None:
    for line in (
        "/ngram off",
        "/suffix off",
        "/auto off",
        "/add speculative gamma=1",
        "/add suffix max_cached_requests=0",
    ):
        player.execute(line)
    player.execute("Hello")
    out, err = told(player)
    assert player.failures == 0, err
    table = out[out.index("tok/round") :]
    assert "SD (speculative) gamma=1" in table and "Suffix max_cached_requests=0" in table and table.count("exact") == 3
    answers = player.session.answers
    assert answers is not None
    metrics = answers.comparison.metrics
    assert metrics["speculative gamma=1"].mean_gamma == 1 < (metrics["speculative"].mean_gamma or 0)


def test_values_that_stop_fitting_are_a_failure_of_their_run_only(player: SessionPlayer) -> None:
    for line in ("/ngram off", "/add egag egag_gamma_min=5", "/egag_gamma_max 4", "Hello"):
        player.execute(line)
    out, err = told(player)
    assert player.failures == 1 and "SD EGAG egag_gamma_min=5: egag_gamma_min 5 is above egag_gamma_max 4" in err
    assert "reference" in out


def test_an_ablation_begins_at_the_prompt(player: SessionPlayer, tmp_path: Path) -> None:
    (tmp_path / "open.toml").write_text('length = 4\nlimit = 1\nprompts = ["dialogue"]\n')
    for line in (
        "/ngram off",
        "/suffix off",
        "/auto off",
        "/add speculative gamma=1",
        f"/ablate {tmp_path / 'open.toml'}",
    ):
        player.execute(line)
    _, err = told(player)
    assert player.failures == 0, err
    (results,) = (state_folder() / "ablations").glob("open-*.csv")
    with results.open(encoding="utf-8", newline="") as file:
        rows = [row["configuration"] for row in csv.DictReader(file)]
    assert sorted(rows) == ["control", "speculative", "speculative gamma=1", "target"]


def test_without_a_plan_what_was_added_runs_on_quick(player: SessionPlayer) -> None:
    from repl.measuring import plan

    quick = [configuration.name for configuration in plan.read(player.session, "").plan.configurations]
    assert "egag" in quick
    player.execute("/add speculative gamma=1")
    mine, named = (plan.read(player.session, text).plan for text in ("", "quick"))
    assert [one.name for one in mine.configurations][:3] == ["target", "speculative", "speculative gamma=1"]
    assert [one.name for one in named.configurations] == quick and mine.prompts == named.prompts

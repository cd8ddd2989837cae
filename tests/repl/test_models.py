"""/model and /repeat: other models in a session, and the last answer as a command line."""

import io
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from ablation.commands.request import choose_settings
from ablation.plan.choice import choose_runs
from repl.loading import Loading
from repl.player import SessionPlayer
from repl.prompt import PromptMessage
from repl.replies import Message
from repl.screen.plain import PlainView
from repl.session import Session
from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from tests.refusals import refused
from tests.repl.executing import execute
from utils.errors import UserError


def said(session: Session, line: str) -> str:
    reply = execute(session, line)
    assert isinstance(reply, Message)
    return reply.text


def test_another_pair_is_loaded_and_decides_anew(
    new_session: Callable[[], Session], checkpoints: tuple[Path, Path]
) -> None:
    session = new_session()
    execute(session, "Hello")
    first, (_, drafter) = session.engine, checkpoints
    said(session, f"/model {drafter} dtype=float32 device=cpu")
    assert session.engine is not first and session.engine.describe().target.name == drafter.name
    assert session.show("speculative") == "off" and session.notes, "there is no drafter now"
    assert session.answers is None and len(session.log) == 1, "what was answered can be exported"
    assert session.show("length") == "24", "what the user has set stays"
    execute(session, "Hello")
    assert session.answers is not None and not session.answers.failures


def test_a_refused_model_can_be_followed_by_another(options: LoadOptions) -> None:
    session = Session(Loading(load_pair, LoadOptions(target="/nowhere/at/all")))
    session.loading.start()
    with pytest.raises(UserError):
        execute(session, "Hello")
    said(session, f"/model {options.target} drafter={options.drafter} dtype=float32")
    execute(session, "Hello")
    assert session.answers is not None and not session.answers.failures


@pytest.mark.parametrize("line", ["/model /nowhere/at/all", "/model default drafter=/nowhere/at/all"])
def test_a_mistyped_model_leaves_the_pair(new_session: Callable[[], Session], line: str) -> None:
    session = new_session()
    before = session.engine
    with refused("/nowhere/at/all"):
        execute(session, line)
    assert session.engine is before


def test_a_model_that_cannot_be_had_brings_the_pair_back(
    new_session: Callable[[], Session], options: LoadOptions, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text("{}")
    out, err = (Console(file=io.StringIO(), width=400) for _ in range(2))
    session = new_session()
    player = SessionPlayer(session, PlainView(out, err))
    name = session.engine.describe().target.name
    for line in (f"/model {tmp_path}", "Hello"):
        player.execute(line)
    assert session.engine.describe().target.name == name and session.loading.options == options
    assert session.answers is not None and not session.answers.failures
    assert isinstance(err.file, io.StringIO)
    assert player.failures == 1 and err.file.getvalue().count("; the models before it are loaded again") == 1


def test_what_was_refused_stands_whole_above_the_prompt_once(
    new_session: Callable[[], Session], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text("{}")
    session = new_session()
    session.loading.wait()
    message = PromptMessage(session)
    said(session, f"/model {tmp_path} dtype=float32")
    session.loading.wait()
    told = session.loading.refused
    assert told is not None
    shown = "".join(text for _, text in message.text(60))
    assert told in " ".join(shown.split()) and "…" not in shown
    message.entered()
    assert told not in " ".join("".join(text for _, text in message.text(60)).split())


@pytest.mark.parametrize(
    ("line", "given"),
    [("/model x gamma=4", "gamma=4"), ("/model x y", "y"), ("/model x target=y", "target=y")],
)
def test_what_is_no_option_of_loading_is_refused_and_the_models_stay(
    new_session: Callable[[], Session], line: str, given: str
) -> None:
    session = new_session()
    before = session.engine
    with refused("/model", given):
        execute(session, line)
    assert session.engine is before


def test_the_models_are_told_without_an_argument(idle_session: Session) -> None:
    assert "the embedded default" in said(idle_session, "/model")


def test_repeat_prints_a_command_that_means_the_same(new_session: Callable[[], Session], options: LoadOptions) -> None:
    session = new_session()
    lines = ('/add ngram top_k_filler=1 set_ngramstorage="onelevel 4"', "/gamma 3", "/processor nucleus 0.8 0.9")
    for line in (*lines, 'it\'s "quoted"'):
        execute(session, line)
    words = shlex.split(said(session, "/repeat"))
    assert words[:4] == ["uv", "run", "infer.py", "run"]
    given = [(words[place], words[place + 1]) for place in range(4, len(words), 2)]
    called = dict(given)
    assert called["--target"] == options.target and called["--drafter"] == options.drafter
    assert called["--prompt"] == 'it\'s "quoted"'
    assert session.answers is not None
    named = [("length", called["--length"]), ("processor", called["--processor"])]
    settings = choose_settings([value for name, value in given if name == "--set"], named)
    ran = [run.explicit for run in session.answers.runs.values()]
    assert list(choose_runs(called["--methods"], settings)) == ran
    assert {name: settings[name] for name in ("gamma", "length", "processor", "seed")} == {
        name: session.settings[name] for name in ("gamma", "length", "processor", "seed")
    }


def test_repeat_needs_an_answer_that_one_prompt_can_ask(new_session: Callable[[], Session]) -> None:
    session = new_session()
    with pytest.raises(UserError, match="nothing was answered"):
        execute(session, "/repeat")
    for line in ("/turns on", "Hello", "Again"):
        execute(session, line)
    with pytest.raises(UserError, match="turn 2"):
        execute(session, "/repeat")


def test_the_command_line_chooses_settings_and_methods(idle_session: Session) -> None:
    runs = choose_runs("target,mtp,mtp gamma=1", idle_session.settings)
    idle_session.choose({"length": "24", "seed": "7"}, runs)
    assert [run.name for run in idle_session.runs()] == ["target", "mtp", "mtp gamma=1"]
    assert (idle_session.show("length"), idle_session.show("seed")) == ("24", "7")

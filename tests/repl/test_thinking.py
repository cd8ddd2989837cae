"""/thinking and /chat_template_kwargs in a session."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from repl.commands.completion import complete
from repl.loading import Loading
from repl.replies import Message, SectionSheet
from repl.session import Session
from sampling.loading.pairs import LoadOptions, load_pair
from tests.refusals import refused
from tests.repl.executing import execute
from tests.tiny import THINKS, llama, save_checkpoint, tiny_tokenizer

_OFF = '{"enable_thinking": false}'


@pytest.fixture(scope="module")
def thinks(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint whose template has a switch."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = THINKS
    return str(save_checkpoint(tmp_path_factory.mktemp("thinks"), llama(max_position_embeddings=512), tokenizer))


@pytest.fixture
def session(thinks: str) -> Session:
    session = Session(Loading(load_pair, LoadOptions(target=thinks, device="cpu", dtype="float32")))
    session.loading.start()
    session.assign("length", "3")
    return session


def asked(session: Session) -> str:
    """The prompt of the last answer."""
    assert session.answers is not None
    return session.engine.all_text(session.answers.prompts["target"])


def said(session: Session, line: str) -> str:
    reply = execute(session, line)
    assert isinstance(reply, Message)
    return reply.text


def status(session: Session) -> dict[str, str]:
    page = execute(session, "/status")
    assert isinstance(page, SectionSheet)
    return {row[0]: row[1] for section in page.sections for row in section.rows}


@pytest.mark.parametrize(
    ("line", "name", "shown"),
    [("/thinking off", "thinking", "off"), (f"/chat_template_kwargs {_OFF}", "chat_template_kwargs", _OFF)],
)
def test_the_next_prompt_is_asked_so_and_repeat_says_so(session: Session, line: str, name: str, shown: str) -> None:
    execute(session, "a")
    assert asked(session).endswith("assistant\n") and name not in status(session)
    execute(session, line)
    execute(session, "a")
    assert asked(session).endswith("<think></think>") and status(session)[name] == shown
    words = shlex.split(said(session, "/repeat"))
    assert words[words.index(f"--{name.replace('_', '-')}") + 1] == shown
    execute(session, f"/{name} default")
    execute(session, "a")
    assert asked(session).endswith("assistant\n") and name not in said(session, "/repeat")


def test_a_variable_that_the_template_does_not_read_is_refused_at_once(session: Session) -> None:
    execute(session, "/thinking on")
    assert session.engine
    with refused("'foo'", "enable_thinking"):
        execute(session, '/chat_template_kwargs {"foo": 1}')
    assert session.show("chat_template_kwargs") == "{}"


def test_a_template_without_a_switch_refuses_it(new_session: Callable[[], Session]) -> None:
    session = new_session()
    assert session.engine
    with refused("thinking on", "reads neither enable_thinking nor thinking", "expected thinking auto"):
        execute(session, "/thinking on")
    assert session.show("thinking") == "auto"
    execute(session, "/thinking auto")
    execute(session, "a")


def test_what_the_command_line_said_is_refused_with_the_first_prompt(new_session: Callable[[], Session]) -> None:
    session = new_session()
    session.choose({"thinking": "on"}, ())
    with refused("thinking on", "reads neither"):
        session.ask("a")


def test_the_words_are_completed() -> None:
    assert {found.text for found in complete("/thinking o")} == {"on", "off"}


def test_a_saved_session_comes_back(session: Session, tmp_path: Path) -> None:
    for line in (f"/chat_template_kwargs {_OFF}", f"/save {tmp_path / 's'}", "/chat_template_kwargs {}"):
        execute(session, line)
    execute(session, f"/load {tmp_path / 's'}")
    assert session.show("chat_template_kwargs") == _OFF

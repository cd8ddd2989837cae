"""Counts of n-grams kept between sessions."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from repl.replies import Message
from repl.session import Session
from tests.refusals import refused
from tests.repl.executing import execute

NewSession = Callable[[], Session]


def accepted(session: Session, prompt: str) -> int:
    """Drafts that NASD got accepted in one answer."""
    answers = session.ask(prompt)
    for name in answers.runs:
        for _ in answers.run(name):
            pass
    return answers.comparison.metrics["ngram"].accepted


def done(session: Session, line: str) -> str:
    reply = execute(session, line)
    assert isinstance(reply, Message)
    return reply.text


def ready(new_session: NewSession) -> Session:
    session = new_session()
    for name in ("target", "speculative", "suffix"):
        session.assign(name, "off")
    return session


def test_saved_counts_help_another_session(new_session: NewSession, tmp_path: Path) -> None:
    first, file = ready(new_session), tmp_path / "my.ngrams"
    cold = accepted(first, "the quick brown fox")
    assert "contexts saved" in done(first, f"/ngram_save {file}")
    second = ready(new_session)
    assert "reset_in_between off" in done(second, f"/ngram_load {file}")
    assert accepted(second, "the quick brown fox") > cold


def test_a_bad_file_changes_nothing(new_session: NewSession, tmp_path: Path) -> None:
    session, file = ready(new_session), tmp_path / "bad.ngrams"
    file.write_text("[1, 2]\n")
    accepted(session, "the quick")
    before = session.show("reset_in_between"), len(session.engine.drafter("ngram", session.settings).storage)  # type: ignore[attr-defined]
    for name, quoted in (
        ("bad.ngrams", "/ngram_save"),
        ("none", os.strerror(errno.ENOENT)),
        (".", os.strerror(errno.EISDIR)),
    ):
        with refused(tmp_path / name, quoted):
            done(session, f"/ngram_load {tmp_path / name}")
    after = session.show("reset_in_between"), len(session.engine.drafter("ngram", session.settings).storage)  # type: ignore[attr-defined]
    assert before == after
    with refused(file, "n-gram"):
        done(session, f"/ngram_save {file}")
    assert file.read_text() == "[1, 2]\n"


def test_a_home_that_is_not_there_is_a_wrong_call(new_session: NewSession) -> None:
    with refused("/ngram_load", "'~nobody-of-that-name/x'"):
        execute(new_session(), "/ngram_load ~nobody-of-that-name/x")


def test_nothing_counted_is_not_saved(new_session: NewSession, tmp_path: Path) -> None:
    with refused("/ngram on"):
        done(ready(new_session), f"/ngram_save {tmp_path / 'x'}")


def test_counts_outlive_a_change_of_other_settings_and_an_engine_that_is_renewed(
    new_session: NewSession, tmp_path: Path
) -> None:
    session = ready(new_session)
    session.assign("reset_in_between", "off")
    accepted(session, "the quick brown fox")

    def counted() -> int:
        return len(session.engine.drafter("ngram", session.settings).storage)  # type: ignore[attr-defined]

    before = counted()
    for name, value in (("top_k_filler", "1"), ("cache", "off"), ("reset_in_between", "on")):
        session.assign(name, value)
        assert counted() == before > 0
    assert [name for name, _ in session.memories() if name != "auto"] == ["ngram"]
    session.engine.renew()
    assert counted() == before
    session.assign("set_ngramstorage", "basic 4")
    assert counted() == 0


def test_a_servers_configuration_leaves_nothing_of_the_one_before(new_session: NewSession) -> None:
    session = new_session()
    execute(session, '/speculative_config {"method": "suffix", "verify_strategy": "typical"}')
    execute(session, '/speculative_config {"method": "ngram", "max_ngram_size": 5}')
    assert (session.show("verify_strategy"), session.show("max_ngram_size")) == ("rejection", "5")
    assert session.settings.enabled() == ["target", "prompt_lookup"]

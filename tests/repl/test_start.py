"""What a pair decides at start, and what cards recommend: only where the user has not."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repl.files import script
from repl.loading import Loading
from repl.replies import Message, SectionSheet
from repl.screen.summary import greeting, on_and_why, summary
from repl.session import Session
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.pair.pair import Pair
from tests.repl.executing import execute
from utils.provenance import ROOT

NewSession = Callable[..., Session]


@pytest.fixture
def begun(options: LoadOptions, tmp_path: Path) -> NewSession:
    """Sessions whose pair has heads with cards; `typed` are lines of the time before it is loaded."""

    def make(*typed: str, **cards: dict[str, object]) -> Session:
        for kind, values in cards.items():
            (tmp_path / kind).mkdir(exist_ok=True)
            (tmp_path / kind / "config.json").write_text(json.dumps({"method": kind, "recommended": values}))

        def load(_: LoadOptions, progress: object) -> Pair:
            pair = load_pair(options)
            assert pair.drafter_info
            info = pair.drafter_info
            if "model" in cards:
                info = replace(info, trained=True, place=str(tmp_path / "model"))
            return replace(pair, drafter_info=info, heads={kind: tmp_path / kind for kind in cards if kind != "model"})

        session = Session(Loading(load))
        for line in typed:
            execute(session, line)
        session.loading.start()
        session.loading.wait()
        session.settle()
        return session

    return make


def titles(session: Session) -> list[str]:
    return [run.title for run in session.runs()]


@pytest.mark.parametrize(
    ("heads", "hybrid"),
    [
        ((), "Suffix"),
        (("medusa",), "Suffix or Medusa"),
        (("medusa", "mtp", "eagle"), "Suffix or MTP"),
    ],
)
def test_the_best_hybrid_of_the_pair_is_on(begun: NewSession, heads: tuple[str, ...], hybrid: str) -> None:
    session = begun(**{kind: {} for kind in heads})
    assert titles(session) == ["AR", "SD", "NASD", hybrid, "Auto"]
    assert hybrid in on_and_why(session) and "hybrid" in on_and_why(session)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (("/suffix_or_model off", "/ngram off"), ["AR", "SD", "Auto"]),
        (("/suffix_or_model on", "/hybrid_model medusa"), ["AR", "SD", "NASD", "Suffix or Medusa", "Auto"]),
        (("/hybrid_model medusa",), ["AR", "SD", "NASD", "Suffix or Medusa", "Auto"]),
        (("/suffix_or_model off", "/suffix_or_model default"), ["AR", "SD", "NASD", "Suffix or MTP", "Auto"]),
    ],
)
def test_what_the_user_has_set_stays(begun: NewSession, typed: tuple[str, ...], expected: list[str]) -> None:
    assert titles(begun(*typed, mtp={}, medusa={})) == expected


def test_auto_is_on_unless_the_user_says_otherwise(begun: NewSession) -> None:
    assert "Auto" in titles(begun()) and "Auto" not in titles(begun("/auto off"))


def test_default_brings_back_what_the_pair_decided(begun: NewSession) -> None:
    session = begun(mtp={})
    for line in ("/suffix_or_model off", "/hybrid_model model", "/suffix_or_model default", "/hybrid_model default"):
        execute(session, line)
    assert titles(session)[-2:] == ["Suffix or MTP", "Auto"]


def test_cards_hold_for_their_methods_only(begun: NewSession) -> None:
    session = begun("/mtp on", mtp={"gamma": 1, "num_model_steps": 3}, model={"gamma": 2})
    assert {run.title: run.recommended for run in session.runs() if run.recommended} == {
        "SD": {"gamma": 2},
        "Suffix or MTP": {"num_model_steps": 3},
        "MTP": {"gamma": 1},
    }
    assert session.show("gamma") == "4"
    line = summary(session)
    assert "gamma 4" not in line and "SD gamma 2 (card)" in line and "MTP gamma 1 (card)" in line
    page = execute(session, "/status")
    assert isinstance(page, SectionSheet)
    rows = {row[0]: row[2] for section in page.sections for row in section.rows}
    assert rows["MTP"] == "recommended by its card: gamma 1" and not rows["NASD (ngram)"]
    assert "SD gamma 2, Suffix or MTP num_model_steps 3, MTP gamma 1" in greeting(session)


@pytest.mark.parametrize("value", ["4", "6"])
@pytest.mark.parametrize("late", [False, True])
def test_a_value_that_the_user_sets_beats_every_card(begun: NewSession, value: str, late: bool) -> None:
    line = f"/gamma {value}"
    session = begun("/mtp on", *([] if late else [line]), mtp={"gamma": 1}, model={"gamma": 2})
    if late:
        execute(session, line)
    assert not any(run.recommended for run in session.runs())
    reply = execute(session, "/gamma default")
    assert isinstance(reply, Message) and "recommended by cards: SD 2, MTP 1" in reply.text
    assert [run.parameters for run in session.runs() if run.method == "mtp"] == [{"gamma": 1}]


def test_the_rule_of_a_card_holds_until_the_user_sets_a_length_or_a_rule(begun: NewSession) -> None:
    session = begun(model={"gamma": 2, "draft_rule": "survival"})

    def of_sd() -> Any:
        return next(run.recommended for run in session.runs() if run.title == "SD")

    assert of_sd() == {"draft_rule": "survival"} and "SD draft_rule survival (card)" in summary(session)
    execute(session, "/gamma 4")
    assert not of_sd()
    execute(session, "/gamma default")
    execute(session, "/draft_rule own")
    assert of_sd() == {"gamma": 2}


def test_what_a_card_says_wrongly_is_told_and_left_out(begun: NewSession) -> None:
    session = begun("/mtp on", mtp={"gama": 1, "gamma": -1, "draft_tree": "static"})
    assert [run.recommended for run in session.runs() if run.method == "mtp"] == [{"draft_tree": "static"}]
    assert sum("recommends" in note and "left out" in note for note in session.notes) == 2


def test_the_value_of_a_card_is_what_runs(begun: NewSession) -> None:
    session = begun("/length 12", model={"gamma": 1})
    for line, longest in (("/seed 42", 1), ("/gamma 3", 3)):
        execute(session, line)
        answers = session.ask("Hello")
        for name in answers.runs:
            for _ in answers.run(name):
                pass
        assert not answers.failures
        gamma = {name: metrics.mean_gamma for name, metrics in answers.comparison.metrics.items()}
        assert gamma["speculative"] is not None and gamma["ngram"] is not None
        assert gamma["speculative"] <= longest and gamma["ngram"] > 1
        assert (gamma["speculative"] > 1) == (longest > 1)


def test_a_saved_session_leaves_open_what_was_open(begun: NewSession) -> None:
    session = begun("/mtp on", mtp={"gamma": 1, "num_model_steps": 3}, model={})
    execute(session, "/num_model_steps 2")
    other = begun("/gamma 9", mtp={"gamma": 1, "num_model_steps": 3}, model={})
    for line in script.lines_of(session):
        if line.startswith("/"):
            execute(other, line)
    assert [(run.title, run.parameters) for run in other.runs()] == [
        (run.title, run.parameters) for run in session.runs()
    ]
    assert "gamma" not in other.chosen and "num_model_steps" in other.chosen


def test_before_the_models_are_there_nothing_is_promised(idle_session: Session) -> None:
    assert titles(idle_session) == ["AR", "SD", "NASD"]
    assert "loading" in greeting(idle_session) and "AR" not in greeting(idle_session)


def test_the_cards_that_come_along_are_understood() -> None:
    from repl.start import _card

    notes: list[str] = []
    cards = {name: _card(ROOT / "models" / name, notes) for name in ("distilled", "eagle", "hydra", "medusa", "mtp")}
    assert not notes and cards.pop("distilled") == {"draft_rule": "survival"}
    assert all(card["gamma"] in (1, 2) for card in cards.values())

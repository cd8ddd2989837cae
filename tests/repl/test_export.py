"""/export: the session's answers as records and as a page."""

import io
import json
import re
from collections.abc import Callable
from dataclasses import fields, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from ablation.results.record import Record
from repl.player import SessionPlayer
from repl.screen.plain import PlainView
from repl.session import Session
from sampling.measure.answer import Span
from tests.refusals import refused
from tests.repl.executing import execute


@pytest.fixture
def player(new_session: Callable[[], Session]) -> SessionPlayer:
    """Two prompts were answered, the second one with a run that fails and one that is stopped."""
    out = Console(file=io.StringIO(), width=300)
    player = SessionPlayer(new_session(), PlainView(out, out))
    lines = (
        "/ngram off",
        "/suffix off",
        "/auto off",
        "/length 12",
        "Hello <b>",
        "/add egag egag_gamma_min=5",
        "/egag_gamma_max 4",
    )
    for line in (*lines, "And & then?"):
        player.execute(line)
    assert player.failures == 1
    return player


def told(player: SessionPlayer) -> str:
    assert isinstance(player.view.out.file, io.StringIO)
    return player.view.out.file.getvalue()


def test_records_are_those_of_a_run(player: SessionPlayer, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    player.execute(f"/export {path}")
    assert f"2 prompts with 5 answers written to {path}" in told(player)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(list(record) == [field.name for field in fields(Record)] for record in records)
    assert [(record["id"], record["turn"], record["configuration"]) for record in records] == [
        (1, 1, "target"),
        (1, 1, "speculative"),
        (2, 1, "target"),
        (2, 1, "speculative"),
        (2, 1, "egag egag_gamma_min=5"),
    ]
    target, sd, failed = records[0], records[1], records[-1]
    assert target["speedup"] == 1.0 and sd["divergence_verdict"] == "exact" and sd["output_ids"] == target["output_ids"]
    assert "egag_gamma_min 5 is above" in failed["error"] and failed["new_tokens"] is None
    assert sd["settings"]["gamma"] == 4 and sd["settings"]["turns"] == "off"


class Page(HTMLParser):
    """The text of each piece of a kind, and what the page would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.pieces: list[tuple[str, str]] = []
        self.fetched: list[str] = []
        self._kind = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._kind = given.get("class") or tag
        self.fetched += [value for name in ("src", "href") if (value := given.get(name))]

    def handle_endtag(self, tag: str) -> None:
        self._kind = ""

    def handle_data(self, data: str) -> None:
        self.pieces.append((self._kind, data))

    def of(self, kind: str) -> list[str]:
        return [text for one, text in self.pieces if one == kind]


def test_the_page_has_everything_and_needs_nothing(player: SessionPlayer, tmp_path: Path) -> None:
    path = tmp_path / "answers.html"
    player.execute(f"/export {path}")
    page = Page(path.read_text())
    assert not page.fetched
    assert page.of("prompt") == ["Hello <b>", "And & then?"]
    assert {"AR (target)", "SD (speculative)", "reference", "exact"} <= set(page.of("td"))
    notes = " ".join(page.of("note"))
    assert "tokens/s over our own AR on this prompt" in notes and "processor greedy" in notes
    assert "egag_gamma_min 5 is above" in " ".join(page.of("note bad"))
    first = player.session.log[0]
    (_, spans) = first.answers[1]
    kinds = {kind: [span.text for span in spans if span.kind == kind] for kind in ("accepted", "rejected", "target")}
    assert kinds["accepted"] and kinds["rejected"] and kinds["target"]
    assert "".join(span.text for span in spans if span.kind != "rejected") == first.records[1].text
    assert len(page.of("rejected")) > len(kinds["rejected"]), "the legend is one more"


def test_controls_of_an_answer_do_not_leave(tmp_path: Path, player: SessionPlayer) -> None:
    player.execute("a\x1b[2Jb")
    path = tmp_path / "answers.html"
    player.execute(f"/export {path}")
    assert "\x1b" not in path.read_text() and "a\\x1b[2Jb" in path.read_text()


@pytest.mark.parametrize("name", ["mine.html", "mine.jsonl"])
def test_a_file_is_not_replaced_unasked(name: str, tmp_path: Path, player: SessionPlayer) -> None:
    (tmp_path / name).write_text("mine")
    player.execute(f"/export {tmp_path / name}")
    assert str(tmp_path / name) in told(player)
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize(
    ("argument", "quoted"),
    [
        ("", ["/export FILE"]),
        ("answers.txt", ["'answers.txt'", ".jsonl", ".html"]),
        ("answers", ["'answers'", ".jsonl", ".html"]),
        ("answers.HTML", ["'answers.HTML'", ".jsonl", ".html"]),
        ("answers.html", ["answers"]),
    ],
)
def test_what_cannot_be_exported(argument: str, quoted: list[str], idle_session: Session) -> None:
    with refused(*quoted):
        execute(idle_session, f"/export {argument}".strip())


def test_a_rejected_newline_breaks_no_line(player: SessionPlayer, tmp_path: Path) -> None:
    """It stands where it was drafted, as a sign; the answer's own newlines are newlines."""
    first = player.session.log[0]
    spans = (Span("a\n", "accepted"), Span("b\n", "rejected"), Span("c", "target"))
    player.session.log[:] = [replace(first, answers=(("SD", spans),))]
    path = tmp_path / "answers.html"
    player.execute(f"/export {path}")
    assert re.sub("<[^>]*>", "", path.read_text().partition("<h3>SD</h3>")[2]).lstrip().startswith("a\nb↵c")


def test_the_page_says_which_models_answered_what(player: SessionPlayer, tmp_path: Path) -> None:
    first, *_ = player.session.log
    player.session.log[:] = [first, first, replace(first, models="target another, cpu, float32")]
    path = tmp_path / "answers.html"
    player.execute(f"/export {path}")
    page = path.read_text()
    assert page.count(f"<p>{first.models}</p>") == 1 and page.count("<p>target another, cpu, float32</p>") == 1

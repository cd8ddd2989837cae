"""/batch: a file of prompts, several at a time, on a tiny pair."""

import io
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from ablation.plan.grid import BatchLoad, Configuration, PlannedGeneration
from ablation.plan.prompts.file import Prompt
from ablation.results.tables.batch import HEADERS, MEANING
from repl.measuring.slots import BatchSlots
from repl.player import SessionPlayer
from repl.screen.plain import PlainView
from repl.session import Session
from tests.ablation.conftest import write_lines
from tests.ablation.mock_engine import GREEDY, make_round
from utils.events import Round

PROMPTS = [{"prompt": f"say {word}"} for word in ("ab", "abab", "b", "bb bb", "a")]


@pytest.fixture
def player(new_session: Callable[[], Session]) -> SessionPlayer:
    out, err = Console(file=io.StringIO(), width=140), Console(file=io.StringIO(), width=140)
    return SessionPlayer(new_session(), PlainView(out, err))


def said(player: SessionPlayer) -> tuple[str, str]:
    out, err = player.view.out.file, player.view.err.file
    assert isinstance(out, io.StringIO) and isinstance(err, io.StringIO)
    return out.getvalue(), err.getvalue()


def test_every_method_answers_the_file_and_is_compared_at_this_size(player: SessionPlayer, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", *PROMPTS)
    player.execute("/length 6")
    player.execute("/suffix on")
    player.execute(f"/batch {path} 3")
    out, err = said(player)
    assert player.failures == 0, err
    assert "Suffix" in out and "speculative" in out
    assert out.count("5 exact") + out.count("exact") >= 3
    assert not player.session.log, "answers of a file are no answers of the dialogue"


def test_headings_and_words_are_whole_on_80_columns(player: SessionPlayer, tmp_path: Path) -> None:
    player.view.out.width = 80
    player.execute("/length 4")
    player.execute(f"/batch {write_lines(tmp_path / 'p.jsonl', *PROMPTS)} 2")
    out, _ = said(player)
    assert "…" not in out and max(map(len, out.splitlines())) <= 80
    words = {word for heading in HEADERS for word in heading.split()} | set(MEANING.split())
    assert words <= set(out.split())


def test_it_works_as_the_first_line(player: SessionPlayer, tmp_path: Path) -> None:
    """Nobody has waited for the models, so that nothing has decided what is on."""
    assert player.session.start is None
    player.execute(f"/batch {write_lines(tmp_path / 'p.jsonl', *PROMPTS[:2])} 2")
    out, err = said(player)
    assert player.failures == 0, err
    assert "Auto" in out and "2 exact" in out, "what the pair decides is on"


@pytest.mark.parametrize("times", [1, 2])
def test_stopped_it_says_so_and_shows_what_is_whole(
    player: SessionPlayer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    begin, begun = BatchSlots.begin, []

    def struck(slots: BatchSlots, place: PlannedGeneration) -> None:
        begun.append(place.configuration.name)
        if len(begun) == 2:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
        begin(slots, place)

    monkeypatch.setattr(BatchSlots, "begin", struck)
    player.execute("/length 4")
    player.execute(f"/batch {write_lines(tmp_path / 'p.jsonl', *PROMPTS)} 2")
    out, err = said(player)
    assert player.interrupted and len(begun) == 2 and "stopped" in err
    assert "reference" in out and ("speculative" in out) is (times == 1)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/batch", "no prompts given; expected /batch FILE"),
        ("/batch nosuch", "unknown prompt set 'nosuch'"),
        ("/batch code 0", "an integer from 1 to 1000"),
        ("/batch none.jsonl", "cannot be read"),
    ],
)
def test_what_is_wrong_is_told_before_the_models_are_waited_for(
    player: SessionPlayer, line: str, expected: str
) -> None:
    player.execute(line)
    assert player.failures == 1 and expected in said(player)[1]


@dataclass
class Told:
    """What a table shows."""

    console: Console

    @property
    def text(self) -> str:
        file = self.console.file
        assert isinstance(file, io.StringIO)
        return file.getvalue()


def test_a_line_a_text_shows_it_grow() -> None:
    console = Console(file=io.StringIO(), width=80, height=10, force_terminal=True, color_system=None)
    places = [
        PlannedGeneration(Prompt(f"p{number}", ("x",)), 1, Configuration("suffix"), GREEDY, 1, 0, load=BatchLoad(2))
        for number in range(2)
    ]
    with BatchSlots(console, lambda ids: "".join(f"<{one}>" for one in ids), {"suffix": "Suffix"}, 2) as slots:
        slots.begin(places[0])
        for place in places:
            slots.prompted(place, None, {}, [])  # type: ignore[arg-type]
        round: Round = make_round(0, (5, 9), 1, 6, 0.1)
        for place in places:
            slots.round(place, round)
        slots._paint()
        slots.ended(places[0])
        slots._paint()
    text = Told(console).text
    assert "Suffix  2 at a time" in text and "0 of 2 texts are whole" in text and "1 of 2 texts are whole" in text
    assert "p0" in text and "<5>" in text and "50%" in text

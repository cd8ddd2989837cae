"""/why: how the time of the last answer divides, on a tiny pair and on accounts made by hand."""

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from repl.player import SessionPlayer
from repl.screen.plain import PlainView
from repl.screen.tables import TableRow
from repl.screen.why import bars
from repl.session import Session
from sampling.measure.ledger import PARTS, Ledger

AR = Ledger(0.040, 0.0, 0.0, 0.0, 0.010, plain=0.050, rows=1.0, tokens=1.0)
SD = Ledger(0.020, 0.010, 0.005, 0.000, 0.005, plain=0.050, rows=3.0, tokens=2.0, alpha=0.5, needed_alpha=0.2)


@pytest.fixture
def player(new_session: Callable[[], Session]) -> SessionPlayer:
    out, err = (Console(file=io.StringIO(), width=80) for _ in range(2))
    return SessionPlayer(new_session(), PlainView(out, err))


def said(player: SessionPlayer) -> tuple[str, str]:
    out, err = player.view.out.file, player.view.err.file
    assert isinstance(out, io.StringIO) and isinstance(err, io.StringIO)
    texts = out.getvalue(), err.getvalue()
    for file in (out, err):
        file.seek(0)
        file.truncate()
    return texts


def draw(*ledgers: Ledger, width: int = 80) -> list[str]:
    rows = [TableRow(f"row {place}", None, ledger=one) for place, one in enumerate(ledgers)]  # type: ignore[arg-type]
    return [bar.plain for bar in bars(rows, Console(file=io.StringIO(), width=width))]


def test_an_answer_is_explained_run_by_run(player: SessionPlayer) -> None:
    player.execute("/beam on")
    player.execute("Hello")
    said(player)
    player.execute("/why")
    out, err = said(player)
    assert not player.failures and not err
    assert all(len(line.rstrip()) <= 80 for line in out.splitlines())
    assert out.splitlines()[0] == "Where the time of a token went, in ms"
    for part, meaning in PARTS.items():
        assert any(
            part in line and f"({colour})" in line and meaning in line
            for line in out.splitlines()
            for colour in ("blue", "magenta", "yellow", "cyan", "white")
        )
    answers = player.session.answers
    assert answers is not None
    for name in ("target", "speculative", "ngram"):
        account = answers.comparison.metrics[name]
        assert f"{1e3 * account.decode_s / account.new_tokens:.1f} ms" in out
    assert "SD: " in out and "tokens a round" in out and "Beam search is compared with nothing: other output" in out


def test_one_run_stands_beside_ar_alone(player: SessionPlayer) -> None:
    player.execute("Hello")
    said(player)
    player.execute("/why ngram")
    out, _ = said(player)
    assert out.count("NASD") == 4 and "AR " in out and "\nSD" not in out
    player.execute("/why nasd")
    assert "NASD" in said(player)[0]
    player.execute("/why beam")
    assert "unknown run of the last answer 'beam'" in said(player)[1]
    assert player.failures == 1


def test_what_cannot_be_explained_says_why(player: SessionPlayer) -> None:
    player.execute("/why")
    assert "nothing was answered yet" in said(player)[1]
    player.execute("/target off")
    player.execute("Hello")
    player.execute("/why")
    assert "it needs AR beside it (/target on)" in " ".join(said(player)[1].split())


def test_bars_are_as_long_as_their_parts() -> None:
    """80 columns less 5 of the name, a space and 18: 56 cells for 50 ms."""
    plain, sd = draw(AR, SD)
    assert plain == "row 0 " + "█" * 45 + "·" * 11 + " 50.0 ms 1.00x"
    assert sd == "row 1 " + "█" * 22 + "▓" * 12 + "▒" * 5 + "·" * 6 + " 40.0 ms 1.25x"


def test_noise_below_zero_has_no_length() -> None:
    (bar,) = draw(replace(SD, growth=-0.005))
    assert "▓" not in bar and bar.count("█") + bar.count("▒") + bar.count("·") == 56


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_bars_fit_every_width(width: int) -> None:
    assert all(len(line) <= max(width, 32) for bar in draw(AR, SD, width=width) for line in bar.splitlines())


def test_terminals_without_shades_get_ascii() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    (bar,) = bars([TableRow("SD", None, ledger=SD)], Console(file=file, width=80))  # type: ignore[arg-type]
    assert bar.plain.isascii() and {"#", "%", "=", "."} <= set(bar.plain)


def test_acceptance_is_told_by_place(player: SessionPlayer) -> None:
    player.execute("/length 40")
    player.execute("Hello")
    said(player)
    player.execute("/why")
    out, err = said(player)
    answers = player.session.answers
    assert answers is not None and not err
    rounds = answers.rounds_at("speculative")
    whole = answers.comparison.metrics["speculative"]
    assert sum(at.judged for at in rounds) == whole.tested and sum(at.accepted for at in rounds) == whole.accepted
    assert "alpha by tokens of the answer before" in out and "0-7" in out and "32-127" in out

"""/ablate and /results on a tiny pair."""

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from repl.files.user_files import state_folder
from repl.player import SessionPlayer
from repl.screen.plain import PlainView
from repl.session import Session

PLAN = """
length = 6
limit = 2
prompts = ["dialogue"]
[[methods]]
method = "speculative"
gamma = [1, 3]
"""


@pytest.fixture
def player(new_session: Callable[[], Session], state_folder: Path) -> SessionPlayer:
    out, err = Console(file=io.StringIO(), width=100), Console(file=io.StringIO(), width=100)
    return SessionPlayer(new_session(), PlainView(out, err))


def said(player: SessionPlayer) -> tuple[str, str]:
    out, err = player.view.out.file, player.view.err.file
    assert isinstance(out, io.StringIO) and isinstance(err, io.StringIO)
    return out.getvalue(), err.getvalue()


def test_a_plan_runs_on_the_loaded_pair_with_the_sessions_settings(player: SessionPlayer, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(PLAN)
    player.execute("/chat off")
    player.execute(f"/ablate {tmp_path / 'mine.toml'}")
    out, err = said(player)
    assert player.failures == 0, err
    assert "SD (speculative) gamma=3" in out and "AR again" in out and "8 rows added, 0 failed" in err
    (results,) = (state_folder() / "ablations").glob("mine-*.csv")
    with results.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8 and {row["chat"] for row in rows} == {"false"} and {row["length"] for row in rows} == {"6"}
    assert (results.parent / f"{results.stem}.report" / "index.html").is_file()
    player.execute("/results")
    assert said(player)[0].count("(speculative) gamma=3") == 2 * out.count("(speculative) gamma=3")


def test_the_target_stays_in_the_format_that_was_loaded(player: SessionPlayer, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(PLAN + '[pair]\ntarget_weights = ["full", "int8"]\n')
    player.execute(f"/ablate {tmp_path / 'mine.toml'}")
    out, err = said(player)
    assert player.failures == 0, err
    assert "[pair] of the plan is not used here: target_weights stay as loaded" in out + err
    assert "8 rows added, 0 failed" in err


def test_a_wrong_plan_is_refused_before_anything_runs(player: SessionPlayer) -> None:
    player.execute("/ablate quik")
    player.execute("/results")
    _, err = said(player)
    assert player.failures == 2
    assert "Did you mean 'quick'?" in err and "there are no results yet" in err


def test_a_second_ctrl_c_says_where_the_results_are(player: SessionPlayer, monkeypatch: pytest.MonkeyPatch) -> None:
    def struck(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("repl.measuring.ablate.run_plan", struck)
    player.execute("/ablate gamma")
    assert player.interrupted and not player.failures
    assert "stopped at once; /results reports the rows so far" in said(player)[1]

"""`--retry-failed`: what failed is played again, nothing else is, and no kill leaves a file that is not whole."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablation.plan.grid import Plan
from ablation.results.table import key
from ablation.run.configuration_run import ConfigurationRun
from tests.ablation.conftest import Invoke
from tests.ablation.mock_engine import GREEDY, MockEngine, mock_engine, mock_plan
from tests.ablation.playing import Silent, lasting, play, rows
from tests.refusals import refused


def in_order(path: Path) -> list[str]:
    return [row["id"] + row["processor"] + row["seed"] for row in rows(path)]


def test_failed_rows_are_replaced_and_nothing_else_is_played(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.csv"
    play(out, engine=mock_engine(fail="speculative"))
    kept = [row for row in rows(out) if not row["error"]]
    engine = MockEngine()
    outcome = play(out, engine=engine, resume=True, retry_failed=True)  # type: ignore[arg-type]
    assert outcome.rows == 16 and not outcome.failed and not outcome.failed_before
    assert lasting(out) == lasting(whole)
    assert in_order(out) == in_order(whole), "the plan's order"
    assert [row for row in rows(out) if row["method"] == "target"] == kept
    assert {call[0] for call in engine.calls} == {"target", "speculative"} and len(engine.calls) == 8 + 16


def test_what_was_compared_with_a_failed_reference_is_played_again(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.csv"
    play(out, engine=mock_engine(fail="target"))
    assert {row["speedup"] for row in rows(out)} == {""}
    assert play(out, resume=True, retry_failed=True).rows == mock_plan().generations
    assert lasting(out) == lasting(whole)


def test_without_it_failed_rows_stay(tmp_path: Path) -> None:
    out = tmp_path / "r.csv"
    play(out, engine=mock_engine(fail="speculative"))
    before = out.read_bytes()
    assert play(out, resume=True).rows == 0 and out.read_bytes() == before


@pytest.mark.parametrize(("stop_after", "written"), [(1, 1), (5, 6)])
def test_one_that_is_stopped_leaves_a_whole_file_to_go_on_with(
    whole: Path, tmp_path: Path, stop_after: int, written: int
) -> None:
    """The fifth row comes with the sixth, behind the reference of both."""
    out = tmp_path / "r.csv"
    play(out, engine=mock_engine(fail="speculative"))
    play(out, display=Silent(stop_after), resume=True, retry_failed=True)
    keys = [key(row) for row in rows(out)]
    assert len(keys) == len(set(keys)) == 16 + written and not any(row["error"] for row in rows(out))
    assert play(out, resume=True).rows == 16 - written and lasting(out) == lasting(whole)


def test_failed_rows_stay_until_everything_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "r.csv"
    play(out, engine=mock_engine(fail="speculative"))
    before = out.read_bytes()

    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ablation.results.store.write_atomically", full)
    with refused(out, "No space left on device"):
        play(out, resume=True, retry_failed=True)
    assert out.read_bytes() == before


def test_a_batch_with_a_failed_text_is_played_as_a_whole(tmp_path: Path) -> None:
    def batched() -> Plan:
        return replace(mock_plan(3), processors=(GREEDY,), seeds=(1,), batches=(2,))

    whole, out = tmp_path / "whole.csv", tmp_path / "r.csv"
    play(whole, batched())
    play(out, batched(), mock_engine("speculative"))
    content = out.read_text()
    out.write_text(content.replace("RuntimeError: planted", "", 1))  # one of a batch of three did not fail
    outcome = play(out, batched(), resume=True, retry_failed=True)
    assert outcome.rows == 6 and lasting(out) == lasting(whole)


def test_it_needs_rows_of_an_earlier_run(call: Invoke, tmp_path: Path) -> None:
    result = call("--prompt", "a", "--out", tmp_path / "r.csv", "--retry-failed")
    assert result.exit_code == 2 and "expected --resume beside it" in result.output.replace("\n", " ")


def test_the_command_says_what_it_plays_again(call: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "r.csv"
    given = ("--prompt", "a", "--methods", "suffix", "--length", "4", "--out", out)
    with monkeypatch.context() as broken:
        streamed = ConfigurationRun._streamed

        def fail(run: ConfigurationRun, texts: Any) -> Any:
            if run.configuration.name == "suffix":
                raise RuntimeError("planted")
            return streamed(run, texts)

        broken.setattr(ConfigurationRun, "_streamed", fail)
        assert call(*given).exit_code == 1
    assert any(row["error"] for row in rows(out))
    again = call(*given, "--resume", "--retry-failed")
    assert again.exit_code == 0 and "1 row will be played again" in again.output, again.output
    assert not any(row["error"] for row in rows(out)) and len(rows(out)) == 3

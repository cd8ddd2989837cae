"""A plan into a file: order, numbers, what survives a kill."""

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablation.plan.grid import PlannedGeneration
from ablation.results.record import Record
from ablation.results.store import whole_rows
from ablation.results.table import columns, key
from ablation.run.job import PlanJob
from ablation.run.results_file import Files
from tests.ablation.mock_engine import NUCLEUS, MockEngine, mock_engine, mock_plan
from tests.ablation.playing import Silent, copied, lasting, play, records_of, results_file, row_ends, rows
from utils.events import Event, Round
from utils.parameter import ChosenPart


def test_every_key_once_and_all_of_them(whole: Path) -> None:
    found = [key(row) for row in rows(whole)]
    assert len(found) == len(set(found)) == mock_plan().generations == 2 * 4 * 2 * 2
    assert tuple(rows(whole)[0]) == columns()


def test_rows_hold_the_numbers_worked_out_by_hand(whole: Path) -> None:
    reference, *others = rows(whole)[:4]
    assert reference["configuration"] == "target" and reference["speedup"] == "1.0" and reference["gamma"] == ""
    assert float(reference["tokens_per_s"]) == pytest.approx(4 / 0.4) and reference["alpha"] == ""
    drafted = next(row for row in others if row["configuration"] == "speculative gamma=4")
    assert (drafted["gamma"], drafted["drafted"], drafted["tested"], drafted["accepted"]) == ("4", "4", "4", "2")
    assert float(drafted["speedup"]) == pytest.approx(2.0)
    assert float(drafted["c"]) == pytest.approx((0.05 / 4) / 0.05)
    assert float(drafted["prefill_s"]) == 0.25 and float(drafted["ttft_s"]) == pytest.approx(0.35)
    assert (drafted["accept_hist"], drafted["tested_at"], drafted["tokens_by_round"]) == ("0 2", "2 2", "2 2")
    assert drafted["divergence_verdict"] == "exact" and drafted["text"] == 'said "a, b"\n5 6 7 8'
    control = next(row for row in others if row["configuration"] == "control")
    assert control["method"] == "target" and float(control["speedup"]) == pytest.approx(1.0)


def test_over_as_many_blocks_as_configurations_each_has_every_place_once(tmp_path: Path) -> None:
    display = Silent()
    play(tmp_path / "r.csv", mock_plan(prompts=4), display=display)
    blocks = [display.places[i : i + 4] for i in range(0, len(display.places), 4)]
    orders = [[place.configuration.name for place in block] for block in blocks]
    assert all(len(set(places)) == 4 for places in zip(*orders[:4], strict=True)), "AR and its control among them"


def test_passes_follow_each_other_and_prompts_in_them(tmp_path: Path) -> None:
    display = Silent()
    play(tmp_path / "r.csv", display=display)
    blocks = [display.places[i : i + 4] for i in range(0, len(display.places), 4)]
    assert [(block[0].seed, block[0].processor.name, block[0].prompt.id) for block in blocks[:5]] == [
        (1, "greedy", "p0"),
        (1, "greedy", "p1"),
        (1, "nucleus", "p0"),
        (1, "nucleus", "p1"),
        (2, "greedy", "p0"),
    ]


def test_a_configuration_runs_with_its_own_values(tmp_path: Path) -> None:
    engine = MockEngine()
    play(tmp_path / "r.csv", engine=engine)  # type: ignore[arg-type]
    ran = {(name, gamma, seed, processor) for name, gamma, seed, processor, _ in engine.calls if name != "target"}
    assert ran == {("speculative", g, s, p) for g in (2, 4) for s in (1, 2) for p in ("greedy", "nucleus")}


def test_resume_after_a_kill_at_every_row_boundary(whole: Path, tmp_path: Path) -> None:
    content, expected = whole.read_bytes(), lasting(whole)
    ends = row_ends(content)
    assert len(ends) == len(expected) + 1
    for number, end in enumerate(ends):
        cut = copied(whole, tmp_path / "cut.csv", content[:end])
        outcome = play(cut, resume=True)
        assert lasting(cut) == expected and outcome.rows == len(expected) - number


def test_resume_after_a_kill_in_the_middle_of_a_write(whole: Path, tmp_path: Path) -> None:
    content, expected = whole.read_bytes(), lasting(whole)
    last = whole_rows(content[:-1])
    for end in range(last + 1, len(content), 7):
        cut = copied(whole, tmp_path / "cut.csv", content[:end])
        play(cut, resume=True)
        assert lasting(cut) == expected
    header = content.index(b"\n")
    cut = copied(whole, tmp_path / "cut.csv", content[: header // 2])
    play(cut, resume=True)
    assert lasting(cut) == expected


def test_resumed_trace_has_each_round_once(whole: Path, tmp_path: Path) -> None:
    content = whole.read_bytes()
    cut = copied(whole, tmp_path / "cut.csv", content[: whole_rows(content[: len(content) // 2])])
    trace = Files(whole).trace.read_text()
    Files(cut).trace.write_text(trace[: len(trace) * 3 // 4])
    play(cut, resume=True, trace=True)
    assert sorted(Files(cut).trace.read_text().splitlines()) == sorted(trace.splitlines())


def test_losslessness_is_asked_once_for_each_configuration_and_processor() -> None:
    asked: list[tuple[str, object, str]] = []

    class Asked(MockEngine):
        def lossless(self, name: str, values: Mapping[str, Any]) -> bool:
            asked.append((name, values["gamma"], values["processor"].name))
            return name == "target"

    # Not greedy: there an output is compared with the reference's where it is lossless, which asks again.
    plan = replace(mock_plan(), processors=(NUCLEUS, ChosenPart("multinomial", (1.0,))))
    records = list(records_of(Asked(), plan))
    assert len(asked) == len(plan.configurations) * len(plan.processors)
    assert {record.method for record in records if record.lossless} == {"target"}


def test_ctrl_c_finishes_the_row(tmp_path: Path) -> None:
    """The fifth row comes with all others of its block, in which the reference ran last."""
    out = tmp_path / "r.csv"
    outcome = play(out, display=Silent(stop_after=5))
    assert outcome.stopped and outcome.rows == len(rows(out)) == 8
    runs = json.loads(Files(out).manifest.read_text())["runs"]
    assert runs[0]["stopped"] and runs[0]["rows"] == 8 and runs[0]["end"]
    again = play(out, resume=True)
    assert not again.stopped and len(rows(out)) == mock_plan().generations


def test_what_is_stopped_before_its_reference_is_played_again(whole: Path, tmp_path: Path) -> None:
    """Three generations of the second block are over when it is stopped: no row tells of them, none is lost."""
    out = tmp_path / "r.csv"
    display = Silent()

    def begin(place: PlannedGeneration) -> None:
        display.places.append(place)
        if len(display.places) == 7:
            os.kill(os.getpid(), signal.SIGINT)

    display.begin = begin  # type: ignore[method-assign]
    outcome = play(out, display=display)
    assert outcome.stopped and outcome.rows == len(rows(out)) == 4 and len(display.places) == 7, "stopped at once"
    assert play(out, resume=True).rows == mock_plan().generations - 4 and lasting(out) == lasting(whole)


def test_a_failed_generation_is_a_row_and_is_not_run_again(tmp_path: Path) -> None:
    out = tmp_path / "r.csv"
    outcome = play(out, engine=mock_engine(fail="speculative"))
    failed = [row for row in rows(out) if row["error"]]
    assert outcome.failed == len(failed) == 16 and all(row["tokens_per_s"] == "" for row in failed)
    assert failed[0]["error"] == "RuntimeError: planted" and failed[0]["gamma"] in "24"
    assert play(out, resume=True).rows == 0


def test_a_half_done_prompt_is_compared_with_the_machine_as_it_is_now(whole: Path, tmp_path: Path) -> None:
    content = whole.read_bytes()
    cut = copied(whole, tmp_path / "cut.csv", content[: row_ends(content)[2]])
    engine = MockEngine()
    play(cut, engine=engine, resume=True)  # type: ignore[arg-type]
    assert [call[0] for call in engine.calls[:3]] == ["target", "speculative", "speculative"]


class Slower(MockEngine):
    """The machine after an interruption: everything takes twice as long."""

    def stream(self, *asked: Any, **more: Any) -> Iterator[Event]:
        for event in super().stream(*asked, **more):
            yield replace(event, verify_s=2 * event.verify_s) if isinstance(event, Round) else event


def test_a_speedup_follows_from_the_speeds_in_its_row(whole: Path, tmp_path: Path) -> None:
    content = whole.read_bytes()
    cut = copied(whole, tmp_path / "cut.csv", content[: row_ends(content)[2]])
    play(cut, engine=Slower(), resume=True)  # type: ignore[arg-type]
    first, *others = (row for row in rows(cut) if row["id"] == "p0")
    assert first["method"] == "target" and first["target_tokens_per_s"] == first["tokens_per_s"]
    assert len({row["target_tokens_per_s"] for row in others[:4]}) == 2, "AR ran again within the prompt"
    for row in rows(cut):
        ratio = float(row["tokens_per_s"]) / float(row["target_tokens_per_s"])
        assert float(row["speedup"]) == pytest.approx(ratio)


class Slow(Silent):
    """A display that leaves time for a kill."""

    def record(self, record: Record) -> None:
        time.sleep(0.002)


def wait_for_growth(path: Path) -> None:
    """Until the file is larger than now, two seconds at most."""
    before = path.stat().st_size if path.exists() else 0
    for _ in range(1000):
        if path.exists() and path.stat().st_size > before:
            return
        time.sleep(0.002)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_kill_9_again_and_again_loses_and_doubles_nothing(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed.csv"
    kills = 0
    for attempt in range(200):
        child = os.fork()
        if not child:
            try:
                play(out, display=Slow(), resume=True, trace=True)
            finally:
                os._exit(0)
        wait_for_growth(out)
        time.sleep(0.003 * (attempt % 7))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kills += 1
        if out.exists() and len(rows(out)) == mock_plan().generations:
            break
    play(out, resume=True, trace=True)
    assert kills >= 3
    assert lasting(out) == lasting(whole)
    assert sorted(Files(out).trace.read_text().splitlines()) == sorted(Files(whole).trace.read_text().splitlines())


def test_an_old_failure_is_still_a_failure(tmp_path: Path) -> None:
    play(tmp_path / "r.csv", engine=mock_engine(fail="speculative"))
    with results_file(tmp_path / "r.csv", resume=True) as file:
        job = PlanJob(mock_engine(), file.plan, file)
        assert job.outcome.failed_before == 16 and job.missing == 0

"""Plans in batches: numbers worked out by hand, whole batches on resume, what is refused, a real pair."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from ablation.commands.show import show_batches
from ablation.plan.file import read_experiment, read_loads
from ablation.plan.grid import AGAIN, BatchLoad, Configuration, Plan
from ablation.plan.overrides import Overrides
from ablation.plan.prompts.file import Prompt
from ablation.plan.shard import jobs
from ablation.plan.slo import Slo
from ablation.report.load import load_results
from ablation.report.tables.batches import batches_section
from ablation.report.tables.summary import summarise
from ablation.report.write import write_report
from ablation.results.store import to_text
from ablation.results.table import columns
from ablation.results.tables.batch import batch_lines, cells
from ablation.run.results_file import Files
from sampling.methods.settings import Settings
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from tests.ablation.conftest import Invoke, objects, write_lines
from tests.ablation.mock_engine import GREEDY, MockEngine, mock_engine, mock_plan
from tests.ablation.plan_files import Write
from tests.ablation.playing import Silent, lasting, play, records_of, row_ends, rows
from tests.refusals import lacking, refused

LOADS = (1, 2)


def batched(prompts: int = 3, batches: tuple[int, ...] = LOADS, **more: object) -> Plan:
    return replace(mock_plan(prompts), processors=(GREEDY,), seeds=(1,), batches=batches, **more)  # type: ignore[arg-type]


def test_every_configuration_answers_all_prompts_at_each_size(tmp_path: Path) -> None:
    display = Silent()
    play(tmp_path / "r.csv", batched(), display=display)
    found = rows(tmp_path / "r.csv")
    assert len(found) == batched().generations == 2 * 4 * 3
    order = [(row["batch"], row["configuration"]) for row in found[::3]]
    assert order[0] == ("1", "target") and order[4] == ("2", "target"), "the reference goes first at each size"
    assert len(set(order)) == 8
    assert [place.load for place in display.places] == [BatchLoad(1)] * 4 + [BatchLoad(2)] * 4


def test_rows_hold_the_numbers_worked_out_by_hand(tmp_path: Path) -> None:
    """Three texts, two at a time: AR takes 4 rounds of 0.1 s twice, for 12 tokens; drafting half of it."""
    play(tmp_path / "r.csv", batched(slo=Slo(400.0, 50.0)))
    found = {(row["configuration"], row["batch"], row["id"]): row for row in rows(tmp_path / "r.csv")}
    plain, drafted = found["target", "2", "p0"], found["speculative gamma=4", "2", "p0"]
    assert float(plain["throughput_tps"]) == pytest.approx(12 / 0.8)
    assert float(drafted["throughput_tps"]) == pytest.approx(12 / 0.4)
    assert float(plain["e2e_throughput_tps"]) == pytest.approx(12 / (0.8 + 3 * 0.25))
    assert float(drafted["speedup"]) == pytest.approx(2.0) and plain["speedup"] == "1.0"
    assert (plain["live_rows"], found["target", "2", "p2"]["live_rows"]) == ("2.0", "1.0"), "the third is alone"
    assert plain["verify_ms"] == plain["draft_ms"] == drafted["c"] == drafted["token_verify_ms"] == ""
    assert found["target", "1", "p0"]["verify_ms"] != "", "a batch of one has its rounds to itself"
    assert float(plain["tpot_ms"]) == pytest.approx(100.0) and float(drafted["tpot_ms"]) == pytest.approx(100 / 3)
    assert float(plain["goodput_rps"]) == 0.0 and float(drafted["goodput_rps"]) == pytest.approx(3 / (0.4 + 0.75))


def torn_behind(folder: Path, plan: Plan, cut: int) -> tuple[Path, Path]:
    """The results of a plan, and what a run leaves that ends behind so many rows."""
    whole, torn = folder / "whole.csv", folder / "torn.csv"
    play(whole, plan)
    content = whole.read_bytes()
    torn.write_bytes(content[: row_ends(content)[cut]])
    Files(torn).manifest.write_bytes(Files(whole).manifest.read_bytes())
    return whole, torn


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 7, 12, 20])
def test_resume_works_by_whole_batches(tmp_path: Path, cut: int) -> None:
    whole, torn = torn_behind(tmp_path, batched(), cut)
    content = whole.read_bytes()
    engine = MockEngine()
    play(torn, batched(), engine, resume=True)  # type: ignore[arg-type]
    assert lasting(torn) == lasting(whole)
    kept = row_ends(torn.read_bytes())[cut // 3 * 3]
    assert torn.read_bytes()[:kept] == content[:kept], "whole batches stay as they were"


def by_task() -> Plan:
    """Three prompts of one task and two of another, in turn, two at a time."""
    plan = batched(5, (2,), by_task=True)
    return replace(plan, prompts=tuple(replace(one, task="ab"[place % 2]) for place, one in enumerate(plan.prompts)))


def test_by_task_a_batch_holds_one_kind_of_text(tmp_path: Path) -> None:
    outcome = play(tmp_path / "r.csv", by_task())
    found = rows(tmp_path / "r.csv")
    assert outcome.rows == len(found) == by_task().generations == 5 * 4
    assert [row["task"] for row in found] == ["a"] * 12 + ["b"] * 8
    plain = {row["id"]: row["live_rows"] for row in found if row["configuration"] == "target"}
    assert plain == {"p0": "2.0", "p2": "2.0", "p4": "1.0", "p1": "2.0", "p3": "2.0"}, "no text of the other task"
    rates = {(row["task"], row["configuration"]): row["throughput_tps"] for row in found}
    assert float(rates["b", "target"]) > float(rates["a", "target"]), "the third text of the one was alone"
    assert [len(units) for units in jobs(by_task())] == [3, 2], "machines may share tasks"


@pytest.mark.parametrize("cut", [0, 2, 3, 11, 12, 13, 15])
def test_by_task_resume_keeps_the_whole_batches_of_each(tmp_path: Path, cut: int) -> None:
    whole, torn = torn_behind(tmp_path, by_task(), cut)
    outcome = play(torn, by_task(), resume=True)
    assert lasting(torn) == lasting(whole)
    kept = cut // 3 * 3 if cut <= 12 else 12 + (cut - 12) // 2 * 2
    assert outcome.rows == 20 - kept


def test_by_task_what_failed_is_played_again_with_its_own_batch(tmp_path: Path) -> None:
    play(tmp_path / "r.csv", by_task(), mock_engine("speculative"))
    again = play(tmp_path / "r.csv", by_task(), resume=True, retry_failed=True)
    assert (again.rows, again.failed) == (10, 0)
    found = rows(tmp_path / "r.csv")
    assert [row["task"] for row in found] == ["a"] * 12 + ["b"] * 8, "in the plan's order"


def test_a_stop_comes_after_the_batch_under_way(tmp_path: Path) -> None:
    outcome = play(tmp_path / "r.csv", batched(), display=Silent(stop_after=2))
    assert outcome.stopped and outcome.rows == 3
    again = play(tmp_path / "r.csv", batched(), resume=True)
    assert again.rows == 21 and not again.stopped


def test_a_batch_that_fails_leaves_errors_and_the_others_run(tmp_path: Path) -> None:
    outcome = play(tmp_path / "r.csv", batched(batches=(2,)), mock_engine("speculative"))
    assert outcome.failed == 6 and outcome.rows == 12
    failed = [row for row in rows(tmp_path / "r.csv") if row["error"]]
    assert {row["error"] for row in failed} == {"RuntimeError: planted"} and {row["batch"] for row in failed} == {"2"}


def real_plan(pair: Pair, **more: object) -> tuple[PairEngine, Plan]:
    prompts = (
        Prompt("a", ("Say a", "again")),
        Prompt("b", ("b" * 60,)),
        Prompt("c", ("x" * 4000,)),
        Prompt("d", ("ab ab ab",)),
    )
    methods = Configuration("target"), AGAIN, Configuration("speculative"), Configuration("suffix")
    values = {**Settings(), "length": 12}
    return PairEngine(pair), Plan(prompts, methods, values, (GREEDY,), (1,), **more)  # type: ignore[arg-type]


def test_a_real_pair_says_in_batches_what_it_says_alone(pair: Pair) -> None:
    """Conversations go on with their own answers; a prompt that is too long is an error of its own."""
    engine, plan = real_plan(pair, batches=(1, 3))
    records = list(records_of(engine, plan))
    assert len(records) == plan.generations
    for record in records:
        if record.id == "c":
            assert record.error is not None and "context window" in record.error
        else:
            assert record.error is None and record.divergence_verdict in (None, "exact", "tie")
    texts = {(one.id, one.turn): one.output_ids for one in records if one.batch == 1 and one.configuration == "target"}
    same = [one.output_ids == texts[one.id, one.turn] for one in records if one.error is None]
    assert sum(same) >= 0.9 * len(same), "but for ties"
    live = [one.live_rows for one in records if one.batch == 3 and one.error is None]
    assert max(filter(None, live)) > 1.5


def test_prompts_that_arrive_wait_until_there_is_room(pair: Pair) -> None:
    engine, plan = real_plan(pair, batches=(1,), rates=(1000.0, 0.01))
    records = [record for record in records_of(engine, plan) if record.error is None]
    rushed = [one for one in records if one.rate == 1000.0 and one.turn == 1]
    spread = [one for one in records if one.rate == 0.01 and one.turn == 1]
    assert max(one.queued_s or 0.0 for one in rushed) > 0.0
    assert all(one.queued_s == 0.0 for one in spread), "a prompt every hundred seconds finds all places free"
    assert max(one.e2e_throughput_tps or 0.0 for one in spread) < min(one.e2e_throughput_tps or 0.0 for one in rushed)


def test_the_same_seed_brings_the_same_arrivals(pair: Pair) -> None:
    engine, plan = real_plan(pair, batches=(1,), rates=(0.01,))
    runs = [list(records_of(engine, plan)) for _ in range(2)]
    first, second = ([round(one.e2e_throughput_tps or 0.0, 3) for one in run if one.error is None] for run in runs)
    assert first == pytest.approx(second, rel=0.05)


def test_a_report_keeps_loads_apart(tmp_path: Path) -> None:
    play(tmp_path / "r.csv", batched())
    frame = load_results(tmp_path / "r.csv")
    assert set(frame["processor"].astype(str)) == {"greedy, 1 at a time", "greedy, 2 at a time"}
    assert frame.groupby("block", observed=True).size().eq(4).all()
    report = write_report(tmp_path / "r.csv")
    assert "2 at a time" in (report.folder / "report.md").read_text(encoding="utf-8")


def test_the_table_tells_what_all_texts_have_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    records = list(records_of(mock_engine(), batched()))
    lines = {(line.batch, line.configuration): line for line in batch_lines(records)}
    assert lines[2, "speculative gamma=4"].ratio == pytest.approx(2.0) and lines[2, "target"].ratio is None
    assert lines[2, "speculative gamma=2"].output == "3 exact"
    assert cells(lines[2, "target"])[:4] == ("2", "AR (target)", "15.0", "reference")
    show_batches(Console(width=160), records)
    assert "tok/s in all" in capsys.readouterr().out


def test_the_command_answers_a_file_in_batches(invoke: Invoke, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", {"prompt": "a"}, {"prompt": "bb"}, {"prompt": "ccc"})
    given = ("run", "--prompts", path, "--methods", "target,suffix", "--length", "6", "--batch", "1,2")
    result = invoke(*given, "--json", "--trace", tmp_path / "t.jsonl")
    assert result.exit_code == 0, result.output
    records = objects(result.stdout)
    assert [(one["batch"], one["configuration"]) for one in records[::3]] == [
        (1, "target"),
        (1, "suffix"),
        (2, "target"),
        (2, "suffix"),
    ]
    lines = objects((tmp_path / "t.jsonl").read_text())
    assert {line["live"] for line in lines if line["batch"] == 2} == {1, 2}
    shown = invoke(*given)
    assert shown.exit_code == 0 and "ratio in all: that over plain decoding's" in " ".join(shown.stdout.split())
    assert "tok/s in all  speedup of the median text" in shown.stderr


@pytest.mark.parametrize(
    ("options", "quoted"),
    [
        (("--batch", "0"), ("batch", "'0'", 1)),
        (("--batch", "x"), ("batch", "'x'", 1)),
        (("--rate", "2"), ("rate", "batch")),
        (("--slo", "ttft:5"), ("slo", "batch")),
        (("--batch", "2", "--rate", "-1"), ("rate", "'-1'")),
        (("--batch", "2", "--slo", "e2e:5"), ("slo", "'e2e:5'", "ttft:MS", "tpot:MS")),
        (("--batch", "2", "--full-trace", "--trace", "x.jsonl"), ("trace", "batches")),
    ],
)
@pytest.mark.usefixtures("nothing_loads")
def test_wrong_calls_are_told_before_anything_is_loaded(
    invoke: Invoke,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    quoted: tuple[object, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("run", "--prompt", "a", *options)
    assert result.exit_code == 2 and not lacking(result.output.replace("\n", " "), *quoted)


@pytest.mark.parametrize("search", ["beam", "cache"])
def test_what_takes_a_text_at_a_time_says_so(invoke: Invoke, search: str) -> None:
    more = ("--methods", "target,beam") if search == "beam" else ("--set", "cache=off")
    result = invoke("run", "--prompt", "a", "--length", "4", "--batch", "2", "--json", *more)
    assert result.exit_code == 1
    errors = [one["error"] for one in objects(result.stdout) if one["error"]]
    assert errors and all("expected no batch" in error for error in errors)


def test_a_plan_file_names_loads(write: Write) -> None:
    path = write("batch = [1, 4]", "rate = 2.5", 'slo = "ttft:500,tpot:50"', "[[methods]]", 'method = "suffix"')
    plan = read_experiment(path).plan
    assert plan.loads == (BatchLoad(1, 2.5), BatchLoad(4, 2.5)) and plan.slo == Slo(500.0, 50.0)
    assert read_experiment(path, Overrides(batch="8")).plan.batches == (8,)
    assert read_loads(None, None, None) == {"batches": (), "rates": (), "slo": None}


@pytest.mark.parametrize("given", ["ttft:0", "ttft", "tpot:x", "ttft:1,ttft:2", ""])
def test_an_slo_that_makes_no_sense_is_refused(given: str) -> None:
    with refused("slo", repr(given), "ttft:MS", "tpot:MS"):
        Slo.parse(given)


def test_an_slo_is_met_or_missed() -> None:
    slo = Slo(100.0, None)
    assert slo.met(100.0, 5000.0) and not slo.met(100.1, 1.0) and not slo.met(None, 1.0)
    assert Slo(None, 10.0).met(1e9, None), "one token has no tpot to miss"
    assert Slo.parse(Slo(1.5, 20.0).text) == Slo(1.5, 20.0)


def test_the_manifest_says_the_loads(tmp_path: Path) -> None:
    play(tmp_path / "r.csv", batched(slo=Slo(1.0)))
    grid = json.loads(Files(tmp_path / "r.csv").manifest.read_text())["fixed"]["grid"]
    assert (grid["batches"], grid["rates"], grid["slo"]) == ([1, 2], [], "ttft:1")
    with (tmp_path / "r.csv").open(newline="") as file:
        assert "batch" in next(csv.reader(file))


@pytest.mark.parametrize("rates", [(), (0.01,)])
def test_a_percentile_is_the_one_that_it_is_called(tmp_path: Path, rates: tuple[float, ...]) -> None:
    """Of 10, 20 and 40: p50 is 20, p99 is 20 + 0.98 * 20 = 39.6; p95 were 38, p90 36."""
    path = tmp_path / "r.csv"
    play(path, batched(batches=(2,), rates=rates))
    table = rows(path)
    for row in table:
        row |= {"tpot_ms": {"p0": "10", "p1": "20", "p2": "40"}[row["id"]]}
        row |= {name: {"p0": "1", "p1": "2", "p2": "4"}[row["id"]] for name in ("queued_s", "ttft_s")}
    path.write_text(to_text(table, columns()), encoding="utf-8")
    frame = load_results(path)
    section = batches_section(frame, summarise(frame))
    assert section is not None
    for line in section.tables[0].rows:
        cells = dict(zip(section.tables[0].headers, line, strict=True))
        assert cells["tpot, ms: p50, p99"] == "20.0, 39.6"
        if rates:
            assert cells["queued, s: p50, p99"] == "2.00, 3.96" and cells["ttft, s: p50, p99"] == "4.00, 7.92"

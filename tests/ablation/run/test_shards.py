"""Shards of a plan: each unit in one of them, and merged they are what one machine would have written."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.plan.grid import Configuration, Plan, WorkUnit
from ablation.plan.prompts.file import Prompt
from ablation.plan.shard import Shard, dealt, jobs
from ablation.report.load import load_results
from ablation.report.write import write_report
from ablation.results.manifest import manifest_path, read, write
from ablation.results.merge import merge
from ablation.results.store import to_text
from ablation.results.table import columns, key
from ablation.run.progress.estimate import most_tokens
from ablation.run.results_file import Files
from tests.ablation.conftest import Invoke
from tests.ablation.mock_engine import mock_plan
from tests.ablation.playing import Silent, lasting, play, rows
from tests.refusals import refused

PLAN = mock_plan(prompts=3)


def shards(folder: Path, count: int, plan: Plan = PLAN, trace: bool = False) -> list[Path]:
    """All shards of a plan, played."""
    found = []
    for index in range(1, count + 1):
        found.append(folder / f"r.{index}-of-{count}.csv")
        play(found[-1], dealt(plan, Shard(index, count)), trace=trace)
    return found


def units(plan: Plan) -> set[WorkUnit]:
    assert plan.part
    return set(plan.part.units)


def changed(path: Path, **fixed: object) -> None:
    """A shard whose manifest says something else."""
    about = read(manifest_path(path))
    about["fixed"] |= fixed
    write(manifest_path(path), about)


@given(st.lists(st.integers(1, 400), min_size=1, max_size=12), st.integers(1, 6))
@settings(max_examples=50, deadline=None)
def test_every_unit_is_in_one_shard_and_none_has_much_more_than_another(lengths: list[int], count: int) -> None:
    prompts = tuple(Prompt(f"p{i}", ("x",), max_new_tokens=length) for i, length in enumerate(lengths))
    plan = replace(PLAN, prompts=prompts)
    count = min(count, len(jobs(plan)))
    parts = [dealt(plan, Shard(index, count)) for index in range(1, count + 1)]
    whole = [unit for lot in jobs(plan) for unit in lot]
    assert sorted(unit for part in parts for unit in units(part)) == sorted(whole)
    loads = [most_tokens(part) for part in parts]
    assert sum(loads) == most_tokens(plan) and sum(part.generations for part in parts) == plan.generations
    assert max(loads) - min(loads) <= (max(lengths) + 1) * len(plan.configurations)


def test_a_plan_whose_prompts_meet_is_dealt_by_passes() -> None:
    assert len(jobs(PLAN)) == 12
    suffix = replace(PLAN, configurations=(*PLAN.configurations, Configuration("suffix")))
    for plan in (suffix, replace(PLAN, batches=(2,))):
        assert [len(lot) for lot in jobs(plan)] == [3, 3, 3, 3]
        for index in (1, 2):
            counts = {unit[:-1]: 0 for unit in units(dealt(plan, Shard(index, 2)))}
            assert len(counts) == 2
        with refused("--shard 1/5", 4):
            dealt(plan, Shard(1, 5))


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "a/2", "1/2/3", "-1/2", "1/0", "²/3"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with refused("--shard", repr(text)):
        Shard.parse(text)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_merged_shards_are_what_one_machine_writes(tmp_path: Path, count: int) -> None:
    play(tmp_path / "whole.csv", PLAN, trace=True)
    merged = merge(shards(tmp_path, count, trace=True), tmp_path / "m.csv")
    assert merged.rows == PLAN.generations and len(merged.hosts) == 1 and not merged.missing
    found, expected = rows(tmp_path / "m.csv"), rows(tmp_path / "whole.csv")
    assert [row["id"] for row in found] == [row["id"] for row in expected]
    assert {row.pop("host") for row in found} == set(merged.hosts) and {row.pop("host") for row in expected} == {""}
    names = ("id", "configuration", "processor", "seed")
    assert [[row[name] for name in names] for row in found] == [[row[name] for name in names] for row in expected]
    whole = [row | {"host": merged.hosts[0]} for row in lasting(tmp_path / "whole.csv")]
    assert lasting(tmp_path / "m.csv") == whole
    traces = (Files(tmp_path / name).trace.read_text().splitlines() for name in ("m.csv", "whole.csv"))
    assert len({tuple(sorted(lines)) for lines in traces}) == 1
    about = read(manifest_path(tmp_path / "m.csv"))
    assert {run["shard"] for run in about["runs"]} == {f"{index}/{count}" for index in range(1, count + 1)}
    assert about["fixed"] == read(manifest_path(tmp_path / "whole.csv"))["fixed"]


def test_batches_are_merged_whole(tmp_path: Path) -> None:
    plan = replace(PLAN, batches=(1, 2))
    play(tmp_path / "whole.csv", plan)
    merge(shards(tmp_path, 3, plan), tmp_path / "m.csv")
    ids = [
        [(row["id"], row["configuration"], row["batch"]) for row in rows(tmp_path / name)]
        for name in ("m.csv", "whole.csv")
    ]
    assert ids[0] == ids[1]


@pytest.mark.parametrize("same_machine", [True, False])
def test_an_ordinary_run_goes_on_with_merged_shards(tmp_path: Path, same_machine: bool) -> None:
    play(tmp_path / "whole.csv", PLAN)
    out = tmp_path / "m.csv"
    first, *_ = shards(tmp_path, 3)
    merged = merge([first], out, partial=True)
    if not same_machine:
        about = read(manifest_path(out))
        about["hosts"][merged.hosts[0]] = {"cpu": "another", "threads": 64}
        write(manifest_path(out), about)
    before = rows(out)
    outcome = play(out, PLAN, resume=True)
    assert outcome.rows == PLAN.generations - len(before)
    hosts = list(read(manifest_path(out))["hosts"])
    assert hosts == [merged.hosts[0], *([] if same_machine else [f"{merged.hosts[0]} (2)"])]
    found = rows(out)
    assert all(row in found for row in before) and {row["host"] for row in found} == set(hosts)
    assert [key(row) for row in found] == [key(row) for row in rows(tmp_path / "whole.csv")], "in the plan's order"
    assert play(out, PLAN, resume=True).rows == 0


def test_a_shard_that_was_stopped_goes_on_and_no_other_does_in_its_place(tmp_path: Path) -> None:
    first, second = (dealt(PLAN, Shard(index, 2)) for index in (1, 2))
    out = tmp_path / "r.1-of-2.csv"
    assert play(out, first, display=Silent(stop_after=4)).stopped
    play(tmp_path / "r.2-of-2.csv", second)
    both = [out, tmp_path / "r.2-of-2.csv"]
    with refused(out, "20 rows", "--resume", "--partial"):
        merge(both, tmp_path / "m.csv")
    with refused("shard.part"):
        play(out, second, resume=True)
    assert not (tmp_path / "m.csv").exists()
    assert merge(both, tmp_path / "m.csv", partial=True).rows == 28
    assert play(out, first, resume=True).rows == 20
    with refused(tmp_path / "m.csv", "--overwrite"):
        merge(both, tmp_path / "m.csv")
    assert merge(both, tmp_path / "m.csv", overwrite=True).rows == PLAN.generations


def test_what_does_not_belong_together_is_refused_and_nothing_written(tmp_path: Path) -> None:
    first, second = shards(tmp_path, 2)
    third, out = tmp_path / "x.1-of-3.csv", tmp_path / "m.csv"
    play(third, dealt(PLAN, Shard(1, 3)))
    play(tmp_path / "whole.csv", PLAN)
    for given_files, quoted in [
        ([], "r.1-of-2.csv"),
        ([first], "shard 2 of 2"),
        ([first, first, second], first),
        ([first, third], "3"),
        ([first, tmp_path / "whole.csv"], tmp_path / "whole.csv"),
        ([first, tmp_path / "none.csv"], tmp_path / "none.csv"),
    ]:
        with refused(quoted):
            merge(given_files, out)
    with refused("--out", first):
        merge([first, second], first, overwrite=True)
    content = second.read_bytes()
    second.write_bytes(content[:-5])
    with refused(second, "--resume"):
        merge([first, second], out)
    second.write_bytes(content)
    for name, value, part in (
        ("code", "other", "code"),
        ("versions", {"python": "2"}, "versions.python"),
        ("target", {"weights": "0", "config": "0"}, "target.name"),
        ("target", {"weights": "0"}, "tokenizer"),
    ):
        kept = manifest_path(second).read_bytes()
        changed(second, **{name: value})
        with refused(second, part):
            merge([first, second], out)
        manifest_path(second).write_bytes(kept)
    assert not out.exists() and not manifest_path(out).exists()


def edited(path: Path, number: int, **cells: str) -> None:
    """A shard with other cells in one of its rows."""
    table = rows(path)
    table[number] |= cells
    path.write_text(to_text(table, columns()), encoding="utf-8")


@pytest.mark.parametrize(
    ("cells", "quoted"),
    [
        ({"id": "zzz"}, ("id: 'zzz'",)),
        ({"seed": "7"}, ("seed: 7",)),
        ({"configuration": "foo"}, ("configuration: 'foo'",)),
        ({"processor": "multinomial 3"}, ("processor: 'multinomial 3'",)),
        ({"turn": "2"}, ("turn: 2",)),
        ({"repeat": "5"}, ("repeat: 5",)),
        ({"target_weights": "int8"}, ("target_weights: 'int8'",)),
        ({"batch": "2"}, ("batch: 2",)),
        ({"rate": "0.5"}, ("rate: 0.5",)),
        ({"engine": "vLLM"}, ("engine: 'vLLM'",)),
        ({"seed": "abc"}, ("'abc'",)),
        ({"new_tokens": "abc"}, ("abc",)),
        ({"decode_s": "-1"}, ("decode_s", "-1")),
        ({"new_tokens": "999"}, ("new_tokens", 999, "length")),
    ],
)
def test_a_row_that_is_not_the_plans_is_refused_and_nothing_written(
    tmp_path: Path, cells: dict[str, str], quoted: tuple[str, ...]
) -> None:
    first, second = shards(tmp_path, 2)
    edited(second, 1, **cells)
    with refused(second, *quoted):
        merge([first, second], tmp_path / "m.csv", partial=True, check=load_results)
    assert not (tmp_path / "m.csv").exists() and not manifest_path(tmp_path / "m.csv").exists()


@pytest.mark.parametrize(("name", "value"), [("gamma", "9"), ("verify_strategy", "block"), ("cache", "false")])
def test_a_setting_that_is_not_the_configurations_is_refused(tmp_path: Path, name: str, value: str) -> None:
    first, second = shards(tmp_path, 2)
    drafted = next(number for number, row in enumerate(rows(second)) if row["method"] == "speculative")
    edited(second, drafted, **{name: value})
    with refused(second, name, repr(value)):
        merge([first, second], tmp_path / "m.csv")


def test_a_row_in_two_shards_is_refused(tmp_path: Path) -> None:
    """Each shard has no more rows than it may have, and the plan has both."""
    first, second = shards(tmp_path, 2)
    doubled = [rows(first)[0], *rows(second)[1:]]
    second.write_text(to_text(doubled, columns()), encoding="utf-8")
    for partial in (False, True):
        with refused(first, second, rows(first)[0]["id"]):
            merge([first, second], tmp_path / "m.csv", partial=partial)
    assert not (tmp_path / "m.csv").exists()


def test_a_shard_with_more_rows_than_it_may_have_is_refused(tmp_path: Path) -> None:
    first, second = shards(tmp_path, 2)
    about, one_fewer = read(manifest_path(second)), len(rows(second)) - 1
    changed(second, shard={**about["fixed"]["shard"], "generations": one_fewer})
    with refused(second, len(rows(second)), one_fewer):
        merge([first, second], tmp_path / "m.csv", partial=True)


@pytest.mark.usefixtures("undrawn")
def test_a_report_of_several_hosts_says_so_and_keeps_ratios_within_one(tmp_path: Path) -> None:
    first, second = shards(tmp_path, 2)
    changed(second, machine={"cpu": "another", "threads": 4})
    merged = merge([first, second], tmp_path / "m.csv")
    assert len(merged.hosts) == 2 and merged.hosts[1] == f"{merged.hosts[0]} (2)"
    report = write_report(tmp_path / "m.csv")
    text = (report.folder / "report.md").read_text(encoding="utf-8")
    assert "## Hosts" in text and "another, 4 threads" in text and "ratios are within a host" in text
    about = read(manifest_path(tmp_path / "m.csv"))
    assert about["fixed"]["machine"] == {} and list(about["hosts"]) == list(merged.hosts)
    speeds = {row["host"]: row["tokens_per_s"] for row in rows(tmp_path / "m.csv") if row["configuration"] == "target"}
    assert set(speeds) == set(merged.hosts)
    assert "Hosts" not in json.dumps([table.title for table in write_report(first).formats])


def test_the_command_plays_a_shard_into_a_file_of_its_own(call: Invoke, tmp_path: Path) -> None:
    asked = ("--prompt", "a", "--methods", "prompt_lookup", "--length", 4, "--seeds", 2, "--out", tmp_path / "r.csv")
    for shard, says in (("2", "expected K/N"), ("1/3", "divides into 2 parts")):
        refused = call(*asked, "--shard", shard)
        assert refused.exit_code == 2 and says in refused.stderr
    assert not list(tmp_path.iterdir())
    files = [tmp_path / "r.1-of-2.csv", tmp_path / "r.2-of-2.csv"]
    for index, file in enumerate(files, start=1):
        result = call(*asked, "--shard", f"{index}/2")
        assert result.exit_code == 0 and len(rows(file)) == 3, result.output
    assert merge(files, tmp_path / "r.csv").rows == 6

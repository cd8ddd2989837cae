"""Several formats of the target's weights in one run: beside each other, each compared with itself."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
import typer
from rich.console import Console
from typer.testing import CliRunner

from ablation.commands.ablate import ablate
from ablation.plan.file import Experiment, read_experiment
from ablation.plan.formats import compared, to_load
from ablation.plan.grid import AGAIN, Configuration, Plan
from ablation.plan.overrides import Overrides
from ablation.plan.prompts.file import Prompt
from ablation.results import manifest
from ablation.run import rounded
from ablation.run.conduct import conduct_into
from ablation.run.costing.probe import estimated
from ablation.run.progress.estimate import grid_table
from ablation.run.results_file import Files
from ablation.run.rounded import qualities
from sampling.forward.kernels import int4, int8
from sampling.forward.runner import ModelRunner
from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from sampling.methods.settings import Settings
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from sampling.pair.pair_messages import own_layers
from tests.ablation.conftest import Invoke, objects
from tests.ablation.mock_engine import MockEngine, mock_plan
from tests.ablation.plan_files import SPECULATIVE, Write, refusal
from tests.ablation.playing import Silent, copied, lasting, play, records_of, row_ends, rows
from tests.refusals import lacking, refused
from tests.tiny import gpt2, llama, save_checkpoint, tiny_tokenizer

ALL = ("full", "int8", "int4")
runs = pytest.mark.skipif(not (int8.runs() and int4.runs()), reason="this CPU or torch lacks the products")


def test_a_plan_lists_formats(write: Write) -> None:
    experiment = read_experiment(write("[pair]", 'target_weights = ["full", "int4"]', SPECULATIVE))
    assert experiment.plan.formats == ("full", "int4")
    assert experiment.plan.generations == 3 * 2
    assert to_load(experiment.pair) == {"target_weights": "full", "dtype": "float32"}
    one = read_experiment(write("[pair]", 'target_weights = "int8"', SPECULATIVE))
    assert not one.plan.formats and to_load(one.pair) == one.pair == {"target_weights": "int8"}


def test_a_command_line_lists_them_between_commas(write: Write) -> None:
    plan = write("[pair]", 'target_weights = "int8"', 'dtype = "bfloat16"', SPECULATIVE)
    experiment = read_experiment(plan, Overrides(pair={"target_weights": "int8, full"}))
    assert experiment.plan.formats == ("int8", "full") == compared(experiment.pair)
    assert to_load(experiment.pair) == {"target_weights": "full", "dtype": "bfloat16"}


@pytest.mark.parametrize(
    ("given", "quoted"),
    [
        ('["full", "int5"]', ("line 3", "'int5'", "full, int8, int4")),
        ('["int8", "full", "int8"]', ("line 3: target_weights: int8", "twice")),
        ("[]", ("line 3: target_weights", "list")),
    ],
)
def test_a_wrong_list_is_refused_with_its_line(write: Write, given: str, quoted: tuple[str, ...]) -> None:
    assert not lacking(refusal(write("[pair]", f"target_weights = {given}", SPECULATIVE)), *quoted)


@pytest.mark.parametrize(("given", "says"), [("full,int5", "'int5'"), ("int8,int8", "int8 is given twice")])
def test_run_refuses_a_wrong_list_before_it_loads(nothing_loads: None, invoke: Invoke, given: str, says: str) -> None:
    refused = invoke("run", "--prompt", "a", "--target-weights", given)
    assert refused.exit_code == 2 and says in refused.stderr


def test_formats_take_turns_and_none_is_always_first(tmp_path: Path) -> None:
    plan = replace(mock_plan(prompts=3), formats=ALL)
    assert play(tmp_path / "r.csv", plan).rows == plan.generations == 3 * mock_plan(prompts=3).generations
    found = [(row["id"], row["configuration"], row["target_weights"]) for row in rows(tmp_path / "r.csv")]
    assert found[:6] == [
        ("p0", "target", "full"),
        ("p0", "target", "int8"),
        ("p0", "target", "int4"),
        ("p0", "control", "full"),
        ("p0", "control", "int8"),
        ("p0", "control", "int4"),
    ]
    assert [weights for _, name, weights in found[:36] if name == "target"][::3] == ["full", "int8", "int4"]
    assert set(Counter(found).values()) == {4}  # two processors, two seeds


def test_resume_after_a_kill_at_every_row_of_some_formats(tmp_path: Path) -> None:
    plan = replace(mock_plan(prompts=1), formats=("int8", "int4"), seeds=(1,))
    whole = tmp_path / "whole.csv"
    play(whole, plan, trace=True)
    content, expected = whole.read_bytes(), lasting(whole)
    trace = Files(whole).trace.read_text()
    assert {line["target_weights"] for line in objects(trace)} == {"int8", "int4"}
    for number, end in enumerate(row_ends(content)):
        cut = copied(whole, tmp_path / "cut.csv", content[:end])
        Files(cut).trace.write_text(trace)
        assert play(cut, plan, resume=True, trace=True).rows == len(expected) - number
        assert lasting(cut) == expected
        assert sorted(Files(cut).trace.read_text().splitlines()) == sorted(trace.splitlines())


def test_rows_of_other_formats_are_not_gone_on_with(tmp_path: Path) -> None:
    out = tmp_path / "r.csv"
    play(out, replace(mock_plan(), formats=("full", "int8")), display=Silent(stop_after=3))
    with refused("grid.target_weights", '["full", "int8"]', '["full"]'):
        play(out, mock_plan(), resume=True)
    assert len(rows(out)) == 3


def test_an_estimate_and_the_grid_cover_every_format() -> None:
    plan = mock_plan()
    one, three = estimated(MockEngine(), plan), estimated(MockEngine(), replace(plan, formats=ALL))
    assert three.high_s == pytest.approx(3 * one.high_s) and three.generations == 3 * one.generations
    assert three.tokens == 3 * one.tokens and three.basis.endswith("the same in each format, full, int8, int4")
    column = list(grid_table(replace(plan, formats=ALL)).columns[1].cells)
    assert "full\nint8\nint4" in map(str, column)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    return save_checkpoint(tmp_path_factory.mktemp("target"), llama(**sizes), tiny_tokenizer())


Load = Callable[..., Pair]


@pytest.fixture
def load(folder: Path) -> Load:
    return lambda *drafter, **options: load_pair(
        LoadOptions(str(folder), *drafter, device="cpu", dtype="float32", **options)
    )


def small(formats: tuple[str, ...] = ()) -> Plan:
    settings = Settings()
    settings.assign_all([("length", "24"), ("processor", "greedy")])
    methods = (Configuration("target"), Configuration("speculative", (("gamma", 2),)), Configuration("suffix"), AGAIN)
    prompts = tuple(Prompt(text, (text,)) for text in ("abc", "what is what"))
    return Plan(prompts, methods, settings, (settings["processor"],), (42,), formats=formats)


@runs
def test_a_format_made_of_full_weights_is_the_one_that_is_loaded(load: Load) -> None:
    full = load()
    for name in ALL[1:]:
        made, loaded = full.in_format(name), load(target_weights=name)
        assert made.target_info == loaded.target_info and made.digest == full.digest
        mine, theirs = (one.target.forward([5, 6, 7]).logits for one in (made, loaded))
        assert torch.equal(mine, theirs)
    assert full.in_format("full") is full


@runs
def test_each_format_says_what_it_says_alone_and_is_compared_with_itself(load: Load) -> None:
    pair = load("self:int4")
    drafter = pair.drafter
    assert isinstance(drafter, ModelRunner)
    engine = PairEngine(pair)
    assert all(engine.in_format(name) is engine.in_format(name) for name in ALL)
    assert all(engine.in_format(name).pair.drafter is drafter for name in ALL)
    found = list(records_of(engine, small(ALL)))
    assert Counter(record.target_weights for record in found) == dict.fromkeys(ALL, 8)
    for name in ALL:
        own = {(record.id, record.configuration): record for record in found if record.target_weights == name}
        alone = records_of(PairEngine(load("self:int4", target_weights=name)), small())
        for record in alone:
            mine = own[record.id, record.configuration]
            assert (mine.output_ids, mine.target_weights) == (record.output_ids, name)
            assert mine.divergence_verdict == (None if mine.configuration == "target" else "exact")
            speed = own[record.id, "target"].tokens_per_s
            assert speed and mine.tokens_per_s and mine.speedup == pytest.approx(mine.tokens_per_s / speed)
    texts = {name: [r.text for r in found if (r.configuration, r.target_weights) == ("target", name)] for name in ALL}
    assert texts["full"] != texts["int8"] and texts["full"] != texts["int4"]


@runs
def test_a_run_of_several_formats_goes_on_where_it_was_stopped(load: Load, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.csv", tmp_path / "cut.csv"
    engine = PairEngine(load("self:int4"))
    play(whole, small(ALL), engine)
    assert play(cut, small(ALL), engine, Silent(stop_after=7)).stopped and len(rows(cut)) == 7
    assert play(cut, small(ALL), engine, resume=True).rows == 17
    same = ("id", "configuration", "target_weights", "text", "divergence_verdict")
    assert [[r[name] for name in same] for r in lasting(cut)] == [[r[name] for name in same] for r in lasting(whole)]
    assert {row["divergence_verdict"] for row in rows(cut)} == {"", "exact"}


def test_a_target_without_a_lean_forward_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "gpt2", gpt2())
    engine = PairEngine(load_pair(LoadOptions(str(tmp_path / "gpt2"), device="cpu", dtype="float32")))
    with refused(own_layers("target_weights int8", "gpt2")):
        estimated(engine, small(("full", "int8")))
    assert engine.in_format("full") is engine


@runs
def test_what_is_rounded_is_not_rounded_again(load: Load) -> None:
    with refused("target_weights int4", "int8"):
        load(target_weights="int8").in_format("int4")


@runs
def test_run_prints_a_table_for_each_format(load: Load, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("ablation.commands.run.load_chosen", lambda options, *more: asked.append(options) or load())
    call = ("run", "--prompt", "abc", "--methods", "target,suffix", "--length", "8", "--target-weights", "full,int8")
    shown = invoke(*call)
    assert shown.exit_code == 0, shown.output
    assert asked == [{"target_weights": "full", "dtype": "float32"}]
    assert shown.stdout.count("prompt 1\n") == 1 and shown.stdout.count("prompt 1, weights in int8\n") == 1
    records = objects(invoke(*call, "--json").stdout)
    assert [(r["method"], r["target_weights"]) for r in records] == [
        (method, weights) for method in ("target", "suffix") for weights in ("full", "int8")
    ]


@runs
def test_the_manifest_says_what_rounding_costs_and_a_resumed_run_does_not_measure_again(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, out, err = PairEngine(load("self:int4")), tmp_path / "r.csv", Console(file=StringIO(), width=100)
    asked: list[tuple[str, ...]] = []

    def counted(engine: PairEngine, formats: tuple[str, ...], plan: Plan, console: Console) -> object:
        asked.append(formats)
        return qualities(engine, formats, plan, console)

    monkeypatch.setattr("ablation.run.conduct.qualities", counted)

    def conduct(plan: Plan, path: Path = out, resume: bool = False) -> None:
        experiment = Experiment("mine", plan, {}, False)
        conduct_into(path, experiment, engine, command="", out=Console(file=StringIO()), err=err, resume=resume)

    conduct(small(ALL))
    assert asked == [("int8", "int4")]
    assert isinstance(err.file, StringIO) and "2/2 prompts for the quality of int8, int4" in err.file.getvalue()
    found = manifest.qualities(manifest.read(Files(out).manifest))
    assert [*found] == ["int8", "int4"] and found["int8"] != found["int4"]
    assert all(one.prompts == 2 and one.tokens > 2 and one.kl > 0 for one in found.values())
    assert found["int4"].weight_bytes < found["int8"].weight_bytes < found["int8"].full_weight_bytes
    content = out.read_bytes()
    out.write_bytes(content[: row_ends(content)[9]])
    conduct(small(ALL), resume=True)
    assert len(asked) == 1 and len(rows(out)) == small(ALL).generations
    assert manifest.qualities(manifest.read(Files(out).manifest)) == found
    conduct(small(), tmp_path / "one.csv")
    assert len(asked) == 1


@runs
def test_quality_is_of_a_bounded_number_of_prompts_that_can_run(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, plan = PairEngine(load()), small(ALL)
    monkeypatch.setattr(rounded, "MOST_PROMPTS", 3)
    monkeypatch.setattr(rounded, "MOST_TOKENS", 5)
    long = Prompt("long", ("a b " * 20_000,))
    prompts = (long, *(Prompt(text, (text, "and then?")) for text in ("abc", "b", "c", "d")))
    (found,) = qualities(engine, ("int8",), replace(plan, prompts=prompts), Console(file=StringIO())).values()
    assert found.prompts == 2 and found.tokens <= 2 * 5
    assert not qualities(engine, ("int8",), replace(plan, prompts=(long,)), Console(file=StringIO()))


@runs
def test_a_dry_run_shows_formats_and_memory(load: Load, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablation.commands.ablate._engine", lambda pair: PairEngine(load()))
    app = typer.Typer()
    app.command()(ablate)
    plan = write(
        "length = 4", "[pair]", 'target_weights = ["int8", "int4"]', SPECULATIVE.replace("speculative", "suffix")
    )
    shown = CliRunner().invoke(app, [plan, "--dry-run"])
    assert shown.exit_code == 0, shown.output
    assert "target's weights" in shown.stdout and "6 generations of 24 tokens in all" in shown.stdout
    memory = next(line for line in shown.stdout.splitlines() if line.startswith("weights in memory: full "))
    assert ", int8 " in memory and ", int4 " in memory

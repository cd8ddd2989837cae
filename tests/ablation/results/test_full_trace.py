"""Full traces: what they hold, what is replayed from them, and the bounds that a report shows."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ablation.plan.choice import plain_plan
from ablation.plan.grid import Configuration, Plan
from ablation.plan.prompts.file import Prompt
from ablation.report.plots.trace import trace_figure
from ablation.report.tables.bounds import bound_rows
from ablation.report.write import write_report
from ablation.results.traces.generations import TracedRound, furthest, read_generations
from ablation.results.traces.replay import ReplayRequest, Replays
from ablation.results.traces.trace import is_full, is_trace
from ablation.run.results_file import Files
from sampling.measure.replay.walk import PositionDraft, Sample
from sampling.methods.settings import PARAMETERS, Settings
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from scripts.replay import main
from tests.ablation.conftest import Invoke, objects
from tests.ablation.playing import Silent, play, rows
from tests.conformance.toy import toy_pair
from tests.tiny import tiny_pair, tiny_tokenizer

SETTINGS = (
    ("target", {}),
    ("speculative", {"gamma": "3"}),
    ("speculative", {"gamma": "1"}),
    ("egag", {}),
    ("speculative", {"draft_rule": "confidence", "confidence_threshold": "0.2"}),
    ("prompt_lookup", {}),
    ("ngram", {}),
    ("suffix", {}),
    ("recycling", {}),
    ("mtp", {"gamma": "2"}),
    ("mtp", {"draft_tree": "dynamic", "tree_tokens": "5"}),
)
PROMPTS = (Prompt("a", ("ab ab ab",)), Prompt("b", ("hello hello", "and again"), task="talk"))


def configuration(method: str, values: dict[str, str]) -> Configuration:
    return Configuration(method, tuple((name, PARAMETERS[name].parse(text)) for name, text in values.items()))


def plan_of(*several: tuple[str, dict[str, str]], length: int = 24) -> Plan:
    values = {**Settings(), "length": length, "chat": False}
    return plain_plan(PROMPTS, tuple(configuration(*one) for one in several), values, repeats=1)


@pytest.fixture
def both() -> Pair:
    """The toy pair, which has heads and trees, in a window that holds these prompts."""
    return replace(toy_pair(window=400), tokenizer=tiny_tokenizer())


@pytest.fixture(scope="module")
def traced_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run, which tests copy."""
    folder = tmp_path_factory.mktemp("traced")
    several = [one for one in SETTINGS if one[0] != "mtp"]
    play(folder / "r.csv", plan_of(*several), PairEngine(tiny_pair()), trace="full")
    return folder


@pytest.fixture
def traced(tmp_path: Path, traced_once: Path) -> Path:
    return Path(shutil.copytree(traced_once, tmp_path / "traced")) / "r.csv"


def replay(*arguments: object) -> "tuple[int, str]":
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    return result.exit_code, result.output


def test_every_recorded_setting_is_replayed_as_it_was(traced: Path) -> None:
    """Rounds, tokens and drafts to the last one, times within 2 %, of turns and of what remembers earlier prompts."""
    replays = Replays(read_generations(Files(traced).trace))
    assert len(replays.generations) == 3 * 9
    for one in replays.generations:
        again, was = replays.replay(one, ReplayRequest()), one.record
        for name in ("rounds", "accepted", "drafted", "tested", "tokens_by_round", "accept_hist", "output_ids"):
            assert getattr(again, name) == getattr(was, name), (was.configuration, name)
        assert again.mean_gamma == was.mean_gamma and again.finish_reason == was.finish_reason
        assert again.mean_entropy == was.mean_entropy
        assert again.decode_s == pytest.approx(was.decode_s, rel=0.02)
        assert again.speedup == pytest.approx(was.speedup, rel=0.02)


def test_a_replayed_setting_has_the_rounds_of_a_run_with_it(traced: Path) -> None:
    """Lengths and rules that were asked for, against runs of their own."""
    replays = Replays(read_generations(Files(traced).trace))
    by_name = {(one.record.id, one.record.turn, one.record.configuration): one for one in replays.generations}
    for id, turn in (("a", 1), ("b", 2)):
        first, other = (by_name[id, turn, f"speculative gamma={gamma}"] for gamma in (1, 3))
        assert replays.replay(first, ReplayRequest(gamma=3)).tokens_by_round == other.record.tokens_by_round
        egag = by_name[id, turn, "egag"].record
        assert replays.replay(first, ReplayRequest(rule="egag")).tokens_by_round == egag.tokens_by_round


def test_a_walk_is_written_once_a_drafter_and_prompt(traced: Path) -> None:
    lines = objects(Files(traced).trace.read_text())
    ends = [line for line in lines if line["kind"] == "run"]
    assert len(ends) == len(rows(traced)) and is_full(Files(traced).trace) and is_trace(Files(traced).trace)
    walked = {(line["id"], line["turn"], line["configuration"]) for line in lines if line["kind"] == "walk"}
    assert len(walked) == 3 * 5  # the drafter model, and four copiers: not each rule of the drafter model
    text = {(end["id"], end["turn"]): end["record"]["output_ids"] for end in ends}
    for id, turn, name in walked:
        own = [line for line in lines if line["kind"] == "walk" and (line["id"], line["turn"]) == (id, turn)]
        said = [line["next"] for line in own if line["configuration"] == name]
        assert said == text[id, turn]
    rounds = [line for line in lines if line["kind"] == "round" and line["drafts"]]
    drawn = [line for line in rounds if line["method"] == "egag"]
    assert all(len(line["beliefs"]) == len(line["drafts"]) == len(line["q_top"]) for line in drawn)
    assert all(len(line["p_top"]) == len(line["drafts"]) + 1 and len(line["p_top"][0]) == 8 for line in rounds)
    for line in drawn:
        entropy, top, chance = line["beliefs"][0]
        assert entropy == pytest.approx(line["entropy"], rel=1e-5) and top == pytest.approx(chance, rel=1e-6)
        assert line["q_top"][0][0][0] == line["drafts"][0], "greedy drafts are the likeliest"


def test_a_rule_that_remembers_shares_the_walk_of_its_drafter(tmp_path: Path, pair: Pair) -> None:
    out = tmp_path / "r.csv"
    several = (("target", {}), ("speculative", {"gamma": "1"}), ("speculative", {"draft_rule": "survival"}))
    play(out, plan_of(*several), PairEngine(pair), trace="full")
    generations = list(read_generations(out.with_suffix(".trace.jsonl")))
    drafting = [one for one in generations if one.drafter]
    assert len({one.drafter for one in drafting}) == 1
    assert sum(one.walk is not None for one in drafting) == len(drafting) // 2


def test_heads_are_traced_and_bounded_too(tmp_path: Path, both: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "r.csv"
    engine = PairEngine(both)
    monkeypatch.setattr(engine, "tokenise", lambda turns, *how: [1, 4, 2, 0, len(turns)])
    play(out, plan_of(SETTINGS[0], *SETTINGS[-2:]), engine, trace="full")
    replays = Replays(read_generations(Files(out).trace))
    for one in replays.generations:
        assert replays.replay(one, ReplayRequest()).tokens_by_round == one.record.tokens_by_round
    names = set(bound_rows(out).rows["configuration"])
    assert any(name.startswith("bound: best fixed nodes of mtp") for name in names)
    assert any(name.startswith("bound: oracle of mtp") for name in names)


def test_a_full_trace_goes_on_after_a_kill(tmp_path: Path, pair: Pair) -> None:
    out = tmp_path / "cut.csv"
    plan = plan_of(*[one for one in SETTINGS if one[0] != "mtp"])
    play(out, plan, PairEngine(pair), Silent(stop_after=13), trace="full")
    with Files(out).trace.open("a") as file:
        file.write('{"id": "b", "turn": 1, "torn')
    play(out, plan, PairEngine(pair), trace="full", resume=True)
    replays = Replays(read_generations(Files(out).trace))
    assert sorted(one.record.configuration for one in replays.generations) == sorted(
        row["configuration"] for row in rows(out)
    )
    for one in replays.generations:
        if one.record.configuration != "recycling":
            assert replays.replay(one, ReplayRequest()).tokens_by_round == one.record.tokens_by_round


def test_nothing_is_watched_when_a_job_is_over(tmp_path: Path, pair: Pair) -> None:
    engine = PairEngine(pair)
    play(tmp_path / "r.csv", plan_of(*SETTINGS[:2]), engine, trace="full")
    assert engine.raw is None


def test_other_processors_have_rounds_alone(invoke: Invoke, tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    call = ("run", "--prompt", "Hello", "--methods", "target,speculative", "--processor", "multinomial 1", "--json")
    assert invoke(*call, "--trace", trace, "--full-trace").exit_code == 0
    assert {line["kind"] for line in objects(trace.read_text())} == {"round", "run"}
    status, said = replay(trace)
    assert status == 2 and "is not in the trace; expected greedy decoding" in said
    status, said = replay(trace, "--verify-strategy", "target_match")
    assert status == 0 and "expected under target_match" in said and "multinomial" in said
    status, said = replay(trace, "--verify-strategy", "typical")
    assert status == 2 and "one of rejection, target_match" in said


def test_a_trace_must_be_named_to_be_full(invoke: Invoke) -> None:
    said = invoke("run", "--prompt", "Hello", "--full-trace")
    assert said.exit_code == 2 and "--full-trace given; expected --trace" in said.output


def test_what_is_no_full_trace_is_refused_by_name(tmp_path: Path, whole: Path, traced: Path) -> None:
    said = replay(Files(whole).trace)
    assert said[0] == 2 and "traces rounds alone" in said[1]
    assert "cannot be read" in replay(tmp_path / "none.jsonl")[1] or "no" in replay(tmp_path / "none.jsonl")[1]
    other = tmp_path / "other.jsonl"
    other.write_text("hello\n")
    assert "is not a trace" in replay(other)[1]
    lines = Files(traced).trace.read_text().splitlines(keepends=True)
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_text("".join([*lines[:3], "{}\n", *lines[3:]]))
    assert "line 4: no line of a trace" in replay(damaged)[1]
    first = json.loads(lines[0])
    damaged.write_text("".join([json.dumps({**first, "drafts": 7}) + "\n", *lines[1:]]))
    assert "is damaged" in replay(damaged)[1]
    torn = tmp_path / "torn.jsonl"
    torn.write_text("".join(lines)[:-40])
    assert replay(torn)[0] == 0


def test_the_script_prices_rules_lengths_and_batches(traced: Path, tmp_path: Path) -> None:
    trace = Files(traced).trace
    status, said = replay(trace)
    assert status == 0 and "replayed: speculative gamma=3" in said and "no verdict" in said and "faster" not in said
    out = tmp_path / "again.csv"
    status, said = replay(trace, "--methods", "speculative", "--gamma", "1,2", "--bounds", "--out", out)
    assert status == 0 and "replayed: speculative gamma=2" in said and "bound: oracle of model" in said
    written = {row["configuration"] for row in rows(out)}
    assert {"target", "replayed: speculative gamma=1", "replayed: speculative gamma=2"} <= written
    status, said = replay(trace, "--methods", "egag", "--rule", "egag", "--set", "egag_gamma_max=8")
    assert status == 0 and "egag draft_rule=egag, egag_gamma_max=8" in said
    price = tmp_path / "p.json"
    price.write_text('{"forward": [[1, 1.0], [9, 1.0]], "first_s": 0.0, "step_s": 0.0, "rest_s": 0.0}')
    status, said = replay(trace, "--methods", "egag", "--price", price, "--batch", "2")
    speedups = [line for line in said.splitlines() if line.startswith("replayed: egag")]
    tokens = speedups[0].split()
    assert status == 0 and tokens[5] == tokens[8], "free drafts: the ratio of sums is the tokens a round"
    for wrong, expected in (
        (("--rule", "eagg"), "Did you mean 'egag'"),
        (("--rule", "egag", "--gamma", "2"), "expected one of them"),
        (("--gamma", "x"), "expected integers of 0 or more"),
        (("--methods", "medusa"), "the trace holds"),
        (("--price", other_file(tmp_path)), "expected fitted, or a file"),
        (("--price", falling(tmp_path)), "that never fall, are wanted"),
        (("--methods", "prompt_lookup", "--set", "max_ngram_size=2"), "on which its drafts depend"),
        (("--methods", "speculative", "--gamma", "40"), "the walk holds 8 drafts a position"),
    ):
        status, said = replay(trace, *wrong)
        assert status == 2 and expected in " ".join(said.split()), (wrong, said)
    assert replay(trace, "--methods", "speculative", "--gamma", "40", "--bounded")[0] == 0


def test_replays_of_two_drafters_or_two_configurations_never_share_a_name(pair: Pair, tmp_path: Path) -> None:
    out = tmp_path / "r.csv"
    copies = ("prompt_lookup", {}), ("prompt_lookup", {"max_ngram_size": "2"})
    drawn = ("speculative", {"gamma": "3"}), ("speculative", {"draft_rule": "heuristic"})
    play(out, plan_of(("target", {}), *copies, *drawn), PairEngine(pair), trace="full")
    replays = Replays(read_generations(Files(out).trace))
    for asked in (ReplayRequest(gamma=1), ReplayRequest(rule="ucb"), ReplayRequest(values={"heuristic_gamma": 3})):
        replayed = [one for one in (replays.drafting if asked.rules else replays.drafted) if one.record.id == "a"]
        names = {replays.replay(one, asked).configuration for one in replayed}
        assert len(names) == len(replayed) == (3 if asked.rules else 4), names
    status, said = replay(Files(out).trace, "--gamma", "1")
    assert status == 0 and "fitted to the rounds" in " ".join(said.split())
    price = tmp_path / "p.json"
    price.write_text('{"forward": [[1, 1.0], [9, 1.0]], "first_s": 0.0, "step_s": 0.0, "rest_s": 0.0}')
    said = " ".join(replay(Files(out).trace, "--price", price, "--bounds")[1].split())
    assert f"A round costs what {price} says." in said and "fitted to the rounds" not in said


def test_a_bound_looks_as_far_as_any_run_of_its_drafter(traced: Path) -> None:
    replays = Replays(read_generations(Files(traced).trace))
    one = next(one for one in replays.drafting if one.drafter.startswith("model"))
    walk = replays.walk(one)
    start = next(at for at in range(len(walk.tokens)) if walk.room(at) > 2)
    further = PositionDraft(walk.tokens[start : start + 12], most=12)
    visit = TracedRound(start, further, 0, 1, (), (), Sample(12, 12, 0.0, 0.0, 0.0))
    known = furthest(walk, [visit])
    assert known.hits(start) == len(further.drafts) >= walk.hits(start)
    assert known.ahead[start].drafts == further.drafts and known.ahead[start + 1] == walk.ahead[start + 1]
    tree = replace(further, parents=tuple(range(-1, 11)))
    assert furthest(walk, [replace(visit, ahead=tree)]) == walk, "a tree says nothing of a chain's drafter"
    assert replays.furthest(one).tokens == walk.tokens
    assert min(ahead.most for ahead in replays.furthest(one).ahead) >= 8, "a short run's own drafts bound no length"


def falling(folder: Path) -> Path:
    """Where more rows took less, no oracle is a bound."""
    path = folder / "falling.json"
    path.write_text('{"forward": [[1, 1.0], [9, 0.9]], "first_s": 0.0, "step_s": 0.0, "rest_s": 0.0}')
    return path


def other_file(folder: Path) -> Path:
    path = folder / "no_price.json"
    path.write_text('{"forward": []}')
    return path


def test_simulator_rows_go_out_and_come_in(traced: Path, tmp_path: Path) -> None:
    rows_file, price = tmp_path / "s.jsonl", tmp_path / "p.json"
    price.write_text('{"forward": [[1, 1.0], [9, 1.0]], "first_s": 0.0, "step_s": 0.0, "rest_s": 0.0}')
    assert replay(Files(traced).trace, "--simulator", rows_file)[0] == 0
    written = objects(rows_file.read_text())
    assert len(written) == 3 and {"acc_speculative", "acc_ngram", "acc_suffix"} <= set(written[0])
    assert all(len(row["acc_ngram"]["acc_len"]) == len(row["generated_token_ids"]) for row in written)
    status, said = replay(rows_file, "--price", price, "--gamma", "2")
    assert status == 0 and "replayed: speculative gamma=2" in said and "replayed: ngram oracle" in said
    assert "expected --price FILE" in replay(rows_file)[1]
    assert "no beliefs" in replay(rows_file, "--price", price, "--rule", "egag")[1]


@pytest.mark.usefixtures("undrawn")
def test_a_report_carries_bounds_as_rows_that_are_no_methods(traced: Path) -> None:
    report = write_report(traced)
    bound = report.summary[report.summary["configuration"].str.startswith("bound: ")]
    assert set(bound["method"]) == {"bound"} and bound["p"].isna().all() and bound["p_holm"].isna().all()
    assert set(bound["against_ar"]) == {"computed, not tested"} and (bound["speedup"] > 0).all()
    folder = report.folder
    for name in ("report.md", "index.html", "summary.csv", "summary.tex"):
        text = (folder / name).read_text()
        assert "bound: oracle of model" in text and "bound: best fixed gamma of suffix" in text, name
    assert "computed, not run" in (folder / "report.md").read_text()
    assert "bound:" not in (folder / "pairs.csv").read_text()
    everything = bound[bound["task"] == "all"].set_index("configuration")
    oracle = everything.loc["bound: oracle of model"]
    fixed = everything.loc["bound: best fixed gamma of model for each prompt"]
    assert oracle["speedup"] >= fixed["speedup"], "by the same prices, so on any machine"
    assert oracle["acceptance_rate"] == 1.0 or oracle["tokens_per_round"] == 1.0, "no draft of it is rejected"
    figure = trace_figure(Files(traced).trace)
    assert not isinstance(figure, str) and "prompt a" in figure[1]


@pytest.mark.usefixtures("undrawn")
def test_a_report_without_a_full_trace_has_no_bounds(whole: Path) -> None:
    assert not len(bound_rows(whole).rows) and not bound_rows(whole).notes
    assert "bound:" not in (write_report(whole).folder / "report.md").read_text()


@pytest.mark.usefixtures("undrawn")
def test_a_damaged_trace_costs_a_report_its_bounds_alone(traced: Path) -> None:
    trace = Files(traced).trace
    trace.write_text(trace.read_text().replace('"drafts": [', '"drafts": [null, ', 40))
    found = bound_rows(traced)
    assert not len(found.rows) and "There are no bounds" in found.notes[0]
    write_report(traced)

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from ablation.commands.shared.printed import PrintedRecords
from ablation.plan.choice import plain_plan
from ablation.plan.grid import Configuration, Plan, PlannedGeneration
from ablation.plan.prompts.file import Prompt
from ablation.run.costing.probe import estimated
from ablation.run.execute import execute
from ablation.run.job import JobOutcome
from ablation.run.progress.display import BarDisplay
from ablation.run.progress.estimate import Estimate
from ablation.run.progress.watcher import NullWatcher
from sampling.measure.comparison import Comparison
from sampling.measure.warm_up import warm_up
from sampling.methods.settings import Settings
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from sampling.pair.profile import DraftTimes, LatencyProfile
from tests.ablation.conftest import Invoke, objects, write_lines
from tests.ablation.mock_engine import MockEngine
from tests.ablation.playing import records_of

CURSOR_UP, ERASE_LINE = "\x1b[1A", "\x1b[2K"
KEYS = """id, task, turn, method, lossless, settings, prompt_tokens, new_tokens, output_ids, text, finish_reason,
  prefill_s, decode_s, ttft_s, wall_s, tokens_per_s, e2e_tokens_per_s, rounds, drafted, tested,
  accepted, acceptance_rate, alpha, tokens_per_round, accept_hist,
  draft_ms, verify_ms, other_ms, mean_gamma, mean_entropy, peak_memory_mb, speedup,
  first_divergence, divergence_verdict, error, repeat, configuration, c, mean_normalised_entropy, tested_at,
  tokens_by_round, min_gamma, max_gamma, score, inner_rounds, inner_tested,
  inner_accepted, rounds_by_drafter, token_verify_ms, token_growth_ms, token_draft_ms, token_judging_ms, token_rest_ms,
  predicted_token_ms,
  break_even_tokens, break_even_alpha, started, cpu_mhz, other_cores, kernel, target_weights, compiled,
  batch_invariant, graphs, bytes_per_token, roofline_share, capture_s, drafted_by_round, batch, rate,
  queued_s, live_rows, tpot_ms, waited_s, throughput_tps, e2e_throughput_tps, goodput_rps,
  engine, engine_version, concurrency, referee, referee_place, referee_behind, host, prefill_shared, kv_bytes,
  kv_transfer_ms, rollback_ms, reread, experts_per_round, expert_share, experts_ms,
  target_tokens_per_s, rollback_way, own_kernels, forced, grammar_ms, joules_per_token, idle_watts,
  energy_of, prefix_hits, prefill_saved_ms, reread_target,
  reread_drafter, prefill_chunks, gap_p99_ms, preempted, threads_blocked"""


def test_json_lines_have_the_documented_keys_in_order(invoke: Invoke) -> None:
    result = invoke("run", "--prompt", "Hello", "--length", 12, "--repeat", 2, "--json")
    records = objects(result.stdout)
    assert result.exit_code == 0
    assert [record["method"] for record in records] == [
        "target",
        "speculative",
        "ngram",
        "speculative",
        "ngram",
        "target",
    ]
    assert [record["repeat"] for record in records] == [0, 0, 0, 1, 1, 1]
    for record in records:
        assert list(record) == re.split(r",\s+", KEYS)
        assert record["error"] is None and record["new_tokens"] == len(record["output_ids"]) == 12
        assert record["lossless"] is True and record["peak_memory_mb"] > 10
        assert record["divergence_verdict"] == (None if record["method"] == "target" else "exact")


def test_the_ledger_of_a_token_adds_up(invoke: Invoke) -> None:
    arguments = ("--prompt", "Hello", "--length", 12, "--methods", "target,speculative,drafter", "--json")
    plain, sd, other = objects(invoke("run", *arguments).stdout)
    parts = [f"token_{part}_ms" for part in ("verify", "growth", "draft", "judging", "rest")]
    for record in (plain, sd):
        assert sum(record[part] for part in parts) == pytest.approx(1e3 * record["decode_s"] / record["new_tokens"])
    assert sd["token_verify_ms"] == pytest.approx(plain["verify_ms"] / sd["tokens_per_round"])
    assert sd["break_even_tokens"] == pytest.approx(sd["tokens_per_round"] / sd["speedup"])
    assert plain["break_even_tokens"] == pytest.approx(1.0) and plain["break_even_alpha"] is None
    assert not any(other[part] is not None for part in (*parts, "break_even_tokens"))
    alone = objects(invoke("run", "--prompt", "Hello", "--length", 4, "--methods", "ngram", "--json").stdout)
    assert alone[0]["token_verify_ms"] is None, "nobody knows what a plain forward takes"


def test_a_profile_stands_in_for_the_reference_and_predicts(pair: Pair) -> None:
    price = {"first_s": 0.002, "step_s": 0.001}
    forward = {8: ((1, 0.040), (9, 0.064)), 108: ((1, 0.140), (9, 0.164))}
    profile = LatencyProfile(forward, (), 0.0004, {"model": DraftTimes(**price)})
    engine = PairEngine(replace(pair, profile=profile))
    settings = Settings()
    settings.assign_all([("length", "12"), ("gamma", "2")])
    comparison = Comparison(engine, settings, engine.tokenise(["Hello"], True))
    for _ in comparison.run("speculative"):
        pass
    account, found = comparison.metrics["speculative"], comparison.ledger("speculative")
    assert account.prompt_tokens is not None
    half_way = account.prompt_tokens + account.new_tokens // 2
    plain_s = 0.040 + 0.001 * (half_way - 8)
    assert found is not None and found.plain == pytest.approx(plain_s + 0.0004)
    assert found.verify == pytest.approx(plain_s * account.rounds / account.new_tokens)
    assert found.total == pytest.approx(account.decode_s / account.new_tokens)
    predicted = comparison.predicted("speculative")
    assert predicted is not None
    drafts = account.drafted / account.rounds
    begun = account.tested_at[0] / account.rounds
    seconds = plain_s + 0.0004 + 0.003 * drafts + begun * 0.002 + (drafts - begun) * 0.001
    assert predicted.total == pytest.approx(seconds * account.rounds / account.new_tokens)


def test_speedup_is_against_the_reference_of_the_same_repeat(invoke: Invoke) -> None:
    records = objects(invoke("run", "--prompt", "Hello", "--length", 8, "--repeat", 2, "--json").stdout)
    for repeat in (records[:3], records[3:]):
        reference = next(record for record in repeat if record["method"] == "target")
        assert reference["speedup"] == 1.0
        for record in repeat:
            assert record["speedup"] == pytest.approx(record["tokens_per_s"] / reference["tokens_per_s"])
    alone = objects(invoke("run", "--prompt", "Hello", "--methods", "ngram", "--json").stdout)
    assert alone[0]["speedup"] is None and alone[0]["divergence_verdict"] is None


def test_settings_hold_what_matters_for_the_method(invoke: Invoke) -> None:
    arguments = ("--set", "egag_gamma_min=8", "--set", "egag_gamma_max=9", "--set", "set_ngramstorage=onelevel 4")
    result = invoke("run", "--prompt", "a", "--length", 3, "--methods", "egag,ngram,drafter", *arguments, "--json")
    egag, ngram, drafter = objects(result.stdout)
    general = {"length": 3, "processor": "greedy", "seed": 42, "cache": True, "chat": True}
    general |= {"thinking": "auto", "chat_template_kwargs": "{}", "grammar": "off", "prefix_cache": False}
    general |= {"prefix_memory": 1000, "prefill_chunk": 48, "kv_memory": 0}
    judging = {"verify_strategy": "rejection", "accept_policy": "normal"}
    drafting = {"draft_weights": "full", "vocabulary": "auto"}
    bounds = {"egag_gamma_min": 8, "egag_gamma_max": 9, "egag_ema": 0.9}
    assert egag["settings"] == {**general, **judging, **drafting, **bounds}
    fillers = {"set_ngramstorage": "onelevel 4", "top_k_filler": 3, "reset_in_between": True}
    assert ngram["settings"] == {**general, **judging, "draft_rule": "own", "gamma": 4, **fillers}
    assert drafter["settings"] == general and drafter["lossless"] is None


def test_each_setting_reaches_the_run(invoke: Invoke) -> None:
    sampled = ("run", "--prompt", "a", "--methods", "target", "--processor", "multinomial 1", "--length", 12, "--json")
    first, again = objects(invoke(*sampled, "--seed", 1).stdout)[0], objects(invoke(*sampled, "--seed", 1).stdout)[0]
    other = objects(invoke(*sampled, "--seed", 2).stdout)[0]
    assert first["output_ids"] == again["output_ids"] != other["output_ids"]


def test_trace_has_one_line_a_round(invoke: Invoke, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    result = invoke("run", "--prompt", "Hello", "--methods", "target,speculative", "--json", "--trace", trace)
    rounds = objects(trace.read_text())
    for record in objects(result.stdout):
        own = [line for line in rounds if line["method"] == record["method"]]
        assert [line["round"] for line in own] == list(range(record["rounds"]))
        assert sum(len(line["drafts"]) for line in own) == record["drafted"]
        assert sum(line["accepted"] for line in own) == record["accepted"]
        emitted = [token for line in own for token in (*line["drafts"][: line["accepted"]], line["next"])]
        assert emitted == record["output_ids"]
        assert all(len(line["q"]) == len(line["p"]) == len(line["drafts"]) for line in own)
        assert own[1]["position"] == record["prompt_tokens"] + own[0]["accepted"] + 1
    assert rounds[-1]["id"] == 1 and rounds[-1]["turn"] == 1 and rounds[-1]["repeat"] == 0


def test_a_trace_says_which_drafts_of_a_tree_were_accepted(invoke: Invoke, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    tree = ("--set", "use_tree_spec=on", "--set", "max_spec_factor=4", "--set", "min_token_prob=0")
    result = invoke("run", "--prompt", "Hello Hello", "--methods", "suffix", "--json", "--trace", trace, *tree)
    rounds = objects(trace.read_text())
    emitted: list[int] = []
    for line in rounds:
        emitted += [line["drafts"][row] for row in line["path"]]
        emitted += [] if line["next"] is None else [line["next"]]
    assert emitted == objects(result.stdout)[0]["output_ids"]
    assert any(line["path"] != list(range(line["accepted"])) for line in rounds)
    assert all(len(line["parents"]) == len(line["drafts"]) for line in rounds if line["parents"] is not None)


def test_turns_are_one_conversation(invoke: Invoke, pair: Pair, tmp_path: Path) -> None:
    question = {"question_id": 81, "category": "writing", "turns": ["Hello", "Again"], "reference": ["x"]}
    file = write_lines(tmp_path / "q.jsonl", question)
    first, second = objects(invoke("run", "--prompts", file, "--methods", "ngram", "--length", 5, "--json").stdout)
    assert (first["id"], first["task"], first["turn"], second["turn"]) == (81, "writing", 1, 2)
    assert second["prompt_tokens"] == len(pair.encode(["Hello", first["text"], "Again"], chat=True))


def test_a_failed_generation_leaves_its_error_and_the_others_run(invoke: Invoke, tmp_path: Path) -> None:
    lines = {"turns": ["a" * 600, "b"]}, {"prompt": "fits", "id": "b", "task": "t", "max_new_tokens": 2}
    result = invoke("run", "--prompts", write_lines(tmp_path / "p.jsonl", *lines), "--methods", "target", "--json")
    too_long, next_turn, fits = objects(result.stdout)
    assert result.exit_code == 1
    assert "context window" in too_long["error"] and too_long["new_tokens"] is None and too_long["settings"]
    assert next_turn["turn"] == 2 and next_turn["error"] == too_long["error"]
    assert fits["error"] is None and (fits["id"], fits["task"], fits["new_tokens"]) == ("b", "t", 2)


def test_a_crash_in_a_method_is_reported_and_the_others_run(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def warmed(engine: PairEngine, plan: Plan) -> Estimate:
        def broken(*arguments: object) -> None:
            raise IndexError("planted")

        monkeypatch.setattr("ngram_assisted.nasd.NgramDrafter.propose", broken)
        return Estimate(0, 0, 0, 0, "")

    monkeypatch.setattr("ablation.run.job.estimated", warmed)
    result = invoke("run", "--prompt", "a", "--length", 3, "--json")
    target, speculative, ngram = objects(result.stdout)
    assert result.exit_code == 1 and ngram["error"] == "IndexError: planted"
    assert target["error"] is None and speculative["error"] is None


def test_for_people_there_is_the_answer_and_a_table(invoke: Invoke) -> None:
    result = invoke("run", "--prompt", "Hello", "--length", 4)
    assert result.exit_code == 0
    assert "AR (target), SD (speculative), NASD (ngram):" in result.stdout and "tok/s" in result.stdout


def test_it_warms_up_and_says_how_long_it_takes_before_the_first_record(invoke: Invoke) -> None:
    said = invoke("run", "--prompt", "Hello", "--length", 4, "--json").stderr.splitlines()
    warming = said.index("warming up 3 configurations")
    assert "3 generations of 12 tokens in all" in said[warming + 1] and said[warming + 2].startswith("timed: ")
    assert said[warming + 3].startswith("3/3 1: target ")


def test_a_table_shows_what_was_finished_before_ctrl_c(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    both = Configuration("target"), Configuration("ngram")
    plan = plain_plan((Prompt(1, ("Hello",)),), both, {**Settings(), "length": 8}, repeats=1)
    printed = PrintedRecords(plan, as_json=False, trace=None)
    with pytest.raises(KeyboardInterrupt), printed.writing(JobOutcome()):
        printed.add(next(records_of(PairEngine(pair), plan)))
        assert not capsys.readouterr().out
        raise KeyboardInterrupt
    assert "target" in capsys.readouterr().out


def test_the_bar_makes_way_for_what_is_printed(pair: Pair) -> None:
    plan = plain_plan((Prompt(1, ("Hello",)),), (Configuration("target"),), {**Settings(), "length": 2}, repeats=1)
    screen = io.StringIO()
    with BarDisplay(Console(file=screen, force_terminal=True, width=80), 0, 1) as bar:
        (record,) = records_of(PairEngine(pair), plan, bar)
        assert "target" in screen.getvalue() and CURSOR_UP not in screen.getvalue()
        bar.record(record)
        wiped = screen.getvalue()
        assert wiped.endswith(f"{CURSOR_UP}{ERASE_LINE}{CURSOR_UP}{ERASE_LINE}")
        bar.begin(next(plan.places(next(plan.passes()), ("full",))))
        again = screen.getvalue().removeprefix(wiped)
        assert "target" in again and ERASE_LINE not in again


def test_for_people_a_lossy_answer_is_stamped_over_its_text_too(invoke: Invoke) -> None:
    given = ("--methods", "target,speculative", "--set", "accept_policy=accept_all", "--processor", "multinomial 1")
    lines = invoke("run", "--prompt", "Hello", "--length", 8, *given).stdout.splitlines()
    assert "AR (target):" in lines and "SD (speculative) LOSSY:" in lines


def test_all_take_turns_and_the_reference_with_them(pair: Pair) -> None:
    prompts = (Prompt("a", ("x",)), Prompt("b", ("y",)))
    methods = tuple(map(Configuration, ("ngram", "target", "speculative")))
    plan = plain_plan(prompts, methods, {**Settings(), "length": 2}, repeats=2)
    records = list(records_of(PairEngine(pair), plan))
    assert [(record.repeat, record.id, record.method) for record in records] == [
        (0, "a", "ngram"),
        (0, "a", "target"),
        (0, "a", "speculative"),
        (0, "b", "target"),
        (0, "b", "speculative"),
        (0, "b", "ngram"),
        (1, "a", "target"),
        (1, "a", "speculative"),
        (1, "a", "ngram"),
        (1, "b", "speculative"),
        (1, "b", "ngram"),
        (1, "b", "target"),
    ]
    assert len(records) == plan.generations
    assert all(record.speedup and record.target_tokens_per_s for record in records), "compared, whoever ran first"


def test_what_ran_before_its_reference_waits_for_it(pair: Pair) -> None:
    methods = tuple(map(Configuration, ("ngram", "speculative", "target", "prompt_lookup")))
    plan = plain_plan((Prompt("a", ("x",)),), methods, {**Settings(), "length": 2}, repeats=1)
    told = [[record.method for record in records] for records in execute(PairEngine(pair), plan)]
    assert told == [[], [], ["ngram", "speculative", "target"], ["prompt_lookup"]]
    alone = replace(plan, configurations=tuple(one for one in methods if one.method != "target"))
    assert [len(records) for records in execute(PairEngine(pair), alone)] == [1, 1, 1], "nothing to wait for"


def test_warm_up_leaves_no_memory_and_repeats_do_not_teach_each_other(pair: Pair) -> None:
    values = {**Settings(), "length": 24, "reset_in_between": False}
    plan = plain_plan((Prompt(1, ("Hello",)),), (Configuration("ngram"),), values, repeats=2)
    cold = [record.drafted for record in records_of(PairEngine(pair), plan)]
    engine = PairEngine(pair)
    estimated(engine, plan)
    warm = [record.drafted for record in records_of(engine, plan)]
    assert cold == warm and cold[0] == cold[1]


def test_a_warm_up_may_be_left_between_two_events_and_leaves_no_memory() -> None:
    engine = MockEngine()
    runs = [("target", "target", {}), ("speculative", "speculative", {"gamma": 2})]
    for name, account in warm_up(engine, Settings(), runs):
        if account.rounds:
            assert name == "target"
            break
    assert [call[0] for call in engine.calls] == ["target"] and engine.forgotten == 1


def test_configurations_of_a_method_do_not_learn_each_others_answers(pair: Pair) -> None:
    values = {**Settings(), "length": 24}
    both = tuple(Configuration("suffix", (("num_speculative_tokens", budget),)) for budget in (10, 9))
    prompts = (Prompt("a", ("Hello",)), Prompt("b", ("Hello",)))

    def drafted(*configurations: Configuration) -> dict[tuple[str | int, str], int | None]:
        plan = replace(plain_plan(prompts, (), values, repeats=1), configurations=configurations)
        return {(one.id, one.configuration): one.drafted for one in records_of(PairEngine(pair), plan)}

    alone = {**drafted(both[0]), **drafted(both[1])}
    assert drafted(*both) == alone
    assert alone["a", both[0].name] != alone["b", both[0].name]  # its own answer it does remember


class Interrupting(NullWatcher):
    def round(self, place: PlannedGeneration, round: object) -> None:
        if place.method == "ngram":
            raise KeyboardInterrupt


def test_ctrl_c_loses_no_generation_that_is_done(pair: Pair) -> None:
    both = Configuration("target"), Configuration("ngram")
    plan = plain_plan((Prompt(1, ("Hello",)),), both, {**Settings(), "length": 8}, repeats=1)
    records = records_of(PairEngine(pair), plan, Interrupting())
    assert next(records).method == "target"
    with pytest.raises(KeyboardInterrupt):
        next(records)


def test_a_trace_replaces_nothing_but_a_trace(invoke: Invoke, tmp_path: Path) -> None:
    prompts, trace = tmp_path / "prompts.jsonl", tmp_path / "trace.jsonl"
    prompts.write_text('{"prompt": "Hello"}\n')
    call = ("run", "--methods", "target", "--length", "2", "--json")
    refused = invoke(*call, "--prompts", prompts, "--trace", prompts)
    assert refused.exit_code == 2
    assert prompts.read_text() == '{"prompt": "Hello"}\n'
    assert invoke(*call, "--prompts", prompts, "--trace", trace).exit_code == 0
    first = trace.read_text()
    assert len(objects(first)) == 2
    assert invoke(*call, "--prompt", "Hello", "--set", "length=0", "--trace", trace).exit_code == 2
    assert trace.read_text() == first
    assert invoke(*call, "--prompts", prompts, "--trace", trace).exit_code == 0
    assert len(objects(trace.read_text())) == 2


def test_a_method_runs_side_by_side_with_itself(invoke: Invoke) -> None:
    runs = 'target,speculative,speculative gamma=1,ngram set_ngramstorage="onelevel 4" top_k_filler=1'
    call = ("run", "--prompt", "Hello", "--methods", runs, "--length", 12)
    records = {record["configuration"]: record for record in objects(invoke(*call, "--json").stdout)}
    ngram = "ngram set_ngramstorage=onelevel 4, top_k_filler=1"
    assert set(records) == {"target", "speculative", "speculative gamma=1", ngram}
    assert records["speculative"]["mean_gamma"] > records["speculative gamma=1"]["mean_gamma"] == 1
    assert (records["speculative"]["settings"]["gamma"], records["speculative gamma=1"]["settings"]["gamma"]) == (4, 1)
    assert records[ngram]["settings"]["set_ngramstorage"] == "onelevel 4"
    assert len({tuple(record["output_ids"]) for record in records.values()}) == 1
    assert "SD (speculative) gamma=1" in invoke(*call).stdout

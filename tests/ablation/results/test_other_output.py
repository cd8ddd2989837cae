"""A beam search in records and reports: nothing of it may pass for a speedup or an acceptance."""

import math
from pathlib import Path

import pytest
from rich.console import Console

from ablation.plan.choice import choose_runs, plain_plan
from ablation.plan.prompts.file import Prompt
from ablation.report.load import load_results
from ablation.report.spec_bench import spec_bench_table, write_spec_bench
from ablation.report.tables.pairs import compare
from ablation.report.write import write_report
from ablation.results.record import Record
from sampling.methods.settings import Settings
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from tests.ablation.conftest import Invoke, objects
from tests.ablation.playing import records_of
from tests.ablation.synthetic import write_results

RATES = ("speedup", "acceptance_rate", "alpha", "tokens_per_round", "mean_gamma", "c", "mean_entropy")


@pytest.fixture
def records(pair: Pair) -> list[Record]:
    """Plain autoregression, a beam search and a method that drafts, on two prompts."""
    settings = Settings()
    settings.assign("length", "12")
    prompts = tuple(Prompt(number, (text,), "task") for number, text in enumerate(("Hello", "ab ab ab"), start=1))
    return list(
        records_of(PairEngine(pair), plain_plan(prompts, choose_runs("target,beam,ngram", settings), settings, 1))
    )


def test_a_record_has_a_score_and_no_rate(records: list[Record]) -> None:
    for record in (record for record in records if record.method == "beam"):
        assert record.error is None and record.lossless is None and record.divergence_verdict is None
        assert all(getattr(record, name) is None for name in RATES), record
        assert (record.drafted, record.accept_hist, record.tokens_by_round) == (0, [], [])
        assert record.score is not None and record.score < 0 and record.rounds == record.new_tokens == 12
        assert record.tokens_per_s and record.ttft_s
        own = {"num_beams": 4, "beam_top_k": 3, "beam_min_length": 5, "beam_alpha": 1.2}
        assert own.items() <= record.settings.items()
    assert all(record.score is None for record in records if record.method != "beam")


@pytest.mark.usefixtures("undrawn")
def test_a_report_says_other_output(records: list[Record], tmp_path: Path) -> None:
    results = write_results(tmp_path / "r.csv", records)
    report = write_report(results, tmp_path / "report")
    found = report.summary[(report.summary["configuration"] == "beam") & (report.summary["task"] == "all")].iloc[0]
    assert found["lossless"] == "other output" and found["against_ar"] == ""
    for name in ("speedup", "ratio_of_sums", "acceptance_rate", "alpha", "tokens_per_round", "c", "mean_gamma"):
        assert math.isnan(found[name]), name
    page = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    speeds, drafts = [line for line in page.splitlines() if line.startswith("| Beam search (beam) ")][:2]
    assert "other output" in speeds and drafts.count("–") >= 6
    with (console := Console(width=60)).capture() as captured:
        report.print(console)
    assert "other output" in captured.get()
    pairs = compare(load_results(results), report.summary)
    assert "beam" not in {*pairs["a"], *pairs["b"]}


def test_spec_benchs_table_leaves_it_out(records: list[Record], tmp_path: Path) -> None:
    results = write_results(tmp_path / "r.csv", records)
    assert set(spec_bench_table(load_results(results, also=("text", "started")))["configuration"]) == {
        "target",
        "ngram",
    }
    folder = write_spec_bench(results, tmp_path / "spec", ())
    (answer, _) = objects((folder / "answers" / "beam.jsonl").read_text(encoding="utf-8"))
    assert answer["choices"][0]["accept_lengths"] == []


def test_the_table_for_people_says_so_too(invoke: Invoke) -> None:
    result = invoke("run", "--prompt", "Hello", "--methods", "target,beam", "--length", 5, "--set", "num_beams=2")
    assert result.exit_code == 0
    assert "beam: other output, so no speedup; score -" in result.stdout


def test_a_trace_has_no_line_of_a_search(invoke: Invoke, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    assert invoke("run", "--prompt", "Hello", "--methods", "target,beam", "--json", "--trace", trace).exit_code == 0
    assert {line["method"] for line in objects(trace.read_text())} == {"target"}


@pytest.mark.parametrize("method", ["beam", "drafter"])
def test_the_self_test_refuses_what_it_cannot_compare(invoke: Invoke, method: str) -> None:
    result = invoke("selftest", "--methods", method)
    assert result.exit_code == 2 and "cannot be checked against plain autoregression" in result.output

"""Acceptance by place in a report, from the trace beside the results."""

from pathlib import Path

import pytest

from ablation.plan.choice import plain_plan
from ablation.plan.grid import Configuration
from ablation.plan.prompts.file import Prompt
from ablation.report.tables.acceptance import place_tables
from ablation.report.write import write_report
from ablation.results.traces.places import read_rounds
from ablation.results.traces.trace import trace_path
from sampling.measure.acceptance.place_rates import place_shares
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from tests.ablation.playing import play, rows
from tests.tiny import tiny_pair


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("places") / "r.csv"
    prompts = tuple(Prompt(f"p{n}", (f"ab {n}", "and again") if n < 2 else (f"hello {n}",)) for n in range(6))
    runs = tuple(map(Configuration, ("target", "speculative", "ngram")))
    values = {**Settings(), "length": 30, "chat": False}
    play(out, plain_plan(prompts, runs, values, repeats=1), PairEngine(tiny_pair()), trace=True)
    return out


def test_rounds_of_the_trace_are_those_of_the_results(results: Path) -> None:
    found = list(read_rounds(trace_path(results)))
    for method in ("speculative", "ngram"):
        own = [row for row in rows(results) if row["configuration"] == method]
        rounds = [one for one in found if one.name == method]
        for name, counted in (("tested", "judged"), ("accepted", "accepted")):
            assert sum(getattr(one, counted) for one in rounds) == sum(int(row[name]) for row in own)
    assert {one.place.turn for one in found} == {1, 2} and {one.place.phase for one in found} >= {"answer"}
    assert max(one.place.output for one in found) < 30 <= max(one.place.context for one in found)


def test_the_report_has_tables_and_a_plot(results: Path) -> None:
    report = write_report(results)
    text = (report.folder / "report.md").read_text()
    assert "## Acceptance by place" in text and "Alpha by tokens of the answer before" in text
    assert "Alpha by turn" in text and (report.folder / "places.svg").exists()


def test_a_share_of_six_prompts_has_an_interval(results: Path) -> None:
    found = list(read_rounds(trace_path(results)))
    first = next(
        share
        for share in place_shares(found)
        if (share.name, share.kind, share.group) == ("speculative", "output", "0-7")
    )
    assert first.low <= first.share <= first.high
    assert place_tables(place_shares(found), found)[0].headers[0] == "configuration"


def test_without_a_trace_there_is_no_section(tmp_path: Path) -> None:
    assert list(read_rounds(tmp_path / "none.jsonl")) == []

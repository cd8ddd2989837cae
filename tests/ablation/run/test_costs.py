"""Costs that a plan weighs, watches and is predicted by."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ablation.plan.choice import choose_runs, plain_plan
from ablation.plan.grid import Plan
from ablation.plan.prompts.file import Prompt
from ablation.report.load import load_manifest, load_results
from ablation.report.tables.predicted import Prices
from ablation.report.tables.summary import ALL, summarise
from ablation.report.write import write_report
from ablation.results import manifest
from ablation.results.manifest import manifest_path
from ablation.run.conduct import conduct
from ablation.run.costing.costs import WatchedProfiles, ensure_costs, weighs_costs
from ablation.run.job import PlanJob
from egag.rollback_price import RollbackPrice
from sampling.measure import drift
from sampling.measure.drift import ProfileDrift, settle
from sampling.measure.times import profiling
from sampling.methods.rules import CONTROLLERS
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from sampling.pair.profile import DraftTimes, LatencyProfile
from sampling.pair.profile_store import keep, with_stored
from tests.ablation.mock_engine import MockEngine, mock_engine, mock_plan
from tests.ablation.playing import Silent, play, results_file
from tests.refusals import refused
from tests.tiny import tiny_pair
from utils.device import machine
from utils.files import CACHE_VARIABLE

# As the mock takes: AR 0.05 + 0.05 s, drafting two 0.025 s, verifying them 0.05 s, the rest 0.025 s.
PROFILE = LatencyProfile(
    {20: ((1, 0.05), (3, 0.05))}, ((20, 0.25),), 0.05, {"model": DraftTimes(0.0125, 0.0125)}, "then"
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache folder, and a machine that is free."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(machine, "_busy_s", lambda: 0.0)
    monkeypatch.setattr(machine, "_SHORTEST_S", 0.0)


@pytest.fixture
def weighing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The rule `ucb` weighs costs, wherever it is named, and measuring is short."""
    monkeypatch.setattr(profiling, "BUDGET_S", 0.3)
    object.__setattr__(CONTROLLERS["ucb"], "weighs", True)
    yield
    object.__setattr__(CONTROLLERS["ucb"], "weighs", False)


@dataclass
class Times:
    """A run as `ProfileDrift` reads it."""

    verify_ms: float | None
    draft_ms: float | None = 0.0
    rounds: int | None = 20
    drafted: int | None = 0
    other_ms: float | None = 0.0
    tokens_per_round: float | None = 1.0


def drifting(verify_ms: float, cores: float | None = 0.0, runs: int = 3, **values: Any) -> str | None:
    found = ProfileDrift(PROFILE)
    for _ in range(runs):
        found.add("target", {**Settings(), **values}, Times(verify_ms), 20, cores)
    return found.told()


def test_a_forward_that_takes_other_times_is_told() -> None:
    assert drifting(57.0) is None and drifting(43.0) is None
    said = drifting(59.0)
    assert said is not None and "the target's forward 1.18" in said and "measured anew next time" in said
    assert drifting(42.0) is not None


def test_times_are_told_by_what_they_were_expected_to_be() -> None:
    """A forward of one row, where five take twice as long; drafts of a round, where the first takes longest."""
    sloped = LatencyProfile({20: ((1, 0.05), (5, 0.1))}, ((20, 0.25),), 0.05, {"model": DraftTimes(0.02, 0.005)})
    found = ProfileDrift(sloped)
    for _ in range(3):
        found.add("target", {**Settings()}, Times(60.0), 20, 0.0)
        found.add("speculative", {**Settings()}, Times(100.0, 42.0, drafted=80), 20, 0.0)
    said = found.told()
    assert said is not None and "forward 1.20" in said and "drafting 1.20" in said


@pytest.mark.parametrize(("cores", "runs"), [(0.5, 3), (None, 3), (0.0, 2)])
def test_busy_machines_and_few_runs_say_nothing(cores: float | None, runs: int) -> None:
    assert drifting(100.0, cores, runs) is None


def test_drafts_count_where_the_profile_timed_the_same() -> None:
    def told(method: str, draft_ms: float, drafted: int = 40, **values: Any) -> str | None:
        found = ProfileDrift(PROFILE)
        for _ in range(3):
            found.add(method, {**Settings(), **values}, Times(50.0, draft_ms, drafted=drafted), 20, 0.0)
        return found.told()

    assert told("speculative", 25.0) is None
    said = told("speculative", 30.0)
    assert said is not None and "model's drafting 1.20" in said and "forward" not in said
    assert told("speculative", 30.0, drafted=0) is None
    assert told("speculative", 30.0, draft_weights="full") is None
    assert told("egag", 30.0) is None and told("extended", 30.0, hybrid_model="model") is None
    assert told("mtp", 30.0) is None  # it was not timed


def test_drafting_that_is_next_to_nothing_is_not_watched() -> None:
    cheap = LatencyProfile({20: ((1, 0.05), (5, 0.05))}, ((20, 0.25),), 0.05, {"model": DraftTimes(0.001, 0.0001)})
    found = ProfileDrift(cheap)
    for _ in range(3):
        found.add("speculative", {**Settings()}, Times(50.0, 9.0, drafted=80), 20, 0.0)
    assert found.told() is None


def test_what_no_longer_holds_is_dropped() -> None:
    engine = PairEngine(tiny_pair())
    keep(engine.pair, PROFILE)
    found = ProfileDrift(PROFILE)
    assert settle(engine, found) is None and with_stored(tiny_pair()).profile == PROFILE
    for _ in range(3):
        found.add("target", Settings(), Times(90.0), 20, 0.0)
    assert settle(engine, found) is not None and with_stored(tiny_pair()).profile is None


def test_a_plans_own_records_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "_ROUNDS", 2)

    def said(profile: LatencyProfile) -> str:
        err = StringIO()
        engine = MockEngine(known=profile)
        (tmp_path / "r.csv").unlink(missing_ok=True)
        with results_file(tmp_path / "r.csv", mock_plan(), engine) as file:
            conduct(PlanJob(engine, file.plan, file), Console(file=err, width=200))
        return err.getvalue()

    assert "differ" not in said(PROFILE)
    slower = replace(PROFILE, forward={20: ((1, 0.08), (3, 0.08))})
    assert "full: times differ from the profile's, measured over expected: the target's forward 0.62" in said(slower)


def test_nothing_is_measured_for_plans_that_weigh_nothing() -> None:
    engine = PairEngine(tiny_pair())
    ensure_costs(engine, plan_of("target,speculative,ucb"), Console(file=StringIO()))
    assert engine.profile() is None and not weighs_costs(plan_of("target,speculative,ucb"))


def test_costs_are_measured_before_the_warm_up_where_they_are_weighed(weighing: None) -> None:
    plan, err = plan_of("target,ucb"), StringIO()
    engine = PairEngine(tiny_pair())
    assert weighs_costs(plan) and not weighs_costs(plan_of("target,speculative"))
    assert weighs_costs(plan_of("mtp draft_rule=ucb")) and not weighs_costs(plan_of("mtp"))
    ensure_costs(engine, plan, Console(file=err))
    found = engine.profile()
    assert found is not None and "model" in found.drafters
    assert "measuring what forwards and drafts cost in full, once" in err.getvalue()
    ensure_costs(engine, plan, Console(file=err))
    assert engine.profile() is found and err.getvalue().count("measuring") == 1


def test_each_format_is_measured(weighing: None) -> None:
    plan = replace(plan_of("target,ucb"), formats=("full", "int8"))
    engine = PairEngine(tiny_pair())
    ensure_costs(engine, plan, Console(file=StringIO()))
    profiles = [engine.profile(), engine.in_format("int8").profile()]
    assert None not in profiles and profiles[0] != profiles[1]


def plan_of(names: str) -> Plan:
    settings = Settings()
    return plain_plan((Prompt(1, ("ab",)),), choose_runs(names, settings), settings, 1)


def test_the_manifest_keeps_the_profile_that_was_in_force(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    play(path, engine=MockEngine(known=PROFILE))  # type: ignore[arg-type]
    assert manifest.profiles(load_manifest(path)) == {"full": PROFILE}
    play(tmp_path / "none.csv")
    assert "profile" not in (load_manifest(tmp_path / "none.csv") or {})
    damaged = json.loads(manifest_path(path).read_text())
    damaged["profile"]["full"]["rest_s"] = "x"
    manifest_path(path).write_text(json.dumps(damaged))
    with refused(manifest_path(path), "rest_s", "'x'"):
        load_manifest(path)


def test_a_predicted_speedup_by_hand(tmp_path: Path) -> None:
    """SD: 2 tokens for 0.05 + 0.025 + 0.05 s where AR takes 0.1 s a token: 1.6; measured were 0.1 s, 2.0."""
    path = tmp_path / "r.csv"
    play(path, engine=MockEngine(known=PROFILE))  # type: ignore[arg-type]
    found = summarise(load_results(path), Prices.of(load_manifest(path)))
    rows = found[found["task"] == ALL].set_index("configuration")
    assert rows["predicted"]["speculative gamma=2"].tolist() == pytest.approx([1.6, 1.6])
    assert rows["speedup"]["speculative gamma=2"].tolist() == pytest.approx([2.0, 2.0])
    assert rows["predicted"]["target"].isna().all()
    assert summarise(load_results(path))["predicted"].isna().all()


def test_what_rounds_took_back_is_predicted_as_well(tmp_path: Path) -> None:
    """The same, where a token is read again in each round for 0.025 s: 0.2 / 0.15."""
    path = tmp_path / "r.csv"
    known = replace(PROFILE, rollback=RollbackPrice(0.0, 0.025))
    play(path, engine=MockEngine(known=known))  # type: ignore[arg-type]
    frame = load_results(path)
    found = summarise(frame.assign(reread=frame["rounds"]), Prices.of(load_manifest(path)))
    rows = found[found["task"] == ALL].set_index("configuration")
    assert rows["predicted"]["speculative gamma=2"].tolist() == pytest.approx([0.2 / 0.15] * 2)


@pytest.mark.usefixtures("undrawn")
def test_a_report_shows_predicted_beside_measured(tmp_path: Path) -> None:
    play(tmp_path / "r.csv", engine=MockEngine(known=PROFILE))  # type: ignore[arg-type]
    report = write_report(tmp_path / "r.csv")
    page = (report.folder / "report.md").read_text()
    assert "| predicted |" in page and "measured then" in page and "0.0125" not in page
    assert "1.6" in (report.folder / "summary.csv").read_text()
    console = Console(width=200, record=True, file=StringIO())
    report.print(console)
    shown = console.export_text()
    assert "predicted" in shown and "1.60x" in shown
    play(tmp_path / "none.csv")
    report = write_report(tmp_path / "none.csv")
    assert "| predicted |" not in (report.folder / "report.md").read_text()
    report.print(console)
    assert "predicted" not in console.export_text()


def test_watching_changes_nothing_where_nothing_was_measured() -> None:
    watched = WatchedProfiles(mock_engine(), mock_plan())
    watched.begin()
    assert watched.settle() == []
    assert Silent().said == []

"""The joules of rows, on engines whose machine takes 10 W idle and 30 W at work."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ablation.run import configuration_run
from engines.spec import SERVER
from sampling.engine import Description, Text
from tests.ablation.mock_engine import GREEDY, MockEngine, mock_plan
from tests.ablation.playing import play, rows
from utils.device.energy import EnergyMeter
from utils.events import Event, Prefilled, Round

IDLE_WATTS, WORK_WATTS = 10.0, 30.0


@dataclass
class Machine:
    """A counter of millijoules that grows with the time that is spent."""

    now: float = 0.0
    part: str = "package"

    def spend(self, event: Event) -> None:
        if isinstance(event, Prefilled):
            self.now += event.prefill_s
        elif isinstance(event, Round):
            self.now += (event.draft_s + event.verify_s + event.other_s) / event.live

    def read(self) -> int:
        return round(self.now * WORK_WATTS * 1e3)

    def joules(self, before: int, after: int, seconds: float) -> float | None:
        return (after - before) / 1e3


@dataclass
class Metered(MockEngine):
    """The mock, whose events take the time that they tell."""

    machine: Machine = field(default_factory=Machine)
    device: str = "cpu"

    def describe(self) -> Description:
        about = super().describe()
        return replace(about, target=replace(about.target, device=self.device))

    def stream(
        self, name: str, values: Mapping[str, Any], prompt: Sequence[int], run: str | None = None
    ) -> Iterator[Event]:
        for event in super().stream(name, values, prompt, run):
            self.machine.spend(event)
            yield event

    def stream_many(
        self, name: str, values: Mapping[str, Any], texts: Iterable[Text], batch: int, run: str | None = None
    ) -> Iterator[tuple[Any, Event]]:
        for tag, event in MockEngine(self.fail).stream_many(name, values, texts, batch, run):
            self.machine.spend(event)
            yield tag, event


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Metered:
    made = Metered()
    meter = EnergyMeter([made.machine], lambda: made.machine.now)
    meter.idle_watts = IDLE_WATTS
    devices = {torch.device("cpu"): meter}
    monkeypatch.setattr(configuration_run, "energy_meter", devices.__getitem__)
    return made


def played(out: Path, engine: Metered, **more: Any) -> dict[str, dict[str, str]]:
    """The row of the first prompt by configuration."""
    plan = replace(mock_plan(3), processors=(GREEDY,), seeds=(1,), **more)
    play(out, plan, engine)  # type: ignore[arg-type]
    return {row["configuration"]: row for row in rows(out) if row["id"] == "p0"}


def test_a_row_has_its_joules_a_token_and_what_was_taken_off(tmp_path: Path, engine: Metered) -> None:
    found = played(tmp_path / "r.csv", engine)
    plain, drafted = found["target"], found["speculative gamma=4"]
    assert float(plain["joules_per_token"]) == pytest.approx((30 - 10) * (0.25 + 0.4) / 4)
    assert float(drafted["joules_per_token"]) == pytest.approx((30 - 10) * (0.25 + 0.2) / 4)
    assert plain["idle_watts"] == "10.0" and plain["energy_of"] == "1 package"


def test_a_batch_has_the_joules_of_all_its_tokens(tmp_path: Path, engine: Metered) -> None:
    """Three texts, two at a time: 0.8 s of rounds and three prompts for 12 tokens."""
    found = played(tmp_path / "r.csv", engine, batches=(2,))
    assert float(found["target"]["joules_per_token"]) == pytest.approx((30 - 10) * (0.8 + 0.75) / 12)


def test_a_batch_in_which_a_text_failed_has_none(tmp_path: Path, engine: Metered) -> None:
    engine.fail = "speculative"
    found = played(tmp_path / "r.csv", engine, batches=(2,))
    assert found["speculative gamma=4"]["error"] and found["speculative gamma=4"]["joules_per_token"] == ""
    assert found["target"]["joules_per_token"] != ""


def test_other_work_in_the_span_leaves_the_joules_unknown(
    tmp_path: Path, engine: Metered, monkeypatch: pytest.MonkeyPatch
) -> None:
    spend = Machine.spend
    monkeypatch.setattr(Machine, "spend", lambda machine, event: (spend(machine, event), spend(machine, event))[0])
    found = played(tmp_path / "r.csv", engine)["target"]
    assert found["joules_per_token"] == "" and found["idle_watts"] == "10.0" and found["wall_s"]


def test_nobody_knows_the_machine_of_a_server(tmp_path: Path, engine: Metered) -> None:
    engine.device = SERVER
    found = played(tmp_path / "r.csv", engine)["target"]
    assert found["joules_per_token"] == found["idle_watts"] == found["energy_of"] == ""


def test_without_counters_the_columns_are_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration_run, "energy_meter", lambda device: None)
    found = played(tmp_path / "r.csv", Metered())["target"]
    assert found["joules_per_token"] == found["idle_watts"] == found["energy_of"] == ""

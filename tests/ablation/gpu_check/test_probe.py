"""The stage `probe`: what it finds right on a CPU, and which line it names where something is wrong, hangs or dies."""

import io
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ablation.gpu_check.probe import __main__ as child
from ablation.gpu_check.probe import attention, model, stage
from ablation.gpu_check.probe.attention import BACKENDS, CHOSEN, COLUMNS, OURS, ROWS
from ablation.gpu_check.probe.table import probes
from ablation.gpu_check.probe.trial import Probe, ProbeDevice, TooFar, compared
from ablation.gpu_check.record import StageRecord
from ablation.gpu_check.stages import run_stage
from sampling.forward.kernels import attention as kernels_attention
from sampling.forward.kernels.attention import folded_mask, grouped_attention
from sampling.forward.triton.attention import SplitKeys
from tests.forked import python
from tests.interpreted import interpreter
from utils.device.captured import add_failure
from utils.provenance import ROOT

CPU = ProbeDevice(torch.device("cpu"), tiny=True)
GRID = [(rows, columns) for rows in ROWS for columns in COLUMNS]


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of the probes begins with what it imports."""
    monkeypatch.setattr(sys, "executable", python())


def said(probe: Probe) -> dict[str, Any]:
    with (Path("/dev/null")).open("w", encoding="utf-8") as dump:
        return child.outcome(probe, CPU, dump)


def named(name: str) -> Probe:
    return next(probe for probe in probes(CPU) if probe.name == name)


def outcome_of(name: str) -> dict[str, Any]:
    """What becomes of a probe in this process."""
    return said(named(name))


def test_the_stage_on_a_cpu(tmp_path: Path) -> None:
    assert run_stage("probe", tmp_path / "out", "cpu", tiny=True)
    found = json.loads((tmp_path / "out" / "probe.json").read_text(encoding="utf-8"))
    assert (
        found["finished"]
        and found["failed"] == {}
        and [path.name for path in (tmp_path / "out").iterdir()] == ["probe.json"]
    )
    by_name = {probe["name"]: probe for probe in found["probes"]}
    assert list(by_name) == [probe.name for probe in probes(CPU)] and all(probe["ok"] for probe in by_name.values())
    for kernel in (OURS, CHOSEN, *BACKENDS):
        points = [by_name[f"attention, {kernel}: {rows} x {columns}"] for rows, columns in GRID]
        if kernel in (CHOSEN, "math", "flash"):
            assert all(point["share"] < 1e-4 and point["ms"] > 0 and "difference" in point for point in points)
        else:
            assert all(point["left_out"] for point in points)
            assert {point["name"] for point in points} <= set(found["left_out"])
    computed = ("graph capture", "model: 1 row, eager", "model: a tree of 5, captured", "one width: bit for bit")
    assert all("left_out" not in by_name[name] for name in computed)
    assert by_name["product in fp8: 1 rows"]["left_out"] and by_name["the fused gate: 8B, bfloat16"]["left_out"]


def test_an_error_is_told_with_the_line_of_ours_that_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    """What attention gives has another shape than it should, and torch refuses to reshape it."""

    def other_shape(query: Tensor, *given: object, **more: object) -> Tensor:
        return query[..., :-1]

    monkeypatch.setattr(kernels_attention, "F", SimpleNamespace(scaled_dot_product_attention=other_shape))
    outcome = said(named(f"attention, {CHOSEN}: 5 x 512"))
    assert not outcome["ok"] and outcome["error"].startswith("RuntimeError: ")
    path, line, name = re.fullmatch(r"(\S+):(\d+) in (\w+)", outcome["at"]).groups()  # type: ignore[union-attr]
    assert (path, name) == ("sampling/forward/kernels/attention.py", "grouped_attention")
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    assert "out.reshape(" in lines[int(line) - 1]
    assert said(named("model: 1 row, eager"))["at"] == outcome["at"]


def test_a_kernel_that_torch_does_not_have_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*given: object, **more: object) -> Tensor:
        raise RuntimeError("No available kernel. Aborting execution.")

    monkeypatch.setattr(F, "scaled_dot_product_attention", none_left)
    assert said(named("attention, math: 1 x 512"))["left_out"].startswith("No available kernel")
    assert not said(named(f"attention, {CHOSEN}: 1 x 512"))["ok"]


@pytest.mark.parametrize(("rows", "columns"), GRID)
@pytest.mark.parametrize("fault", ["none", "misses the last", "finds the next", "finds what is stale"])
def test_what_a_row_sees_decides_whether_a_kernel_is_right(fault: str, rows: int, columns: int) -> None:
    case = attention.drawn_case(CPU, rows, columns)
    seen = case.seen
    if fault == "misses the last":
        seen = seen & ~F.pad(torch.eye(rows, dtype=torch.bool), (case.length, columns - case.length - rows))
    elif fault == "finds the next":
        seen = (
            seen | (torch.arange(columns) <= case.length + rows - 1)
            if rows > 1
            else attention._chain(1, case.length + 1, columns, seen.device)
        )
    elif fault == "finds what is stale":
        seen = seen | (torch.arange(columns) >= case.length + rows)
    mask = folded_mask(torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min), 2)
    card = 0.03

    def call() -> Tensor:
        return grouped_attention(case.query, case.keys, case.values, mask)

    if fault == "none":
        assert compared(call, case.expected, CPU)["share"] < 1e-4
    else:
        with pytest.raises(TooFar):
            compared(call, case.expected, CPU, card)


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_probes_of_our_kernels_are_right_in_the_interpreter() -> None:
    names = (f"attention, {OURS}: 5 x 512", "the fused gate: 135M, float32", "the fused step of heads: 135M, bfloat16")
    with interpreter() as interpreted:
        for name in names:
            outcome = interpreted(outcome_of, name)
            assert outcome["ok"] and outcome["share"] < 0.03 and "left_out" not in outcome


def test_a_wrong_number_is_told_with_what_gave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def halved(query: Tensor, *given: Any) -> Tensor:
        return grouped_attention(query, *given) / 2

    monkeypatch.setattr(attention, "grouped_attention", halved)
    outcome = said(named(f"attention, {CHOSEN}: 17 x 2048"))
    assert not outcome["ok"] and outcome["share"] == pytest.approx(0.5, abs=0.01)
    probe = Probe("", grouped_attention, dict)
    assert probe.place.startswith("sampling/forward/kernels/attention.py:")
    assert Probe("", SplitKeys.attend, dict).place.endswith(" in SplitKeys.attend")


def test_not_a_number_is_too_far() -> None:
    with pytest.raises(TooFar):
        compared(lambda: torch.tensor([torch.nan, 1.0]), torch.ones(2), CPU)


def test_what_is_not_captured_fails_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def uncaptured(*given: Any) -> tuple[Tensor]:
        add_failure("there is no stream", "sampling/loop.py:3 in decode")
        return (torch.zeros(16, 16),)

    monkeypatch.setattr(model.Graphed, "__call__", uncaptured)
    outcome = said(named("graph capture"))
    assert outcome["error"] == "not captured: there is no stream" and outcome["at"] == "sampling/loop.py:3 in decode"


def test_one_width_that_is_none_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "first_difference", lambda runner, text: 5)
    outcome = said(named("one width: bit for bit"))
    assert not outcome["ok"] and "5 rows" in outcome["error"]


PLANTED = """
import os, signal, sys, time
from ablation.gpu_check.probe import __main__ as child
from ablation.gpu_check.probe.trial import Probe, compared
from ablation.gpu_check.record import StageRecord
from utils.text import first_line

def dies():
    os.kill(os.getpid(), signal.SIGSEGV)

def fails():
    return first_line(None, 3)

def lost():
    child._answers = lambda on: False
    fails()

runs = [dict, fails, dies, dict, lambda: time.sleep(600), dict, lost, dict]
child.probes = lambda on: [Probe(str(number), compared, run) for number, run in enumerate(runs)]
child.HANGS_S = 1.0
sys.exit(child.main(*sys.argv[1:]))
"""


def test_a_probe_that_dies_or_hangs_keeps_no_other_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def process(record: StageRecord, first: int, dump: Path, errors: io.TextIOBase) -> "subprocess.Popen[str]":
        begun.append(first)
        words = [sys.executable, "-c", PLANTED, "cpu", "tiny", str(first), "60", str(dump)]
        return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)  # type: ignore[call-overload,no-any-return]

    begun: list[int] = []
    monkeypatch.setattr(stage, "_process", process)
    record = StageRecord("probe", tmp_path / "out", CPU.device, tiny=True, seconds=240.0)
    stage.probe(record)
    assert begun == [0, 3, 5, 7]
    outcomes = {outcome["name"]: outcome for outcome in record.extra["probes"]}
    assert [outcomes[str(number)]["ok"] for number in range(8)] == [True, False, False, True, False, True, False, True]
    assert "SIGSEGV" in record.failed["2"] and "it hangs" in record.failed["4"]
    assert "TypeError" in record.failed["1"] and set(record.failed) == {"1", "2", "4", "6"}


def test_a_process_that_does_not_begin_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def process(record: StageRecord, first: int, dump: Path, errors: io.TextIOBase) -> "subprocess.Popen[str]":
        words = [sys.executable, "-c", "raise SystemExit('no such library')"]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(stage, "_process", process)
    record = StageRecord("probe", tmp_path / "out", CPU.device, tiny=True)
    record.run(lambda: stage.probe(record))
    assert "no such library" in record.failed["stage"]

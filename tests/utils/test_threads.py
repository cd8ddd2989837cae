"""How long threads spin is set before torch is there, and never over what a user chose."""

from utils.device.threads import SPIN_COUNT, spin_briefly

import ast
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from utils.device.waiting.setting import VARIABLE, adapts
from utils.provenance import ROOT

SAY = "import os, sys; print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"
# Its measurements set each setting themselves.
MEASURES_IT = "spin_cost.py"
COMPUTES = ("torch", "sampling.loading.pairs", "ablation.commands.ablate")


def test_threads_spin_briefly() -> None:
    environment = {"HOME": "/"}
    spin_briefly(environment)
    assert environment == {"HOME": "/", "GOMP_SPINCOUNT": SPIN_COUNT, VARIABLE: "auto"}
    assert adapts(environment)


@pytest.mark.parametrize(
    "own", [{"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": SPIN_COUNT}, {"OMP_WAIT_POLICY": "ACTIVE"}]
)
def test_a_users_own_setting_stays(own: dict[str, str]) -> None:
    environment = dict(own)
    spin_briefly(environment)
    assert environment == own and not adapts(environment)


def test_a_process_that_is_started_may_choose_as_well_unless_a_user_has_forbidden_it() -> None:
    inherited: dict[str, str] = {}
    spin_briefly(inherited)
    spin_briefly(inherited)
    assert adapts(inherited) and not adapts(inherited | {"OMP_WAIT_POLICY": "ACTIVE"})
    forbidden = {VARIABLE: "spin"}
    spin_briefly(forbidden)
    assert forbidden == {VARIABLE: "spin", "GOMP_SPINCOUNT": SPIN_COUNT} and not adapts(forbidden)


@pytest.mark.parametrize(("own", "kept"), [({}, SPIN_COUNT), ({"GOMP_SPINCOUNT": "7"}, "7")])
def test_the_entry_sets_it_before_torch(own: dict[str, str], kept: str) -> None:
    inherited = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    command = [sys.executable, "-c", f"import infer; {SAY}"]
    said = subprocess.run(command, cwd=ROOT, env={**inherited, **own}, capture_output=True, text=True, check=True)
    assert said.stdout.split() == [kept, "False"]


def test_each_measurement_of_the_spin_has_its_own_setting_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.setenv(VARIABLE, "auto")
    environment = runpy.run_path(str(ROOT / "scripts" / MEASURES_IT))["environment"]
    names, settings = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", VARIABLE), ("libgomp's own", "3000", "passive", "auto")
    found = [[environment(setting).get(name) for name in names] for setting in settings]
    assert found == [[None] * 3, ["3000", None, None], [None, "PASSIVE", None], [None] * 3]


def _imports(path: Path) -> list[str]:
    """Modules that a file imports anywhere, in order."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    found = [(node.lineno, alias.name) for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    found += [(node.lineno, node.module or "") for node in nodes if isinstance(node, ast.ImportFrom)]
    return [name for _, name in sorted(found)]


def test_every_program_that_computes_sets_it_first() -> None:
    programs = [ROOT / "infer.py", ROOT / "tests" / "conftest.py"]
    programs += [
        path
        for path in sorted((ROOT / "scripts").glob("*.py"))
        if path.name != MEASURES_IT and "__main__" in path.read_text() and set(_imports(path)) & set(COMPUTES)
    ]
    assert len(programs) >= 8
    for path in programs:
        assert _imports(path)[0] == "utils.device.threads", path

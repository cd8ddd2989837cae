"""docs/add-a-method.md is followed to the letter in a copy of the project, and what it promises comes true.

Only its self-test is left out: it takes half a minute on the embedded pair.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, WALK_THROUGH
from tests.forked import python

TEXT = WALK_THROUGH.read_text(encoding="utf-8")
TABLES = {"CONTROLLERS": Path("sampling", "methods", "rules.py")}
METHODS = Path("sampling", "methods", "tables.py")
COPIED = ("sampling", "ngram_assisted", "egag", "utils", "repl", "ablation", "tests", "infer.py", "pyproject.toml")

SMALL_PAIR = ("--target", "models/dates", "--drafter", "models/dates-drafter")
DESCRIBE, PROVE = "infer.py methods echo", 'pytest tests/conformance -k "[echo or [model-cautious"'

# A block, and the end of the sentence before it, which says where it goes.
_PYTHON = re.compile(r"([^\n]+):\n\n```python\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_FILE, _TABLE = re.compile(r"`(\S+\.py)`$"), re.compile(r"table `([A-Z]+)`")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with all that the page adds."""
    folder = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, folder / name)
    (folder / "models").symlink_to(ROOT / "models")
    for where, code in _PYTHON.findall(TEXT):
        _add(folder, where, code)
    return folder


def _add(folder: Path, where: str, code: str) -> None:
    if path := _FILE.search(where):
        (folder / path[1]).write_text(code, encoding="utf-8")
        return
    table = _TABLE.search(where)
    assert table, f"{where}: neither a file nor a table"
    place = folder / TABLES.get(table[1], METHODS)
    tables = place.read_text(encoding="utf-8")
    begin = tables.index(f"\n{table[1]} = ")
    end = tables.index("\n)\n", begin) + 1
    place.write_text(f"{tables[:end]}{code.strip()},\n{tables[end:]}", encoding="utf-8")


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of ours in a process of its own. It must end with 0."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["XDG_STATE_HOME"] = str(folder / "state")
    ended = subprocess.run([python(), *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended


def test_every_block_and_command_has_its_place() -> None:
    """A command that is added to the page needs a test here."""
    assert len(_PYTHON.findall(TEXT)) == TEXT.count("```python")
    assert re.findall(r"uv run ([^`\n]+)", TEXT) == [DESCRIBE, PROVE, "infer.py selftest --methods echo"]


def test_the_method_is_described(copy: Path) -> None:
    assert "echo_times" in _run(copy, *DESCRIBE.split()).stdout


def test_the_conformance_suite_takes_the_new_methods_and_no_other(copy: Path) -> None:
    """The page's own rule, which verdicts move, is among those that the drafter meets."""
    told = _run(copy, "-m", *shlex.split(PROVE), "-v").stdout
    assert {name.partition("-rejection")[0] for name in re.findall(r"\[(.+)\] PASSED", told)} >= {
        "echo",
        "model-cautious",
    }
    assert all(name.startswith(("echo", "model-cautious")) for name in re.findall(r"\[(.+)\] PASSED", told))
    for test in ("greedy_output_is_that_of_autoregression", "sampled_output_has_the_targets_distribution"):
        assert f"test_{test}[echo-cautious-rejection] PASSED" in told


def test_a_round_without_drafts_does_not_move_the_rule(copy: Path) -> None:
    told = """
from types import SimpleNamespace as Round
from egag.cautious import CautiousGamma
rule = CautiousGamma(4)
for path, drafts in (((), (5,)), ((), ()), ((0,), (5,)), ((), ())):
    rule.update(Round(path=path, drafts=drafts))
    print(rule.gamma)
"""
    assert _run(copy, "-c", told).stdout.split() == ["1", "1", "4", "4"]


def test_gamma_is_the_limit_of_echo(copy: Path) -> None:
    assert "`echo_times=6` drafts 4" in TEXT
    run = ("infer.py", "run", "--methods", "echo", "--set", "echo_times=6", "--length", "12", "--prompt", "x", "--json")
    (record,) = [json.loads(line) for line in _run(copy, *run, *SMALL_PAIR).stdout.splitlines()]
    assert 2 * record["rounds"] < record["drafted"] <= 4 * record["rounds"]


def test_both_methods_run(copy: Path) -> None:
    assert "`--methods echo --set echo_times=3`" in TEXT
    run = ("infer.py", "run", "--methods", "echo,cautious", "--set", "echo_times=3", "--prompt", "x", "--json")
    records = [json.loads(line) for line in _run(copy, *run, *SMALL_PAIR).stdout.splitlines()]
    assert {record["method"]: record["error"] for record in records} == {"echo": None, "cautious": None}


def test_the_session_knows_them(copy: Path) -> None:
    assert "`/echo on` and `/echo_times 3`" in TEXT
    (copy / "session").write_text("/echo on\n/echo_times 3\n/cautious on\n", encoding="utf-8")
    assert "echo_times 2 -> 3" in _run(copy, "infer.py", "--script", "session").stderr


def test_a_plan_knows_them(copy: Path) -> None:
    assert '`method = "echo"` with `echo_times = [1, 2, 3]`' in TEXT
    (copy / "my.toml").write_text('[[methods]]\nmethod = "echo"\necho_times = [1, 2, 3]\n', encoding="utf-8")
    told = "from ablation.plan.file import *; print(*(c.name for c in read_experiment('my.toml').plan.configurations))"
    assert "echo echo_times=1 echo echo_times=2 echo echo_times=3" in _run(copy, "-c", told).stdout

"""A load generator that others wrote, against our server: GuideLLM (docs/server.md says how to have it).

WORKBENCH_GUIDELLM: the program `guidellm` of an environment of its own. Run with -m engines.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from serve.limits import ServerLimits
from tests.serve.running import running
from tests.tiny import tiny_pair

GUIDELLM = "WORKBENCH_GUIDELLM"
pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]


@pytest.mark.parametrize("route", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("method", ["target", "prompt_lookup"])
def test_guidellm_runs_through_without_an_error(tmp_path: Path, route: str, method: str) -> None:
    if not (program := os.environ.get(GUIDELLM)):
        pytest.skip(f"no {GUIDELLM} in the environment")
    pair = tiny_pair(window=1024)
    pair.tokenizer.save_pretrained(tmp_path / "tokenizer")
    with running(pair, ServerLimits(size=4), default=method) as found:
        out = tmp_path / "report.json"
        command = _command(program, found.url, route, tmp_path / "tokenizer", out)
        ran = subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=tmp_path, env=_environment())
        assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
        report = json.loads(out.read_text(encoding="utf-8"))
        finished = found.server.driver.counters.finished
    (benchmark,) = report["benchmarks"]
    assert _counts(benchmark) == (24, 0, 0)
    assert finished["length"] == 24 and not finished["error"] and not finished["abort"]


def _command(program: str, url: str, route: str, tokenizer: Path, out: Path) -> list[str]:
    raise NotImplementedError


def _environment() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1"}


def _counts(benchmark: Any) -> tuple[int, int, int]:
    raise NotImplementedError

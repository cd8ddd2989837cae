"""A load generator that others wrote, against our server: GuideLLM (docs/server.md says how to have it).

WORKBENCH_GUIDELLM: the program `guidellm` of an environment of its own. Run with -m engines.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from serve.limits import ServerLimits
from tests.serve.running import running
from tests.tiny import tiny_pair

GUIDELLM = "WORKBENCH_GUIDELLM"
pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("route", "method"), [("/v1/completions", "target"), ("/v1/chat/completions", "prompt_lookup")]
)
def test_guidellm_runs_through_without_an_error(tmp_path: Path, route: str, method: str) -> None:
    if not (program := os.environ.get(GUIDELLM)):
        pytest.skip(f"no {GUIDELLM} in the environment")
    pair = tiny_pair(window=1024)
    pair.tokenizer.save_pretrained(tmp_path / "tokenizer")
    with running(pair, ServerLimits(size=4), default=method) as found:
        command = [program, *_options(found.url, route, tmp_path / "tokenizer", tmp_path / "report.json")]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        ran = subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=tmp_path, env=environment)
        counters = found.server.driver.counters
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    (benchmark,) = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["benchmarks"]
    assert benchmark["metrics"]["request_totals"] == {"successful": 24, "errored": 0, "incomplete": 0, "total": 24}
    answers = benchmark["requests"]["successful"]
    assert {answer["output_metrics"]["text_tokens"] for answer in answers} == {16}
    assert counters.finished == {"stop": 0, "length": 24, "abort": 0, "error": 0}
    assert (counters.drafted > 0) == (method != "target")


def _options(url: str, route: str, tokenizer: Path, report: Path) -> list[str]:
    return [
        "run",
        f"--backend=kind=openai_http,target={url},request_format={route}",
        "--profile=kind=concurrent,streams=4",
        "--constraint=kind=max_requests,count=24",
        "--data=kind=synthetic_text,prompt_tokens=40,output_tokens=16",
        "--data-loader=kind=pytorch,samples=24",
        f"--tokenizer=kind=huggingface_auto,model={tokenizer}",
        f"--output=kind=json,path={report}",
        "--disable-console",
    ]

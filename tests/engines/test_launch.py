"""Servers that are started: healthy before they are asked, one at a time, and none left behind."""

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from engines.server.launch import Launcher
from engines.server.served import ServedEngine
from engines.spec import EngineSpec, read_launch
from engines.tables import DIALECTS
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from tests.forked import python
from tests.refusals import refused
from tests.tiny import tiny_pair
from tests.waiting import PATIENCE_S, until
from utils.events import WholeAnswer

FAKE = Path(__file__).with_name("fake_server.py")


def command(pids: Path, *more: str) -> str:
    return shlex.join([sys.executable, str(FAKE), "{port}", str(pids), *more, "{options}"])


def ends(pids: Path) -> None:
    """Wait until the children of all servers that ran have ended."""
    numbers = [int(line) for line in pids.read_text().split()]
    assert numbers
    until(lambda: not any(map(_lives, numbers)))


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_answer_of_a_server_that_was_started(tmp_path: Path) -> None:
    pids, dialect = tmp_path / "pids", DIALECTS["vllm"]
    with Launcher(command(pids), dialect, "m") as launcher:
        engine = ServedEngine(
            PairEngine(tiny_pair()), EngineSpec("fake", "openai", dialect.name, model="m"), launcher.api_of
        )
        (answer,) = engine.stream("target", Settings(), [1, 2, 3])
        assert isinstance(answer, WholeAnswer) and answer.output_ids == (5, 6, 7, 8)
        assert answer.prompt_tokens == 3 and answer.first == 1 and 0 < answer.ttft_s <= answer.wall_s
        first = launcher.api_of({"method": "naive"})
        assert launcher.api_of({"method": "naive"}) == first
        assert launcher.api_of({"method": "ngram", "num_speculative_tokens": 2}) != first
    ends(pids)


def test_servers_may_stay_until_the_end(tmp_path: Path) -> None:
    pids, dialect = tmp_path / "pids", DIALECTS["vllm"]
    drafts = {"method": "ngram", "num_speculative_tokens": 2}
    with Launcher(command(pids), dialect, "m", at_once=True) as launcher:
        plain, drafting = launcher.api_of({"method": "naive"}), launcher.api_of(drafts)
        assert plain != drafting and launcher.api_of({"method": "naive"}) == plain
        assert launcher.api_of(drafts) == drafting
        plain.get(dialect.health)
    ends(pids)


def test_a_server_that_dies_says_why(tmp_path: Path) -> None:
    told = []
    with Launcher(command(tmp_path / "pids", "die"), DIALECTS["vllm"], "m") as launcher:
        for _ in range(2):
            with refused("status 3", "no weights found") as failed:
                launcher.api_of({"method": "naive"})
            told += re.findall(r"all that it said: (\S+);", str(failed.value))
    first, second = told
    assert first == second, "it was tried again"
    assert "no weights found" in Path(first).read_text(encoding="utf-8")
    Path(first).unlink()


def test_a_server_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    sleeping = shlex.join([sys.executable, "-c", "import time; time.sleep(600)", "{port}"])
    launcher = Launcher(sleeping, DIALECTS["vllm"], "m", start_s=0.5)
    with launcher, refused("0.5 s") as failed:
        launcher.api_of({"method": "naive"})
    Path(str(failed.value).partition("all that it said: ")[2].partition(";")[0]).unlink()


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGTERM])
def test_whoever_started_it_may_be_killed(tmp_path: Path, way: signal.Signals) -> None:
    pids = tmp_path / "pids"
    program = (
        "import time\nfrom engines.server.launch import Launcher\nfrom engines.tables import DIALECTS\n"
        f"launcher = Launcher({command(pids)!r}, DIALECTS['vllm'], 'm')\n"
        "launcher.api_of({'method': 'naive'})\nprint('ready', flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen([python(), "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        process.send_signal(way)
        process.wait(PATIENCE_S)
    ends(pids)


@pytest.mark.parametrize("launch", ["vllm serve", "vllm serve --port {port} 'x", ""])
def test_a_command_that_cannot_be_told_where_is_refused(launch: str) -> None:
    with refused("launch", repr(launch)):
        read_launch(launch)

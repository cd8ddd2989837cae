"""The live page in a headless browser, where there is one: what it looks like while texts are written."""

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from sampling.batch import Batch
from serve.limits import ServerLimits
from tests.serve.running import running
from tests.serve.test_leaving import begin, until
from tests.tiny import tiny_pair

CHROMIUM = shutil.which("chromium")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
)
HEADING = 145
ACCEPTED = (0x15, 0x80, 0x3D)


def green_below_the_heading(url: str, folder: Path) -> int:
    """Pixels of accepted tokens in the rows of the table, once the page has connected."""
    assert CHROMIUM
    file = folder / "page.png"
    call = [CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "--timeout=2000", "--window-size=1200,500"]
    subprocess.run([*call, f"--screenshot={file}", url], capture_output=True, timeout=60, check=True)
    pixels = (matplotlib.image.imread(file)[HEADING:, :, :3] * 255).round()
    return int((np.abs(pixels - ACCEPTED).max(-1) < 8).sum())


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
def test_accepted_tokens_are_seen_while_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play = Batch.play

    def slowly(self: Batch) -> Any:
        time.sleep(0.1)
        return play(self)

    monkeypatch.setattr(Batch, "play", slowly)
    with running(tiny_pair(), ServerLimits(size=3)) as found:
        assert green_below_the_heading(found.url, tmp_path) == 0
        connections = [begin(found, speculative={"method": "speculative", "gamma": 3}) for _ in range(2)]
        assert until(lambda: found.server.driver.counters.accepted >= 4)
        assert any(green_below_the_heading(found.url, tmp_path) > 10 for _ in range(4))
        for connection in connections:
            connection.close()

"""The live page in a headless browser, where there is one: what it looks like while texts are written."""

import json
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import matplotlib.image
import numpy as np
import pytest

from sampling.batch import Batch
from serve import app
from serve.limits import ServerLimits
from tests.serve.running import running
from tests.serve.test_leaving import begin, until
from tests.tiny import tiny_pair

CHROMIUM = shutil.which("chromium")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
)
HEADING = 245
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
        until(lambda: found.server.driver.counters.accepted >= 4)
        assert any(green_below_the_heading(found.url, tmp_path) > 10 for _ in range(4))
        for connection in connections:
            connection.close()


FILL = """<script>
addEventListener("load", async () => {
  const wait = () => new Promise(go => setTimeout(go, 50));
  while (!by("method").length) await wait();
  const methods = [...by("method").options].map(option => option.value);
  by("prompt").value = "Hello"; by("method").value = "speculative"; by("parameters").value = "PARAMETERS";
  by("length").value = "12"; by("ask").requestSubmit();
  do { await wait(); } while (!by("outcome").textContent || by("send").disabled);
  const seen = {outcome: by("outcome").textContent, answer: by("answer").textContent, methods};
  fetch("HERE/?" + encodeURIComponent(JSON.stringify(seen)), {mode: "no-cors"});
});
</script></body>"""


@contextmanager
def told() -> Iterator[tuple[str, queue.Queue[dict[str, Any]]]]:
    """A server to which a page tells what it shows: its address, and what came."""
    came: queue.Queue[dict[str, Any]] = queue.Queue()

    class Ear(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/?"):
                came.put(json.loads(unquote(self.path[2:])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *given: object) -> None:
            """Nothing is logged."""

    with HTTPServer(("127.0.0.1", 0), Ear) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", came
        server.shutdown()


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
@pytest.mark.parametrize(
    ("parameters", "outcome"),
    [("gamma=2", "speculative: 12 tokens in"), ("gama=2", "not answered: "), ("gamma", "name=value")],
)
def test_the_form_asks_with_a_method_and_shows_what_comes(
    parameters: str, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CHROMIUM
    with running(tiny_pair(), ServerLimits(size=3)) as found, told() as (here, came):
        script = FILL.replace("PARAMETERS", parameters).replace("HERE", here)
        page = app._PAGE.read_text(encoding="utf-8").replace("</body>", script)
        (tmp_path / "page.html").write_text(page, encoding="utf-8")
        monkeypatch.setattr(app, "_PAGE", tmp_path / "page.html")
        call = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path}", "--remote-debugging-port=0", found.url]
        with subprocess.Popen(call, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
            seen = came.get(timeout=60)
            browser.kill()
    assert outcome in seen["outcome"] and bool(seen["answer"]) is outcome.startswith("speculative")
    assert {"target", "speculative", "suffix"} <= set(seen["methods"]) and not {"beam", "mtp"} & set(seen["methods"])

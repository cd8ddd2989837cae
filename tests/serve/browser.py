"""A headless browser, driven over its own protocol: what a page loads, what it says, what it looks like."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--remote-debugging-pipe"),
)
# The browser reads calls from file 3 and answers in file 4.
_START = (
    "import fcntl, os, sys\n"
    "ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]\n"
    "for place, end in enumerate(ends, 3): os.dup2(end, place)\n"
    "os.execv(sys.argv[3], sys.argv[3:])\n"
)
_LIMIT_S = 60.0


class _Pipe:
    """Calls of the protocol, one after the other, and the events that come between."""

    def __init__(self, calls: int, answers: int) -> None:
        self._calls, self._answers, self._held, self._number = calls, answers, b"", 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """What the browser answers. Raises `RuntimeError` where it refuses."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        sent = json.dumps(message).encode() + b"\0"
        while sent:
            sent = sent[os.write(self._calls, sent) :]
        while True:
            told = self._next()
            if told.get("id") == self._number:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']['message']}")
                answer: dict[str, Any] = told["result"]
                return answer
            self.events.append(told)

    def wait(self, method: str, session: str) -> None:
        """Until an event of this kind is there."""
        while not self.told(method, session):
            self.events.append(self._next())

    def told(self, method: str, session: str) -> list[dict[str, Any]]:
        """What the events of one kind said so far."""
        mine = (each for each in self.events if each.get("sessionId") == session and each["method"] == method)
        return [each["params"] for each in mine]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._held:
            if not select.select([self._answers], [], [], _LIMIT_S)[0]:
                raise TimeoutError(f"the browser said nothing for {_LIMIT_S:.0f} s")
            part = os.read(self._answers, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self._held += part
        message, _, self._held = self._held.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        return told


@dataclass
class Page:
    """An open page."""

    pipe: _Pipe = field(repr=False)
    session: str

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A call of the protocol that concerns this page."""
        return self.pipe.call(method, self.session, **parameters)

    def run(self, script: str) -> Any:
        """The value of an expression; a promise is waited for. Raises `RuntimeError` with what it throws."""
        told = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in told:
            raise RuntimeError(json.dumps(told["exceptionDetails"]))
        return told["result"].get("value")

    def until(self, script: str) -> Any:
        """Wait until an expression is true, which it then is."""
        ticks = int(_LIMIT_S * 20)
        return self.run(
            f"(async () => {{ for (let i = 0; i < {ticks}; i++) {{ const found = ({script}); if (found) return found;"
            " await new Promise(go => setTimeout(go, 50)); } throw new Error('waited in vain'); })()"
        )

    def press(self, key: str, code: int) -> None:
        """A key goes down and up. code: its Windows virtual key code."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self) -> bytes:
        """What is seen, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def told(self, method: str) -> list[dict[str, Any]]:
        """What the events of one kind said so far."""
        self.run("0")
        return self.pipe.told(method, self.session)

    @property
    def loaded(self) -> list[str]:
        """The addresses of all that it asked for."""
        return [each["request"]["url"] for each in self.told("Network.requestWillBeSent")]

    @property
    def complaints(self) -> list[str]:
        """Errors of its scripts, and what its policy kept it from."""
        logged = [each["entry"]["text"] for each in self.told("Log.entryAdded") if each["entry"]["level"] == "error"]
        return [*logged, *(each["exceptionDetails"]["text"] for each in self.told("Runtime.exceptionThrown"))]


@dataclass
class Browser:
    """A browser that runs."""

    pipe: _Pipe = field(repr=False)

    @contextmanager
    def opened(
        self, url: str, width: int = 1200, height: int = 800, dark: bool = False, phone: bool = False
    ) -> Iterator[Page]:
        """A page that remembers nothing of others. phone: with the pixels and the touches of one."""
        context = self.pipe.call("Target.createBrowserContext")["browserContextId"]
        target = self.pipe.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        page = Page(self.pipe, self.pipe.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        for domain in ("Page", "Network", "Log", "Runtime"):
            page.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call(
            "Emulation.setEmulatedMedia", features=[scheme, {"name": "prefers-reduced-motion", "value": "reduce"}]
        )
        size = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        page.call("Emulation.setDeviceMetricsOverride", **size)
        page.call("Page.navigate", url=url)
        self.pipe.wait("Page.loadEventFired", page.session)
        yield page
        self.pipe.call("Target.disposeBrowserContext", browserContextId=context)


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own."""
    assert CHROMIUM
    (read, calls), (answers, write) = os.pipe(), os.pipe()
    command = [CHROMIUM, *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
    starting = [sys.executable, "-c", _START, str(read), str(write), *command]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(starting, pass_fds=(read, write), **quiet) as process:  # type: ignore[call-overload]
        os.close(read), os.close(write)
        try:
            yield Browser(_Pipe(calls, answers))
        finally:
            process.kill()
            os.close(calls), os.close(answers)

"""Ctrl-C in the middle of a heavy import, and while the models load: the session goes on."""

import io
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from rich.console import Console

from repl.loading import Loading
from repl.player import SessionPlayer
from repl.screen.live import LiveView
from repl.screen.plain import PlainView
from repl.session import Session
from sampling.loading.options import LoadOptions
from sampling.pair.pair import Pair
from tests.forked import python
from utils.errors import UserError
from utils.interrupt import Deferred

# Ctrl-C comes while matplotlib is half there: when the importer asks for one of its modules.
INTERRUPTED = """
import io, signal, sys
from rich.console import Console
from repl.loading import Loading
from repl.screen.plain import PlainView
from repl.player import SessionPlayer
from repl.session import Session

class Finger:
    def find_spec(self, name, path=None, target=None):
        if name == "matplotlib.transforms":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finger())
for name in [name for name in sys.modules if name.startswith("matplotlib")]:
    del sys.modules[name]
err = Console(file=io.StringIO(), width=200)
player = SessionPlayer(Session(Loading(None)), PlainView(err, err))
player.execute("/results")
print(player.interrupted, "matplotlib" in sys.modules)
player.execute("/results")
print(player.interrupted, err.file.getvalue().strip())
"""


def test_a_report_works_after_its_import_was_interrupted(tmp_path: Path) -> None:
    run = subprocess.run(
        [python(), "-c", INTERRUPTED],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "PYTHONPATH": "."},
    )
    first, second = run.stdout.splitlines()
    assert first == "True True", run.stderr
    assert second == "False error: there are no results yet; run /ablate first"


def test_what_is_deferred_is_raised_at_the_end() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), Deferred():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append("all of it")
    assert done
    with pytest.raises(UserError), Deferred():
        signal.raise_signal(signal.SIGINT)
        raise UserError("what went wrong is told")


@pytest.mark.parametrize("view", [PlainView, LiveView])
def test_ctrl_c_ends_the_wait_and_not_the_session(view: type, monkeypatch: pytest.MonkeyPatch) -> None:
    out = Console(file=io.StringIO(), width=200)
    gate = threading.Event()

    def load(options: LoadOptions, progress: object) -> Pair:
        gate.wait()
        raise UserError("loading came to an end")

    def struck(self: Loading, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    session = Session(Loading(load))
    session.loading.start()
    player = SessionPlayer(session, PlainView(out, out) if view is PlainView else LiveView(out))
    with monkeypatch.context() as patched:
        patched.setattr(Loading, "wait", struck)
        player.execute("Hello")
    assert player.interrupted and not player.left and not player.failures
    gate.set()
    player.execute("Hello")
    assert isinstance(out.file, io.StringIO)
    assert "continue to load" in out.file.getvalue() and "loading came to an end" in out.file.getvalue()

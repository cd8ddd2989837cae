"""Processes of Python that begin with torch, transformers and pandas imported, which takes seconds otherwise.

`python()` is a program to call as one calls Python. Behind it a server, one for each process of tests, has imported
what the project stands on, and nothing of the project; each call is a fork of it. All else is a process of its own:
working folder, environment, streams, terminal, cores, signals, exit status. Calls that a fork cannot answer as Python
would, such as those with another number of threads, go to Python itself.
"""

import atexit
import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

_PROGRAM = """#!{python} -IS
import sys
sys.path.insert(0, {folder!r})
from launcher import main
main({socket!r}, {python!r}, {early!r})
"""


@cache
def python() -> str:
    """The program to call in place of `sys.executable`; that one itself where a process cannot be forked so."""
    if sys.platform != "linux":
        return sys.executable
    from tests.forked.launcher import read_early

    here, folder = Path(__file__).parent, Path(tempfile.mkdtemp(prefix="forked-"))
    program, socket = folder / "python", folder / "socket"
    names = {"python": sys.executable, "folder": str(here), "socket": str(socket), "early": read_early()}
    program.write_text(_PROGRAM.format(**names))
    program.chmod(0o700)
    words = [sys.executable, str(here / "server.py"), json.dumps([str(socket), str(program)])]
    server = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
    atexit.register(server.communicate)  # closes its input, which ends it
    return str(program)

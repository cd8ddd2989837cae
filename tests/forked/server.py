"""Imports what the project stands on, and forks for whoever calls. A program: started by `tests.forked`.

Each call has a minder, which waits for its fork, and ends it where the caller is no longer there.
"""

import atexit
import fcntl
import gc
import io
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import termios
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

# What a command, a session and a report import beside the project's own modules.
IMPORTED = (
    "torch",
    "torch.distributed",
    "numpy",
    "pandas",
    "scipy.stats",
    "matplotlib.figure",
    "matplotlib.backends.backend_svg",
    "matplotlib.backends.backend_agg",
    "safetensors.torch",
    "gguf",
    "jinja2",
    "typer.testing",
    "rich.live",
    "rich.progress",
    "rich.table",
    "prompt_toolkit",
    "prompt_toolkit.shortcuts",
    "psutil",
    "filelock",
    "platformdirs",
    "pytest",
    "hypothesis",
    "starlette.applications",
    "uvicorn",
    "transformers.modeling_utils",
    "transformers.models.llama.modeling_llama",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
)
FROM_TRANSFORMERS = ("AutoConfig", "AutoTokenizer", "AutoModelForCausalLM", "GenerationConfig", "LlamaForCausalLM")


def serve(place: str) -> dict[str, Any]:
    """Fork until the process of the tests has ended. Returns in each fork, with what it was asked."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen(64)
    for name in IMPORTED:
        import_module(name)
    for name in FROM_TRANSFORMERS:
        getattr(sys.modules["transformers"], name)
    threads = len(list(Path("/proc/self/task").iterdir()))
    assert threads == 1, f"{threads} threads, which a fork would lack"
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listener, 0], [], [])
        if 0 in ready:  # nobody writes there: its other end was closed
            shutil.rmtree(Path(place).parent)
            os._exit(0)
        caller, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            return mind(caller)
        caller.close()


def mind(caller: socket.socket) -> dict[str, Any]:
    """Start what is asked for and tell how it ended; returns in the new process."""
    size, streams, _, _ = socket.recv_fds(caller, 4, 3)
    length, request = int.from_bytes(size, "big"), b""
    while len(request) < length:
        part = caller.recv(length - len(request))
        if not part:
            os._exit(1)
        request += part
    asked: dict[str, Any] = json.loads(request)
    fork = os.fork()
    if fork == 0:
        caller.close()
        return {**asked, "streams": streams}
    for stream in streams:
        os.close(stream)
    os.closerange(0, 3)
    caller.sendall(f"{fork}\n".encode())
    ended = os.pidfd_open(fork)
    ready, _, _ = select.select([caller, ended], [], [])
    if ended not in ready:
        os.kill(fork, signal.SIGKILL)
    _, status = os.waitpid(fork, 0)
    with suppress(OSError):  # nobody may be there to be told
        caller.sendall(f"{status}\n".encode())
    os._exit(0)


def settle(asked: dict[str, Any], program: str, path: list[str]) -> None:
    """Take the streams, the folder and all else of whoever called."""
    for number, stream in enumerate(asked["streams"]):
        os.dup2(stream, number)
        os.close(stream)
    if asked["first"]:
        os.setsid()
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    else:
        os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN if asked["deaf"] else signal.default_int_handler)
    os.sched_setaffinity(0, asked["cores"])
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.executable = program
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = written(1, "strict", os.isatty(1))
    sys.stderr = sys.__stderr__ = written(2, "backslashreplace", True)
    words = asked["words"]
    named = str(Path(words[0]).resolve().parent) if words[0] not in ("-c", "-m") else str(Path.cwd())
    more = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = [named, *(str(Path(folder).absolute()) for folder in more), *path]


def written(number: int, errors: str, by_lines: bool) -> io.TextIOWrapper:
    """A stream as Python opens it at its start."""
    file = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
    return io.TextIOWrapper(file, "utf-8", errors, line_buffering=by_lines, write_through=number == 2)


def execute(words: list[str]) -> None:
    """As Python does with these words."""
    kind, *rest = words
    if kind == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    sys.argv = words if kind != "-c" else ["-c", *rest[1:]]
    module = ModuleType("__main__")
    code = rest[0] if kind == "-c" else Path(kind).read_text(encoding="utf-8")
    if kind != "-c":
        module.__file__ = kind
    sys.modules["__main__"] = module
    exec(compile(code, "<string>" if kind == "-c" else kind, "exec"), module.__dict__)


def status_of(words: list[str]) -> int:
    """Execute, and end as Python does, but for taking every module apart, which takes a second."""
    status = stopped = 0
    try:
        execute(words)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if status and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        status, stopped = 1, isinstance(error, KeyboardInterrupt)
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        status = 120
        print(f"Exception ignored in: {sys.stdout!r}\n{error!r}", file=sys.stderr)
    if stopped:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return status


if __name__ == "__main__":
    PLACE, PROGRAM = json.loads(sys.argv[1])
    STARTS = {str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    PATH = [folder for folder in sys.path if folder not in STARTS]
    ASKED = serve(PLACE)
    settle(ASKED, PROGRAM, PATH)
    os._exit(status_of(ASKED["words"]) & 255)

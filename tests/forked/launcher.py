"""What is called as Python: has the server fork, passes signals on, and ends as the fork does. No site-packages."""

import fcntl
import json
import os
import signal
import socket
import sys
import termios
import time
from contextlib import suppress

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# Read while modules are imported, or by the interpreter.
PREFIXES = ("OMP_", "GOMP_", "MKL_", "KMP_", "OPENBLAS_", "MALLOC_", "LD_", "LC_", "LANG", "PYTHON")


def read_early() -> dict[str, str]:
    """The part of the environment that was read before a fork begins: it must be the server's."""
    return {name: value for name, value in os.environ.items() if name.startswith(PREFIXES) and name != "PYTHONPATH"}


def main(place: str, python: str, early: dict[str, str]) -> None:
    """Where a fork would not do what Python does, Python does it: options, another environment, no server."""
    words = sys.argv[1:]
    plain = bool(words) and (words[0] in ("-c", "-m") or not words[0].startswith("-"))
    server = connected(place) if plain and "--multiprocessing-fork" not in words and read_early() == early else None
    if server is None:
        os.execv(python, [python, *words])
    deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if not deaf:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    first = os.getsid(0) == os.getpid()
    if first and os.isatty(0):  # the fork takes the terminal
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        fcntl.ioctl(0, termios.TIOCNOTTY)
    about = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ), "deaf": deaf, "first": first}  # noqa: PTH109
    request = json.dumps({**about, "cores": sorted(os.sched_getaffinity(0))}).encode()
    socket.send_fds(server, [len(request).to_bytes(4, "big")], [0, 1, 2])
    server.sendall(request)
    answers = server.makefile("r")
    if told := answers.readline():
        pass_on_signals(int(told), deaf)
        told = answers.readline()
    end(told)


def connected(place: str) -> socket.socket | None:
    """The server, which listens soon after it was started; None where it has ended."""
    server, until = socket.socket(socket.AF_UNIX), time.monotonic() + 120
    while time.monotonic() < until:
        try:
            server.connect(place)
            return server
        except FileNotFoundError:
            time.sleep(0.01)
        except ConnectionRefusedError:
            break
    return None


def pass_on_signals(fork: int, deaf: bool) -> None:
    """To the fork, or to its group where this process leads one."""
    send = os.killpg if os.getpgid(0) == os.getpid() else os.kill

    def pass_on(number: int, frame: object) -> None:
        with suppress(ProcessLookupError):  # it has ended, and the status is on its way
            send(fork, number)

    for number in PASSED_ON:
        if not (deaf and number == signal.SIGINT):
            signal.signal(number, pass_on)


def end(told: str) -> None:
    """As the fork has ended."""
    if not told:
        sys.exit("the server of forks has ended")
    status = int(told)
    if not os.WIFSIGNALED(status):
        os._exit(os.WEXITSTATUS(status))
    number = os.WTERMSIG(status)
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)

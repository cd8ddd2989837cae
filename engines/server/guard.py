"""Runs a command in a process group of its own, which ends with whoever started this, however that ends.

`python -m engines.server.guard COMMAND ...`: standard input is held open by the parent, and says by its end that the
parent is gone. Standard library alone, so that it starts at once.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

_PATIENCE_S = 10.0
_NOT_FOUND = 127


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """Ask a whole group to end, and end it."""
    for way, seconds in ((signal.SIGTERM, _PATIENCE_S), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, way)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            break
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # whoever of the group outlived its first


def main() -> int:
    """The command's exit status."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the parent decides, by closing the pipe
        signal.signal(ignored, signal.SIG_IGN)
    try:
        process = subprocess.Popen(
            sys.argv[1:], stdin=subprocess.DEVNULL, start_new_session=True, restore_signals=True, preexec_fn=_listening
        )
    except OSError as error:
        sys.stderr.write(f"{sys.argv[1]}: {error.strerror or error}\n")
        return _NOT_FOUND

    def watch() -> None:
        while os.read(0, 1024):
            pass
        end_group(process)

    threading.Thread(target=watch, daemon=True).start()
    status = process.wait()
    end_group(process)
    return status


def _listening() -> None:
    """The command hears the signals that its guard ignores."""
    for heard in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(heard, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())

"""Where the session keeps its files, and how it writes them."""

import time
import traceback
from pathlib import Path

import platformdirs

_APP = "speculative-workbench"


def state_folder() -> Path:
    """The user's state folder for this program; it may not exist yet."""
    return Path(platformdirs.user_state_dir(_APP, appauthor=False))


def history_file() -> Path | None:
    """Where prompts are remembered; None when the folder cannot be written."""
    return _writable("history")


def log_traceback(error: BaseException) -> str:
    """Append the traceback to the log; returns where it is, as words for a message."""
    path = _writable("errors.log")
    if path is None:
        return f"traceback not kept: {state_folder()} cannot be written"
    with path.open("a", encoding="utf-8") as log:
        log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}\n{''.join(traceback.format_exception(error))}\n")
    return f"traceback in {path}"


def _writable(name: str) -> Path | None:
    path = state_folder() / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8"):
            return path
    except OSError:
        return None

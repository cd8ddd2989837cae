"""Where the program keeps what it made, and files that appear whole or not at all."""

import os
import tempfile
from pathlib import Path

from platformdirs import user_cache_dir

CACHE_VARIABLE = "SPECULATIVE_WORKBENCH_CACHE"


def cache_folder() -> Path:
    """The folder named by SPECULATIVE_WORKBENCH_CACHE, or the user's cache folder of this program."""
    return Path(os.environ.get(CACHE_VARIABLE) or user_cache_dir("speculative-workbench"))


def write_atomically(path: Path, text: str) -> None:
    """Replace the file in one step: a reader sees the old text or the new one. Raises `OSError`."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise

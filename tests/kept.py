"""A folder for what tests make once."""

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp


@cache
def kept_folder() -> Path:
    """Empty at first, and gone when the process ends."""
    folder = Path(mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder

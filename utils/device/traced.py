"""Which lines of this project an error went through."""

import re
import traceback
from pathlib import Path

from utils.provenance import ROOT

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>\S+)')
_FOREIGN = {".venv", "site-packages"}


def our_lines(error: BaseException) -> list[str]:
    """The project's own lines that an error went through, the one that broke last: `sampling/loop.py:80 in decode`."""
    frames = traceback.extract_tb(error.__traceback__)
    return [told for frame in frames if (told := _told(frame.filename, frame.lineno or 0, frame.name))]


def dumped_lines(dump: str) -> list[str]:
    """The same of the last stack, the main thread's, in what `faulthandler` writes down when a process dies."""
    _, _, stack = dump.rpartition("(most recent call first)")
    frames = _FRAME.finditer(stack.partition("\n\n")[0])
    return [told for frame in frames if (told := _told(frame["file"], int(frame["line"]), frame["name"]))][::-1]


def _told(file: str, line: int, name: str) -> str:
    """A line of ours; nothing of others'."""
    path = Path(file)
    if not path.is_relative_to(ROOT) or _FOREIGN & set(path.parts):
        return ""
    return f"{path.relative_to(ROOT).as_posix()}:{line} in {name}"

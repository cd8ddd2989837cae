"""Where a process stands among those that torchrun started, read off the environment; no torch is imported.

The first process does what one alone would do. The others say nothing: what a person has to hear, the first one says.
"""

import atexit
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TextIO

from utils.errors import UserError, wrong_value

START = "uv run torchrun --nproc-per-node N infer.py run ..."
_GRACE_S, _STOPPED = 5.0, 130
_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK")


@dataclass(frozen=True, slots=True)
class ProcessRank:
    """The number of a process, from 0, of how many, and its number on its machine."""

    rank: int
    size: int
    local_rank: int

    @property
    def first(self) -> bool:
        """Whether it is the one that speaks."""
        return self.rank == 0


def seat(environment: Mapping[str, str] = os.environ) -> ProcessRank | None:
    """The place of this process; None where it is alone. Raises `UserError` for numbers that make no sense."""
    if not all(name in environment for name in _NAMES):
        return None
    for name in _NAMES:
        if not environment[name].isdecimal():
            raise wrong_value(
                f"{name} in the environment", environment[name], "an integer of 0 or more, as torchrun sets it"
            )
    rank, size, local_rank = (int(environment[name]) for name in _NAMES)
    if size > 1 and rank >= size:
        raise UserError(f"RANK {rank} and WORLD_SIZE {size} in the environment; expected a rank below the size")
    return ProcessRank(rank, size, local_rank) if size > 1 else None


def speaks() -> bool:
    """Whether this process prints and writes: it is alone, or the first."""
    here = seat()
    return here is None or here.first


def refuse_under_torchrun(what: str, instead: str) -> None:
    """Raise `UserError` for what several processes cannot do together. instead: what is expected, in words."""
    if here := seat():
        raise UserError(f"{what} given under torchrun, which started {here.size} processes; expected {instead}")


@contextmanager
def one_voice() -> Iterator[None]:
    """Around a program: of several processes only the first is heard.

    A wrong call all of them find, and the first one says it; another says what it alone has found after a while. After
    Ctrl-C the others end with status 0, as they do when the first is through. One that has lost another says so and
    ends with status 1, the first as well as any.
    """
    try:
        here = seat()
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(2) from None
    if here is None:
        yield
        return
    heard, unheard = (sys.stderr, None) if here.first else _silence()
    status, said = 0, ""
    try:
        yield
    except BaseException as error:
        status, said = _outcome(error, here)
        if unheard is not None and isinstance(error, SystemExit) and error.code not in (None, 0, _STOPPED):
            status, said = _alone(error.code, here, unheard, said)
    if said:
        print(said, file=heard)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    heard.flush()
    os._exit(status)  # what connects processes has threads, which at times abort a process that is taken down


def _alone(code: object, here: ProcessRank, unheard: IO[str], said: str) -> tuple[int, str]:
    """The end of a process, not the first, whose call is wrong, or which has lost another: see `_outcome`.

    Where the first one finds the same, it ends as well, and torchrun this one with it. Where it does not, it waits for
    this one, and nobody would know why.
    """
    if isinstance(code, str):
        return 1, said
    time.sleep(_GRACE_S)
    unheard.seek(0)
    line = next((line.strip() for line in reversed(unheard.readlines()) if line.strip()), "nothing was said")
    return 1, f"error: process {here.rank} of {here.size}: {line.removeprefix('error: ')}"


def _outcome(error: BaseException, here: ProcessRank) -> tuple[int, str]:
    """The exit status of a process that ends so, and what it says."""
    if isinstance(error, SystemExit):
        if isinstance(error.code, str):
            return 1, error.code
        return int(error.code or 0) if here.first else 0, ""
    if isinstance(error, KeyboardInterrupt):
        return _STOPPED if here.first else 0, ""
    if here.first:
        return 1, "".join(traceback.format_exception(error)).rstrip()
    return 1, f"error: process {here.rank} of {here.size}: {type(error).__name__}: {error}"


def _silence() -> tuple[TextIO, IO[str]]:
    """Send what this process prints into a file that is gone with it, libraries in C included.

    Gives what still reaches the old stderr, and the file.
    """
    heard = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    sys.stdout.flush()
    unheard = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
    for number in (1, 2):
        os.dup2(unheard.fileno(), number)
    return heard, unheard

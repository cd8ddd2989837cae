"""A results file: rows are added whole, one writer at a time, and a torn last row never counts."""

import csv
import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from utils.errors import UserError
from utils.files import write_atomically

# An answer may be longer than the 131,072 characters that the csv module takes for a mistake.
csv.field_size_limit(2**31 - 1)


class Store:
    """A CSV file that rows are appended to; enter it to lock it, leave it to let go.

    `rows` holds what the file held when it was entered. Each row is on the disk before `append` returns.
    Raises `UserError` when another process writes to the file, when it holds something else, and when it
    cannot be written; what it held stays. A new file that got no row is gone when it is left.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path, self.columns = path, tuple(columns)
        self.rows: list[dict[str, str]] = []
        self._lock = _lock(path)
        self._file: io.FileIO | None = None
        self._size = 0
        self._new = False

    def __enter__(self) -> Self:
        try:
            self._lock.acquire()
        except Timeout:
            raise UserError(f"{str(self.path)!r} is being written by another run; choose another --out") from None
        except OSError as error:
            raise UserError(f"{str(self.path)!r} cannot be written: {error.strerror or error}") from None
        try:
            self._open()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if self._file is not None:
            self._file.close()
            if self._new and self._size <= len(_line(self.columns)):
                self.path.unlink(missing_ok=True)
        self._lock.release()

    def clear(self) -> None:
        """Drop all rows."""
        assert self._file is not None, "the store was not entered"
        self.rows, self._size = [], 0
        self._file.truncate(0)
        self._write(_line(self.columns))

    def keep(self, rows: Sequence[Mapping[str, str]]) -> None:
        """Hold these rows alone; the file is replaced as a whole. Raises `UserError`; it is then as it was."""
        assert self._file is not None, "the store was not entered"
        try:
            write_atomically(self.path, to_text(rows, self.columns))
            self._file.close()
            self._file = io.FileIO(self.path, "a+")
            self._size = self.path.stat().st_size
        except OSError as error:
            raise UserError(f"{str(self.path)!r} cannot be written: {error.strerror or error}") from None

    def append(self, *rows: Mapping[str, str]) -> None:
        """Add rows, in one piece. Raises `UserError` when they cannot be written whole; the file is then as it was."""
        self._write(b"".join(_line([row[name] for name in self.columns]) for row in rows))

    def sort(self, place: Callable[[Mapping[str, str]], Any]) -> None:
        """Put all rows into an order, as `keep` does."""
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise UserError(f"{str(self.path)!r} cannot be read: {error.strerror or error}") from None
        self.keep(sorted(_rows(self.path, content, self.columns), key=place))

    def _open(self) -> None:
        try:
            self._new = not self.path.exists()
            self._file = io.FileIO(self.path, "a+")
            self._file.seek(0)
            content = self._file.readall()
        except OSError as error:
            raise UserError(f"{str(self.path)!r} cannot be written: {error.strerror or error}") from None
        whole = content[: whole_rows(content)]
        self.rows = _rows(
            self.path, whole if whole or _line(self.columns).startswith(content) else content, self.columns
        )
        self._size = len(whole)
        self._file.truncate(self._size)
        if not whole:
            self._write(_line(self.columns))

    def _write(self, line: bytes) -> None:
        assert self._file is not None, "the store was not entered"
        try:
            written = 0
            while written < len(line):
                written += self._file.write(line[written:])
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(self._size)
            raise UserError(
                f"{str(self.path)!r} cannot be written: {error.strerror or error}; the rows before are safe, "
                "--resume continues from there"
            ) from None
        self._size += len(line)


def read_finished(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a file that nobody writes any longer. Raises `UserError`; the file is left alone."""
    try:
        with _lock(path):
            content = path.read_bytes()
    except Timeout:
        raise UserError(f"{str(path)!r} is being written; wait for that run, or end it") from None
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read: {error.strerror or error}") from None
    if whole_rows(content) < len(content):
        raise UserError(
            f"{str(path)!r} ends in a torn row: its run was cut off; the same command with --resume goes on"
        )
    return _rows(path, content, columns)


def count_rows(path: Path) -> int:
    """How many whole rows a file has that may be written meanwhile; none where there is no file."""
    try:
        content = path.read_bytes()
    except OSError:
        return 0
    whole = content[: whole_rows(content)].decode("utf-8", errors="replace")
    return max(0, sum(1 for _ in csv.reader(io.StringIO(whole, newline=""))) - 1)


def to_text(rows: Iterable[Mapping[str, str]], columns: Sequence[str]) -> str:
    """A whole results file."""
    return b"".join([_line(columns), *(_line([row[name] for name in columns]) for row in rows)]).decode("utf-8")


def whole_rows(content: bytes) -> int:
    """Bytes up to the end of the last whole row: the last line end that is not inside quotes.

    Example: b'a,b\\n1,"x\\ny"\\n2,"z' -> 12, where the row of 2 begins.
    """
    end, quotes, start = 0, 0, 0
    while (newline := content.find(b"\n", start)) >= 0:
        quotes += content.count(b'"', start, newline)
        start = newline + 1
        if quotes % 2 == 0:
            end = start
    return end


def _lock(path: Path) -> FileLock:
    """Who holds it writes."""
    return FileLock(path.with_name(f".{path.name}.lock"), timeout=0)


def _rows(path: Path, content: bytes, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a file of ours. Raises `UserError` for any other."""
    if not content:
        return []
    try:
        header, *lines = csv.reader(io.StringIO(content.decode("utf-8"), newline=""))
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{str(path)!r} is not a results file: {error}; it was left alone") from None
    if tuple(header) != tuple(columns):
        raise UserError(
            f"{str(path)!r} is not a results file of this version (its columns differ) and was left alone; "
            "choose another --out"
        )
    for number, line in enumerate(lines, start=2):
        if len(line) != len(header):
            raise UserError(f"{str(path)!r}: record {number} has {len(line)} cells, not {len(header)}")
    return [dict(zip(header, line, strict=True)) for line in lines]


def _line(cells: Sequence[str]) -> bytes:
    """One row; csv leaves a lone carriage return without quotes, and readers then take it for the row's end."""
    text = io.StringIO()
    alone = any("\r" in cell for cell in cells)
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if alone else csv.QUOTE_MINIMAL).writerow(cells)
    return text.getvalue().encode("utf-8", errors="replace")

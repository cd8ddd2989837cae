"""A GGUF file as a folder that loads fast: de-quantised once, kept in the user's cache folder.

The folder is a plain checkpoint (float32 safetensors, config, tokenizer) with `conversion.json`, which says
what it was made from and how its files look. A folder appears whole, by one rename, or not at all; one that was
damaged since is converted again.
"""

import hashlib
import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from sampling.loading.gguf.convert import convert
from sampling.loading.stages import Progress, part, silent
from utils.errors import UserError
from utils.files import CACHE_VARIABLE, cache_folder

META = "conversion.json"
CONVERTER_VERSION = 1
_END = 2**20


def converted(gguf: Path, progress: Progress = silent) -> Path:
    """The folder with the de-quantised checkpoint of a GGUF file, made now if the cache lacks it.

    Safe when several processes ask at once: one converts, the others wait for it. A file whose path, size
    and time of change are on record is not read again; any other is recognised by its sha256. Raises
    `UserError` for a file that is no GGUF checkpoint and for a cache folder that cannot be written.
    """
    gguf = gguf.resolve()
    known = _known(gguf)
    if known is not None:
        return known
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        progress(f"Reading {gguf.name}", 0.0)
        digest = _sha256(gguf)
        with _locked(cache_folder() / f"{digest[:16]}.lock", progress):
            return _ensure(gguf, digest, progress)
    except MemoryError as error:
        need = 8 * gguf.stat().st_size / 2**30  # 4-bit weights become 32-bit ones
        raise UserError(
            f"{gguf}: out of memory, de-quantising takes about {need:.1f} GiB; try a smaller model"
        ) from error
    except OSError as error:
        raise UserError(
            f"{gguf}: the conversion into {cache_folder()} failed: {error.strerror or error}; "
            f"name a cache folder with room for it in {CACHE_VARIABLE}"
        ) from error


def source_of(folder: Path) -> Path | None:
    """A GGUF file that a conversion was made from, unchanged since; None for a folder that is no conversion."""
    try:
        sources = [(Path(source["path"]), source) for source in _read_meta(folder)["sources"]]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return next((path for path, source in sources if path.is_file() and _identity(path) == source), None)


def _ensure(gguf: Path, digest: str, progress: Progress) -> Path:
    """The folder for this content; the caller holds its lock."""
    stem = f"gguf-{digest[:16]}-"
    folder = cache_folder() / f"{stem}v{CONVERTER_VERSION}"
    if not _sound(folder):
        if folder.is_dir():
            progress(f"What was kept of {gguf.name} is damaged: converting it again")
        _remove(f".{stem}*")
        scratch = cache_folder() / f".{stem}{secrets.token_hex(8)}"
        scratch.mkdir()
        try:
            convert(gguf, scratch, part(progress, 0.05, 1.0))
            _write_meta(
                scratch, {"version": CONVERTER_VERSION, "sha256": digest, "sources": [], "files": _looks(scratch)}
            )
            _remove(f"{stem}*")
            scratch.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    meta = _read_meta(folder)
    _write_meta(folder, {**meta, "sources": [*meta["sources"], _identity(gguf)]})
    return folder


def _known(gguf: Path) -> Path | None:
    """The folder of this version that has this very file on record."""
    identity = _identity(gguf)
    for meta in cache_folder().glob(f"gguf-*-v{CONVERTER_VERSION}/{META}"):
        if _sound(meta.parent, identity):
            return meta.parent
    return None


def _sound(folder: Path, source: dict[str, Any] | None = None) -> bool:
    """Whether a folder and its record are there and its files look as they did when they were written.

    source: it must be on record, too. Folders from before looks were recorded are taken as they are.
    """
    try:
        meta = _read_meta(folder)
        on_record = isinstance(meta["sources"], list) and (source is None or source in meta["sources"])
        return on_record and meta.get("files") in (None, _looks(folder))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


def _looks(folder: Path) -> dict[str, Any]:
    """Of each file but the record, its size and the hash of its first and last megabyte: reading all takes too long."""
    return {path.name: _look(path) for path in sorted(folder.iterdir()) if not path.name.startswith(META)}


def _look(path: Path) -> list[Any]:
    size = path.stat().st_size
    with path.open("rb") as file:
        seen = hashlib.sha256(file.read(_END))
        file.seek(max(0, size - _END))
        seen.update(file.read(_END))
    return [size, seen.hexdigest()]


@contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock of a conversion, and say so where another process has it."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress("Waiting for another process that converts the same file")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _identity(gguf: Path) -> dict[str, Any]:
    stat = gguf.stat()
    return {"path": str(gguf), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _read_meta(folder: Path) -> dict[str, Any]:
    meta: dict[str, Any] = json.loads((folder / META).read_text(encoding="utf-8"))
    return meta


def _write_meta(folder: Path, meta: dict[str, Any]) -> None:
    """Replace the record in one step: a reader sees the old one or the new one."""
    scratch = folder / f"{META}.new"
    scratch.write_text(json.dumps(meta, indent=2), encoding="utf-8")
    scratch.replace(folder / META)


def _remove(pattern: str) -> None:
    """Delete what a killed process or an older converter left behind."""
    for path in cache_folder().glob(pattern):
        shutil.rmtree(path, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

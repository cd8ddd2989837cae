"""Where the program keeps what it made, files that appear whole or not at all, and pages from templates."""

import os
import secrets
from pathlib import Path
from typing import Any

from platformdirs import user_cache_dir

from utils.errors import UserError, checked_text, wrong_value
from utils.text import quoted

CACHE_VARIABLE = "SPECULATIVE_WORKBENCH_CACHE"
_LONGEST_NAME = 100


def cache_folder() -> Path:
    """The folder named by SPECULATIVE_WORKBENCH_CACHE, or the user's cache folder of this program."""
    return Path(os.environ.get(CACHE_VARIABLE) or user_cache_dir("speculative-workbench"))


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace the file in one step: a reader sees the old content or the new one. Raises `OSError`.

    The file keeps its mode; a new one has what the umask leaves. A link stays, and what it leads to is replaced.
    """
    path = Path(os.path.realpath(path))
    scratch = path.with_name(f".{secrets.token_hex(8)}.new")
    try:
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        if isinstance(content, bytes):
            with os.fdopen(handle, "wb") as binary:
                binary.write(content)
        else:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(content)
        if path.exists():
            scratch.chmod(path.stat().st_mode & 0o777)
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def checked_path(text: str, what: str) -> Path:
    """A path as a person types it, `~` resolved. Raises `UserError` where no file can be called so."""
    if not text.strip() or "\0" in text:
        raise wrong_value(what, text, "a path")
    checked_text(text, what)
    try:
        path = Path(text).expanduser()
        path.exists()
    except RuntimeError as error:
        raise UserError(f"{what}: {quoted(text)} given: {str(error).rstrip('.').lower()}") from None
    except OSError as error:  # such as a name that is too long
        raise UserError(f"{what}: {quoted(text)} given: {error.strerror or error}; expected a path") from None
    return path


def checked_name(text: str, what: str) -> str:
    """A name that files are called by, in a folder of ours. Raises `UserError` for what would lead out of it."""
    if not text.strip(" .") or len(text.encode()) > _LONGEST_NAME or not text.isprintable() or set(text) & set("/\\"):
        raise wrong_value(what, text, f"a name for files, without / and \\ and of at most {_LONGEST_NAME} bytes")
    return text


def rendered(template: Path, **values: Any) -> str:
    """The page that a template file makes of these values, which are text; a name that it lacks is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(template.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template(template.name).render(**values)

"""What a user may name as a model: nothing, a folder, a GGUF file, a hub id."""

import re
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from sampling.loading.embedded import EMBEDDED_NAME, embedded_gguf
from sampling.loading.gguf.cache import converted
from sampling.loading.stages import Progress
from utils.errors import UserError, nearest
from utils.files import checked_path

ALLOWED = "a hub id (owner/name), a folder with a config.json, a .gguf file, or nothing for the embedded default"
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True, slots=True)
class ModelOrigin:
    """Where a model is loaded from. `place`: a folder or a hub id, as transformers takes it."""

    name: str
    place: str
    detail: str
    local: bool = True


def resolve(place: str | None, progress: Progress) -> ModelOrigin:
    """The origin that a user's words mean; a GGUF file is converted on the way.

    Raises `UserError` for a path that leads nowhere or to something that is no model.
    """
    if place is None:
        return ModelOrigin(EMBEDDED_NAME, str(converted(embedded_gguf(progress), progress)), "Q4_1 GGUF, de-quantised")
    path = refuse_missing(place)
    if path.is_file():
        return ModelOrigin(path.stem, str(converted(path, progress)), "GGUF, de-quantised")
    if path.is_dir():
        return ModelOrigin(path.resolve().name, str(path.resolve()), "from a folder")
    return ModelOrigin(place, place, "from the hub", local=False)


def refuse_missing(place: str) -> Path:
    """Raise `UserError` for a path that leads nowhere or to no model, before anything is read or fetched; the path."""
    path = checked_path(place, "model")
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise UserError(f"{place}: not a .gguf file; expected {ALLOWED}")
    elif path.is_dir():
        _refuse_bare(place, path)
    elif path.suffix.lower() == ".gguf" or not is_hub_id(place):
        raise UserError(f"{place}: no such file or folder; expected {ALLOWED}{beside(path)}")
    return path


def is_hub_id(text: str) -> bool:
    """Whether it may be the name of a repository on the hub: `owner/name`, or `name` alone."""
    return bool(_HUB_ID.fullmatch(text)) and not text.startswith(".")


def hub_answers() -> bool:
    """Whether the hub can be reached at all; asking first saves the half minute that its client spends on retries."""
    from huggingface_hub.constants import ENDPOINT, HF_HUB_OFFLINE

    if HF_HUB_OFFLINE:
        return False
    if getproxies():
        return True  # only the proxy may be able to resolve the hub's name
    url = urlsplit(ENDPOINT)
    try:
        socket.create_connection((url.hostname or "", url.port or 443), timeout=3.0).close()
    except OSError:
        return False
    return True


def beside(path: Path) -> str:
    """A hint at the entry of the parent folder that is spelled most like the last part of a path, or ''."""
    folder = path.parent
    while not folder.is_dir():
        path, folder = folder, folder.parent
    near = nearest(path.name, sorted(entry.name for entry in _readable(folder) if entry.name[0] != "."), 0.7)
    return f". Did you mean {str(folder / near)!r}?" if near else ""


def _refuse_bare(place: str, path: Path) -> None:
    if not (path / "config.json").is_file():
        inside = [entry.name for entry in _readable(path) if (entry / "config.json").is_file()]
        hint = f". Did you mean {str(path / sorted(inside)[0])!r}?" if inside else ""
        raise UserError(f"{place}: a folder without a config.json; expected {ALLOWED}{hint}")


def _readable(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []

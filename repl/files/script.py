"""A session as a script: the commands that bring its state back, one a line."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from repl.own_settings import DEFAULT, OWN
from repl.session import Session
from utils.errors import UserError
from utils.files import write_atomically

HEADER = "# speculative-workbench session"


def lines_of(session: Session) -> Iterator[str]:
    """The whole state as commands that can be played onto any other state."""
    yield "# play it with /load FILE or --script FILE; prompts may be added as further lines"
    lines = list(session.settings.assignments())
    places = {name: place for place, (name, _) in enumerate(lines)}
    for place, (name, text) in enumerate(lines):
        yield f"/{name} {DEFAULT if place == places[name] and _open(session, name) else text}"
    yield from (f"/{name} {session.show(name)}" for name in OWN)
    yield "/drop all"
    yield from (f"/add {name}" for name in session.added)


def _open(session: Session, name: str) -> bool:
    """Whether the user has left it to the pair, or to the cards of its drafters."""
    if name in session.chosen:
        return False
    return session.start is None or any(name in card for card in session.start.cards.values())


def save(session: Session, path: Path) -> None:
    """Write the script over whatever is there. Raises `UserError`."""
    body = "\n".join(lines_of(session)) + "\n"
    try:
        write_atomically(path, f"{_header(body)}\n{body}")
    except OSError as error:
        raise UserError(f"cannot save to {path}: {error.strerror}") from error


def edited(path: Path) -> bool:
    """Whether there is a saved session that holds lines of the user's own. Raises `UserError` for any other file."""
    try:
        if not path.exists():
            return False
        header, _, body = path.read_text(encoding="utf-8", errors="replace").partition("\n")
    except OSError as error:
        raise UserError(f"cannot save to {path}: {error.strerror}") from error
    if not header.startswith(HEADER):
        raise UserError(f"{path} exists and is not a saved session; it was left alone. Choose another name")
    return header != _header(body)


def _header(body: str) -> str:
    """The first line: by the digest of the others it is seen whether anyone has changed them."""
    return f"{HEADER} {hashlib.sha256(body.encode()).hexdigest()[:12]}"


def read(path: Path) -> tuple[tuple[int, str], ...]:
    """The lines to play with their numbers, without comments and empty ones. Raises `UserError`."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(
            f"cannot read {path}: {error.strerror}; expected a script, one command or prompt a line"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file (not UTF-8)") from error
    numbered = enumerate(text.split("\n"), start=1)
    return tuple((number, line) for number, line in numbered if line.strip() and not line.startswith("#"))

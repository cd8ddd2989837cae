"""A session as a script: the commands that bring its state back, one a line."""

from collections.abc import Iterator
from pathlib import Path

from repl.session import DEBUG, DEFAULT, Session
from utils.errors import UserError
from utils.files import write_atomically

HEADER = "# speculative-workbench session"


def lines_of(session: Session) -> Iterator[str]:
    """The whole state as commands that can be played onto any other state."""
    yield HEADER
    yield "# play it with /load FILE or --script FILE; prompts may be added as further lines"
    lines = list(session.settings.assignments())
    own = {name: place for place, (name, _) in enumerate(lines)}
    for place, (name, text) in enumerate(lines):
        yield f"/{name} {DEFAULT if place == own[name] and _open(session, name) else text}"
    yield f"/{DEBUG.name} {session.show(DEBUG.name)}"
    yield "/drop all"
    yield from (f"/add {name}" for name in session.added)


def _open(session: Session, name: str) -> bool:
    """Whether the user has left it to the pair, or to the cards of its drafters."""
    if name in session.chosen:
        return False
    return session.start is None or any(name in card for card in session.start.cards.values())


def save(session: Session, path: Path) -> Path:
    """Write the script; replaces a saved session, refuses to touch any other file. Raises `UserError`."""
    try:
        if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(HEADER):
            raise UserError(f"{path} exists and is not a saved session; it was left alone. Choose another name")
        write_atomically(path, "\n".join(lines_of(session)) + "\n")
    except OSError as error:
        raise UserError(f"cannot save to {path}: {error.strerror}") from error
    return path


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

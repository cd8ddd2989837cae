"""/ngram_save and /ngram_load: what NASD has counted, kept between sessions."""

from pathlib import Path
from typing import TYPE_CHECKING

from repl.session import Session
from utils.errors import UserError
from utils.files import write_atomically

if TYPE_CHECKING:
    from ngram_assisted.nasd import NgramDrafter


def save_counts(session: Session, path: Path) -> str:
    """Write the counts of NASD under its present settings; says what was written. Raises `UserError`."""
    from ngram_assisted.saved import dumps, loads

    storage = _drafter(session).storage
    if not len(storage):
        raise UserError("NASD has counted nothing yet; answer a prompt with /ngram on first")
    vocabulary, size = _vocabulary(session)
    try:
        if path.exists():
            loads(path.read_text(encoding="utf-8"), vocabulary, size)
    except (UserError, UnicodeDecodeError):
        raise UserError(f"{path} exists and does not hold n-gram counts of this target; it was left alone") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    try:
        write_atomically(path, dumps(storage, vocabulary))
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None
    return f"{len(storage)} contexts saved to {path}"


def load_counts(session: Session, path: Path) -> str:
    """Replace the counts of NASD by a file's; says what else changed. Raises `UserError`, and then nothing has."""
    from ngram_assisted.saved import kind, loads

    vocabulary, size = _vocabulary(session)
    try:
        storage = loads(path.read_text(encoding="utf-8"), vocabulary, size)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    changes = [("set_ngramstorage", kind(storage)), ("reset_in_between", "off")]
    changed = [f"{name} {value}" for name, value in changes if session.show(name) != value]
    session.assign_all(changes)
    _drafter(session).storage = storage
    said = f"{len(storage)} contexts loaded from {path}"
    return f"{said}; changed so that they are used: {', '.join(changed)}" if changed else said


def _drafter(session: Session) -> "NgramDrafter":
    from ngram_assisted.nasd import NgramDrafter

    drafter = session.engine.drafter("ngram", session.settings)
    assert isinstance(drafter, NgramDrafter), "the method ngram drafts with n-grams"
    return drafter


def _vocabulary(session: Session) -> tuple[str, int]:
    from ngram_assisted.saved import vocabulary_digest

    engine = session.engine
    return vocabulary_digest(engine.vocabulary()), engine.target.vocab_size

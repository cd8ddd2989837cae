"""/export: the session's answers as records, a line each, or as one HTML page that needs nothing but itself."""

from collections.abc import Callable
from pathlib import Path

from repl.exchange import Exchange
from repl.session import Session
from utils.errors import UserError, wrong_value
from utils.files import rendered, write_atomically
from utils.text import counted, shown

TITLE = "Answers of a session"


def export(session: Session, path: Path) -> str:
    """Write the file over whatever is there; says what was written. Raises `UserError`."""
    text = form(session, path)(session)
    try:
        write_atomically(path, text)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None
    return f"{counted(len(session.log), 'prompt')} with {counted(_answers(session.log), 'answer')} written to {path}"


def form(session: Session, path: Path) -> Callable[[Session], str]:
    """What makes the file's text. Raises `UserError` for a name of another form, and where there is nothing yet."""
    forms = {".jsonl": _records, ".html": _page}
    if path.suffix not in forms:
        raise wrong_value("/export", str(path), "a FILE that ends in .jsonl (records) or .html (a page)")
    if not session.log:
        raise UserError("there are no answers yet; ask something first")
    return forms[path.suffix]


def _answers(log: list[Exchange]) -> int:
    return sum(len(exchange.records) for exchange in log)


def _records(session: Session) -> str:
    """The records that `infer.py run --json` prints."""
    return "".join(f"{record.to_json()}\n" for exchange in session.log for record in exchange.records)


def _page(session: Session) -> str:
    from ablation.results.tables.comparison import ONE_RUN

    template = Path(__file__).with_name("answers.html.j2")
    return rendered(template, title=TITLE, exchanges=session.log, columns=ONE_RUN, shown=shown)

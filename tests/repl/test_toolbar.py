"""The toolbar under the input line at several widths."""

from collections.abc import Callable

from prompt_toolkit.formatted_text import fragment_list_width

from repl.prompt import toolbar
from repl.session import Session


def line(session: Session, width: int) -> str:
    return "".join(fragment[1] for fragment in toolbar(session, width))


def test_it_fits_and_drops_the_models_first(new_session: Callable[[], Session]) -> None:
    session = new_session()
    session.loading.wait()
    wide = line(session, 500)
    names = session.engine.pair.target_info.name
    assert names in wide and "…" not in wide
    narrow = line(session, len(wide) - 1)
    assert names not in narrow and "gamma" in narrow and "…" not in narrow
    short = line(session, 40)
    assert short.endswith("…") and fragment_list_width(toolbar(session, 40)) <= 40

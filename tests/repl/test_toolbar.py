"""The toolbar under the input line at several widths."""

from collections.abc import Callable

import pytest
from prompt_toolkit.formatted_text import fragment_list_width

from repl.loading import Loading
from repl.prompt import toolbar
from repl.session import Session
from sampling.loading.options import LoadOptions
from sampling.methods.tables import METHODS
from sampling.pair.pair import Pair
from tests.repl.executing import execute
from utils.errors import UserError


def line(session: Session, width: int) -> str:
    return "".join(fragment[1] for fragment in toolbar(session, width))


def test_it_fits_and_drops_the_models_first(new_session: Callable[[], Session]) -> None:
    session = new_session()
    session.loading.wait()
    wide = line(session, 500)
    names = session.engine.pair.target_info.name
    assert names in wide and "…" not in wide
    narrow = line(session, len(wide) - 1)
    assert names not in narrow and "length 24" in narrow and "…" not in narrow
    short = line(session, 40)
    assert short.endswith("…") and fragment_list_width(toolbar(session, 40)) <= 40


@pytest.mark.parametrize("width", [20, 60, 80])
@pytest.mark.parametrize(
    "typed", [(), tuple(f"/{name} off" for name in METHODS), tuple(f"/{name} on" for name in METHODS)]
)
@pytest.mark.parametrize("state", ["loading", "failed", "loaded"])
def test_it_fits_in_every_state(
    state: str, typed: tuple[str, ...], width: int, new_session: Callable[[], Session], idle_session: Session
) -> None:
    def fail(options: LoadOptions, progress: object) -> Pair:
        raise UserError("a target that is nowhere, with a name that no line of a terminal has room for, " * 2)

    session = {"loading": idle_session, "failed": Session(Loading(fail))}.get(state) or new_session()
    if state == "failed":
        session.loading.start()
    if state != "loading":
        session.loading.wait()
    for text in typed:
        execute(session, text)
    shown = toolbar(session, width)
    assert fragment_list_width(shown) <= width
    nothing = bool(typed) and typed[0].endswith("off")
    first = {"loading": "loading: ", "failed": "no model: ", "loaded": "no method is on" if nothing else "AR, "}[state]
    assert line(session, width).startswith(first)

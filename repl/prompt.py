"""The input line: history, completion, multi-line editing, and the toolbar under it."""

from collections.abc import Iterable, Iterator

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style

from repl.command import summary
from repl.commands import complete
from repl.session import Session
from repl.user_files import history_file
from sampling.methods import METHODS

_STYLE = Style.from_dict({"bottom-toolbar": "noreverse", "on": "bold", "off": "ansibrightblack", "bad": "ansired"})


class _Completer(Completer):
    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        for found in complete(document.text_before_cursor):
            yield Completion(found.text, -found.length, display_meta=found.help)


def _history() -> History:
    path = history_file()
    return FileHistory(str(path)) if path else InMemoryHistory()


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def toolbar(session: Session, width: int) -> StyleAndTextTuples:
    """Enabled methods, the models or how far they are loaded, and the settings that matter to the methods.

    Where that is too wide, the models' names go first, then the end, which an ellipsis stands for.
    """
    enabled = ", ".join(METHODS[name].title for name in session.settings.enabled()) or "no method is on"
    models, settings = _models(session), summary(session)
    if session.loading.pair is not None and len(enabled) + len(models[1]) + len(settings) + 6 > width:
        models = ("class:off", "")
    room = width - len(enabled) - 3 - (len(models[1]) + 3 if models[1] else 0)
    if len(settings) > room:
        settings = settings[: max(room - 1, 0)] + "…"
    shown: StyleAndTextTuples = []
    for style, text in (("class:on", enabled), models, ("class:off", settings)):
        if text:
            shown += [("", " | "), (style, text)] if shown else [(style, text)]
    return shown


def _models(session: Session) -> tuple[str, str]:
    pair, loading = session.loading.pair, session.loading
    if pair is not None:
        names = [info.name for info in (pair.target_info, pair.drafter_info) if info]
        return "class:off", " + ".join(names)
    if loading.done:
        return "class:bad", f"no model: {loading.error}"
    return "class:on", f"loading: {loading.describe()}"


def lines(session: Session) -> Iterator[str]:
    """Lines as the user types them, until Ctrl-D. Ctrl-C gives up the line under way."""
    prompt: PromptSession[str] = PromptSession(
        "> ",
        history=_history(),
        completer=_Completer(),
        key_bindings=_keys(),
        bottom_toolbar=lambda: toolbar(session, prompt.app.output.get_size().columns),
        style=_STYLE,
        reserve_space_for_menu=6,
    )
    session.loading.on_change = prompt.app.invalidate
    while True:
        try:
            yield prompt.prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return

"""The input line: history, completion, multi-line editing, and the toolbar under it."""

from collections.abc import Iterable, Iterator
from textwrap import wrap

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style

from repl.commands.completion import complete
from repl.files.user_files import history_file
from repl.screen.summary import greeting, refused, summary
from repl.session import Session

_STYLE = Style.from_dict(
    {"bottom-toolbar": "noreverse", "on": "bold", "off": "ansibrightblack", "bad": "ansired", "told": "bold"}
)
_GAP = " | "


class _Completer(Completer):
    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        for completion in complete(document.text_before_cursor):
            yield Completion(completion.text, -completion.length, display_meta=completion.help)


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
    """One line: how far the models are loaded, what answers a prompt, the models, the settings that matter to it.

    Where that is too wide, the models' names go first, then the end, which an ellipsis stands for.
    """
    session.settle()
    loaded = session.loading.pair is not None
    titles = ", ".join(run.title for run in session.runs()) or "no method is on"
    style, models = _models(session)
    pieces = [("class:on", titles), (style, models), ("class:off", summary(session))]
    if not loaded:
        pieces = [pieces[1], pieces[0], pieces[2]]
    elif sum(len(text) for _, text in pieces) + 2 * len(_GAP) > width:
        del pieces[1]
    return _fitting(pieces, width)


def _fitting(pieces: Iterable[tuple[str, str]], width: int) -> StyleAndTextTuples:
    """The pieces side by side, as far as there is room; what is cut ends at a comma where it has one."""
    shown: StyleAndTextTuples = []
    for style, text in pieces:
        gap = _GAP if shown else ""
        room = width - len(gap)
        if room <= 1:
            break
        if len(text) > room:
            kept = text[: room - 1]
            text = f"{kept[: kept.rfind(', ') + 1] or kept}…"
        shown += [("", gap), (style, text)] if gap else [(style, text)]
        width = room - len(text)
        if text.endswith("…"):
            break
    return shown


def _models(session: Session) -> tuple[str, str]:
    pair, loading = session.loading.pair, session.loading
    if pair is not None:
        names = [info.name for info in (pair.target_info, pair.drafter_info) if info]
        return "class:off", " + ".join(names)
    if loading.done:
        return "class:bad", f"no model: {loading.error}"
    return "class:on", f"loading: {loading.describe()}"


class PromptMessage:
    """What stands before the line: at first what to do, once more when the pair has decided what is on."""

    def __init__(self, session: Session) -> None:
        self._session, self._first = session, True
        self._told: str | None = None

    def text(self, width: int) -> StyleAndTextTuples:
        """The greeting, which follows the loading, and the prompt."""
        self._session.settle()
        if refusal := refused(self._session):
            self._told = self._session.loading.refused
            whole = wrap(refusal, max(width - 1, 20), break_long_words=False, break_on_hyphens=False)
            return [("class:bad", "".join(f"{line}\n" for line in whole)), ("", "> ")]
        if self._session.greeted or not (self._first or self._session.start):
            return [("", "> ")]
        paragraphs = [wrap(line, max(width - 1, 20)) for line in greeting(self._session).splitlines()]
        return [("class:told", "".join(f"{line}\n" for lines in paragraphs for line in lines)), ("", "> ")]

    def entered(self) -> None:
        """A line was entered: what stood over it has been seen."""
        self._first = False
        if self._told is not None and self._told == self._session.loading.refused:
            self._session.loading.refused = self._told = None
            return
        self._session.greeted = self._session.greeted or self._session.start is not None


def lines(session: Session) -> Iterator[str]:
    """Lines as the user types them, until Ctrl-D. Ctrl-C gives up the line under way."""
    message = PromptMessage(session)

    def columns() -> int:
        return prompt.app.output.get_size().columns

    prompt: PromptSession[str] = PromptSession(
        lambda: message.text(columns()),
        history=_history(),
        completer=_Completer(),
        key_bindings=_keys(),
        bottom_toolbar=lambda: toolbar(session, columns()),
        style=_STYLE,
        reserve_space_for_menu=6,
    )
    session.loading.on_change = prompt.app.invalidate
    while True:
        session.costs.resume()
        try:
            line = prompt.prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        finally:
            session.costs.pause()
            message.entered()
        yield line

"""Dialogues and files of the session: /turns, /new, /export, /save, /load; /debug, and words without a slash."""

from pathlib import Path

from repl.files.script import save
from repl.loading import Loading
from repl.session import Session
from tests.hostile.row import Act, Content, Row


def _refused(
    line: str, *says: object, files: dict[str, Content] | Act | None = None, before: tuple[str, ...] = ()
) -> Row:
    return Row("session", (*before, line), 1, says, files=files or {}, name=line[:60])


def _fine(lines: tuple[str, ...], *says: object, makes: tuple[str, ...] = (), never: tuple[str, ...] = ()) -> Row:
    return Row("session", lines, 0, says, makes=makes, never=never, name=lines[-1][:60])


def _script(content: str, *says: object, status: int = 1) -> Row:
    return Row("script", ("s.txt",), status, says, files={"s.txt": content}, name=content[:60])


def _saved(added: str, name: str = "a.session") -> Act:
    """A saved session to which somebody has added a line."""

    def write(folder: Path) -> None:
        save(Session(Loading(lambda options, progress: None)), folder / name)  # type: ignore[arg-type, return-value]
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write(added)

    return write


def _folder(name: str) -> Act:
    return lambda folder: (folder / name).mkdir()


ASKED = ("/length 2", "Hello")

ROWS = [
    # /turns and /new
    _refused("/turns maybe", "turns", "'maybe'", "one of off, on, reference"),
    _refused("/turns refrence", "'refrence'", "'reference'"),
    _refused("/turns ON!", "'ON!'", "one of off, on, reference"),
    _refused("/turns on off", "'on off'", "one of off, on, reference"),
    _refused("/turns \x1b[2J", "\\x1b[2J", "one of off, on, reference"),
    _refused("/turn on", "command", "'/turn'", "/turns"),
    _refused("/new dialogue", "/new: 'dialogue'"),
    _fine(("/new ",), "a new dialogue begins"),
    _fine(("/new", "/new"), "a new dialogue begins", "turns are off", "/turns on"),
    _fine(("/turns",), "turns is off", "usage: /turns off|on|reference"),
    _fine(("/turns on", "/turns default"), "turns on -> off"),
    _refused("Hello", "AR is off", "/target on", "/turns on", before=("/turns reference", "/target off")),
    _refused("a" * 490, "the dialogue has", "leaves no room", "/new", before=("/turns on", *ASKED)),
    _refused("a" * 490, "the dialogue has", "leaves no room", "/new", before=("/turns reference", *ASKED)),
    _fine(("/turns on", *ASKED, "And then?"), "turn 2: each method continues its own answers"),
    _fine(("/turns reference", *ASKED, "And then?"), "turn 2: all methods continue AR's answers"),
    _fine(("/turns on", *ASKED, "/new", "And then?"), "a new dialogue begins", never=("turn 2",)),
    _fine(("/turns on", *ASKED, "\x1b[2J\x07"), "turn 2"),
    # /export
    _refused("/export", "/export FILE"),
    _refused("/export answers.txt", "/export: 'answers.txt'", ".jsonl", ".html"),
    _refused("/export answers", "/export: 'answers'", ".jsonl", ".html"),
    _refused("/export .html", "/export: '.html'", before=ASKED),
    _refused("/export answers.html", "there are no answers yet; ask something first"),
    _refused("/export answers.jsonl", "there are no answers yet", before=("/gamma 3", "/status")),
    _refused("/export nowhere/a.html", "cannot be written", "No such file", before=ASKED),
    _refused("/export nowhere/a.jsonl", "cannot be written", "No such file", before=ASKED),
    _refused("/export d.html", "d.html", files=_folder("d.html"), before=ASKED),
    _refused("/export a.html", "a.html", files={"a.html": "mine"}, before=ASKED),
    _refused("/export a.jsonl", "a.jsonl", files={"a.jsonl": ""}, before=ASKED),
    _refused("/export ~nobody_here/a.html", "~nobody_here/a.html", before=ASKED),
    _refused("/export a\x1b[2J.html\x07", "\\x1b[2J", before=ASKED),
    _fine((*ASKED, "/export a.html"), "1 prompt with", "written to a.html", makes=("a.html",)),
    _fine((*ASKED, "<script>alert(1)</script>", "/export a.jsonl"), "2 prompts with", makes=("a.jsonl",)),
    # /save over what is the user's
    _refused("/save a.session", "lines that were added by hand; it was left alone", files=_saved("Why?\n")),
    _refused("/save a.session", "lines that were added by hand", files=_saved("# my notes\n")),
    _refused("/save a.session", "lines that were added by hand", files=_saved("/gamma 3\n")),
    _refused("/save a.session", "lines that were added by hand", files=_saved("\0\x1b[2J")),
    _refused("/save a.session", "not a saved session; it was left alone", files={"a.session": "years of work"}),
    _refused("/save a.session", "not a saved session", files={"a.session": b"\xff\xfe\x00"}),
    _refused("/save a.session", "not a saved session", files={"a.session": ""}),
    _refused("/save d", "cannot save to d", "directory", files=_folder("d")),
    _refused("/save nowhere/a.session", "cannot save to nowhere/a.session", "No such file"),
    _fine(("/save a.session", "/gamma 3", "/save a.session"), "saved to a.session", makes=("a.session",)),
    # /load and scripts
    _refused("/load", "/load FILE"),
    _refused("/load d", "cannot read d", "directory", files=_folder("d")),
    _refused("/load s", "s:2: gamma: 'x'", "3 commands and 0 prompts played, 1 failed",
             files={"s": "/gamma 1\n/gamma x\n/gamma 2\n"}),
    _refused("/load s", "s:1: a script cannot /load another one", "1 command", files={"s": "/load s\n"}),
    _refused("/load s", "s:1: unknown command '/\\x1b[2J'", files={"s": "/\x1b[2J\n"}),
    _refused("/load s", "s:1: there are no answers yet", files={"s": "/export a.html\n"}),
    _script("/gamma 2\n/turns maybe\n", "s.txt:2: ", "'maybe'"),
    _script("/turns on\n/new now\n", "s.txt:2: /new: 'now'"),
    _script("/export a.html\n", "s.txt:1: there are no answers yet"),
    _script("/export\n/export a\n", "s.txt:1: /export: no file", "s.txt:2: /export: 'a'"),
    Row("script", ("no\x1b[2J.txt",), 2, ("cannot read no\\x1b[2J.txt",)),
    # words without a slash, /debug
    _fine(("help",), "Commands come in groups"),
    _fine(("HELP  ",), "Commands come in groups"),
    _fine(("exit",), "type /quit or press Ctrl-D"),
    _fine(("Quit", "/gamma"), "type /quit or press Ctrl-D", "gamma is 4"),
    _refused("/debug maybe", "debug: 'maybe'", "on", "off"),
    _fine(("/debug on", *ASKED), "#1 pos", "(raw p="),
    _refused("/heuristic_gamma 0", "heuristic_gamma: '0'", 1),
    _refused("/confidence_threshold 2", "confidence_threshold: '2'", "<= 1"),
]  # fmt: skip

"""What the commands do that set no single setting; each gets who plays the line and the argument's text."""

import contextlib
from pathlib import Path

from ablation.plan.choice import choose_runs
from repl.commands.command import CommandHost, cannot_answer, change
from repl.files import export as exporting
from repl.files import ngrams, script
from repl.files.runs import Run
from repl.own_settings import TURNS
from repl.replies import Message
from repl.session import Session
from sampling.methods.settings import PARAMETERS
from sampling.methods.tables import METHODS
from utils.errors import UnknownName, UserError, one_of, wrong_value
from utils.files import checked_path


def save(host: CommandHost, argument: str) -> Message:
    """/save FILE; lines that somebody has added to it are not replaced unasked."""
    path = _path("save", argument)

    def write() -> str:
        script.save(host.session, path)
        return f"saved to {path}"

    edited = script.edited(path)
    return Message(host.replace(path, "holds lines that were added by hand", write) if edited else write())


def export(host: CommandHost, argument: str) -> Message:
    """/export FILE."""
    path = _path("export", argument)
    exporting.form(host.session, path)

    def write() -> str:
        return exporting.export(host.session, path)

    return Message(host.replace(path, "is there already", write) if path.exists() else write())


def load(host: CommandHost, argument: str) -> Message:
    """/load FILE."""
    path = _path("load", argument)
    return host.load(str(path), script.read(path))


def _path(name: str, argument: str) -> Path:
    if not argument:
        raise UserError(f"/{name}: no file given; expected /{name} FILE")
    return checked_path(argument, f"/{name}")


def new(host: CommandHost, argument: str) -> Message:
    """/new."""
    no_argument("new", argument)
    session = host.session
    session.new_dialogue()
    alone = session.own[TURNS.name] == TURNS.default
    return Message("a new dialogue begins" + ("; turns are off: each prompt stands alone (/turns on)" if alone else ""))


def clear(host: CommandHost, argument: str) -> None:
    """/clear."""
    no_argument("clear", argument)
    host.view.out.clear()


def quit(host: CommandHost, argument: str) -> None:
    """/quit."""
    no_argument("quit", argument)
    host.left = True


def method(host: CommandHost, argument: str) -> Message:
    """/method NAME [on|off]."""
    name, _, word = argument.partition(" ")
    if not name:
        raise UserError(f"/method: no name given; expected {one_of(METHODS)}")
    return change(host.session, PARAMETERS[METHODS[name].name], word.strip())


def add(host: CommandHost, argument: str) -> Message:
    """/add METHOD NAME=VALUE ...: the method once more, with values of its own; without any it is switched on."""
    session = host.session
    runs = choose_runs(argument, session.settings)
    if not runs:
        raise UserError("/add: no method given; expected a method and values, as in /add mtp gamma=2")
    there = {run.name for run in session.runs()}
    for run in runs:
        if run.name in there:
            raise UserError(f"{run.name!r} is already there; /drop {run.name} removes it")
    for run in runs:
        if run.parameters:
            session.added[run.name] = run
        else:
            session.assign(run.method, "on")
    lacking = (cannot_answer(session, run.method, dict(run.parameters)) for run in runs)
    added = (f"{run.name} added (/drop {run.name} removes it){why}" for run, why in zip(runs, lacking, strict=True))
    return Message(", ".join(added))


def drop(host: CommandHost, argument: str) -> Message:
    """/drop NAME: a run that was added, by its name or its title; a method that is on is switched off."""
    session = host.session
    if argument == "all":
        gone = ", ".join(session.added)
        session.added.clear()
        return Message(f"{gone} dropped" if gone else "nothing was added")
    run = _find_run(session, argument)
    if run.name in session.added:
        del session.added[run.name]
    else:
        session.assign(run.method, "off")
    return Message(f"{run.name} dropped")


def _find_run(session: Session, text: str) -> Run:
    runs = session.runs()
    known = {called.lower(): run for run in runs for called in run.calls}
    if text.lower() in known:
        return known[text.lower()]
    by_name = {run.name: run for run in runs}
    with contextlib.suppress(UserError):
        wanted = [run.name for run in choose_runs(text, session.settings)]
        if len(wanted) == 1 and wanted[0] in by_name:
            return by_name[wanted[0]]
    raise UnknownName("run", text, [*by_name, "all"])


def speculative_config(host: CommandHost, argument: str) -> Message:
    """/speculative_config JSON."""
    from engines.speculative_config import parse_speculative_config

    session = host.session
    config = parse_speculative_config(argument)
    if config.models:
        raise UserError("model: a session keeps its models; leave it out, or start with --drafter or --heads")
    wanted = [(name, PARAMETERS[name].show(name in config.methods)) for name in METHODS]
    defaults = [(name, PARAMETERS[name].show(PARAMETERS[name].default)) for name in config.unnamed]
    asked = (*wanted, *defaults, *config.assignments)
    changes = [(name, value) for name, value in asked if session.show(name) != value]
    session.assign_all(asked)
    return Message(", ".join(f"{name} {value}" for name, value in changes) or "nothing changes")


def ngram_save(host: CommandHost, argument: str) -> Message:
    """/ngram_save FILE."""
    path = _path("ngram_save", argument)
    host.wait()
    return Message(ngrams.save_counts(host.session, path))


def ngram_load(host: CommandHost, argument: str) -> Message:
    """/ngram_load FILE."""
    path = _path("ngram_load", argument)
    host.wait()
    return Message(ngrams.load_counts(host.session, path))


def no_argument(name: str, argument: str) -> None:
    """Raises `UserError` where a command that takes no argument got one."""
    if argument:
        raise wrong_value(f"/{name}", argument, "no argument")

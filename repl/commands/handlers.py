"""What the commands do that set no single setting; each gets the session and the argument's text."""

import contextlib
from pathlib import Path

from ablation.plan.choice import choose_runs
from repl import export as exporting
from repl import ngrams, plan, script
from repl.commands.command import change
from repl.costs import profile_sheet
from repl.orders import Ablate, Batch, Clear, Play, Quit, Replace, Results, Why, WithCosts, WithModels
from repl.replies import Message
from repl.runs import Run
from repl.session import TURNS, Session
from sampling.methods import METHODS
from sampling.settings import PARAMETERS
from utils.errors import UnknownName, UserError, one_of, wrong_value
from utils.files import checked_path

_AT_A_TIME = 4


def save(session: Session, argument: str) -> Message | Replace:
    """/save FILE; lines that somebody has added to it are not replaced unasked."""
    path = _path("save", argument)

    def write() -> str:
        script.save(session, path)
        return f"saved to {path}"

    return Replace(path, "holds lines that were added by hand", write) if script.edited(path) else Message(write())


def export(session: Session, argument: str) -> Message | Replace:
    """/export FILE."""
    path = _path("export", argument)
    exporting.form(session, path)

    def write() -> str:
        return exporting.export(session, path)

    return Replace(path, "is there already", write) if path.exists() else Message(write())


def load(session: Session, argument: str) -> Play:
    """/load FILE."""
    path = _path("load", argument)
    return Play(path, script.read(path))


def _path(name: str, argument: str) -> Path:
    if not argument:
        raise UserError(f"/{name}: no file given; expected /{name} FILE")
    return checked_path(argument, f"/{name}")


def new(session: Session, argument: str) -> Message:
    """/new."""
    no_argument("new", argument)
    session.new_dialogue()
    alone = session.own[TURNS.name] == TURNS.default
    return Message("a new dialogue begins" + ("; turns are off: each prompt stands alone (/turns on)" if alone else ""))


def clear(session: Session, argument: str) -> Clear:
    """/clear."""
    no_argument("clear", argument)
    return Clear()


def quit(session: Session, argument: str) -> Quit:
    """/quit."""
    no_argument("quit", argument)
    return Quit()


def method(session: Session, argument: str) -> Message:
    """/method NAME [on|off]."""
    name, _, word = argument.partition(" ")
    if not name:
        raise UserError(f"/method: no name given; expected {one_of(METHODS)}")
    return change(session, PARAMETERS[METHODS[name].name], word.strip())


def add(session: Session, argument: str) -> Message:
    """/add METHOD NAME=VALUE ...: the method once more, with values of its own; without any it is switched on."""
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
    return Message(", ".join(f"{run.name} added (/drop {run.name} removes it)" for run in runs))


def drop(session: Session, argument: str) -> Message:
    """/drop NAME: a run that was added, by its name or its title; a method that is on is switched off."""
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
    known = {called.lower(): run for run in runs for called in (run.title, run.name)}
    if text.lower() in known:
        return known[text.lower()]
    by_name = {run.name: run for run in runs}
    with contextlib.suppress(UserError):
        wanted = [one.name for one in choose_runs(text, session.settings)]
        if len(wanted) == 1 and wanted[0] in by_name:
            return by_name[wanted[0]]
    raise UnknownName("run", text, [*by_name, "all"])


def speculative_config(session: Session, argument: str) -> Message:
    """/speculative_config JSON."""
    from engines.speculative_config import parse_speculative_config

    config = parse_speculative_config(argument)
    if config.models:
        raise UserError("model: a session keeps its models; leave it out, or start with --drafter or --heads")
    wanted = [(name, PARAMETERS[name].show(name in config.methods)) for name in METHODS]
    defaults = [(name, PARAMETERS[name].show(PARAMETERS[name].default)) for name in config.unnamed]
    asked = (*wanted, *defaults, *config.assignments)
    changes = [(name, value) for name, value in asked if session.show(name) != value]
    session.assign_all(asked)
    return Message(", ".join(f"{name} {value}" for name, value in changes) or "nothing changes")


def ngram_save(session: Session, argument: str) -> WithModels:
    """/ngram_save FILE."""
    path = _path("ngram_save", argument)
    return WithModels(lambda: ngrams.save_counts(session, path))


def ngram_load(session: Session, argument: str) -> WithModels:
    """/ngram_load FILE."""
    path = _path("ngram_load", argument)
    return WithModels(lambda: ngrams.load_counts(session, path))


def profile(session: Session, argument: str) -> WithCosts:
    """/profile."""
    no_argument("profile", argument)
    return WithCosts(profile_sheet)


def ablate(session: Session, argument: str) -> Ablate:
    """/ablate [PLAN]; a wrong plan is refused before the models are waited for."""
    return Ablate(argument, plan.read(session, argument))


def batch(session: Session, argument: str) -> Batch:
    """/batch FILE [N]; a file that cannot be read is told before the models are waited for."""
    from ablation.plan.contents import BATCH
    from ablation.plan.prompt_sets import find_sources, gather

    name, _, last = argument.rpartition(" ")
    name, size = (name.strip(), BATCH.parse(last)) if name and last.isdecimal() else (argument, _AT_A_TIME)
    if not name:
        raise UserError("/batch: no prompts given; expected /batch FILE or a built-in set, and how many at a time")
    return Batch(gather(find_sources([name], Path())), size)


def results(session: Session, argument: str) -> Results:
    """/results."""
    no_argument("results", argument)
    return Results()


def why(session: Session, argument: str) -> Why:
    """/why [METHOD]."""
    return Why(argument)


def no_argument(name: str, argument: str) -> None:
    """Raises `UserError` where a command that takes no argument got one."""
    if argument:
        raise wrong_value(f"/{name}", argument, "no argument")

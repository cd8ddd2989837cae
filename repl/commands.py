"""THE table of commands, and what is read from it: parsing, completion and help."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repl import ngrams, script
from repl.command import Command, setting_command, users_of
from repl.replies import Ablate, Ask, Clear, Message, Play, Quit, Reply, Results, Section, Sheet, WithModels
from repl.session import DEBUG, Session
from repl.user_files import state_folder
from sampling.methods import JUDGING, METHODS
from sampling.settings import GENERAL, PARAMETERS
from utils.errors import UserError, nearest
from utils.parameter import Parameter
from utils.registry import Registry

DEFAULT_PLAN = "quick"
_KEYS = (
    "A line without / is a prompt; \\n and \\t in it become a newline and a tab. To prompt with a slash, begin with a "
    "space. Esc Enter (Alt-Enter) starts a new line, Up recalls, Tab completes.",
    "Ctrl-C stops a generation or clears the line; Ctrl-D leaves.",
)


def _help(session: Session, argument: str) -> Reply:
    if argument:
        return _help_on(session, find(argument))
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for command in COMMANDS.values():
        value = session.show(command.setting.name) if command.setting else ""
        groups.setdefault(command.group, []).append((command.call, value, command.help))
    sections = tuple(Section(group, tuple(lines)) for group, lines in groups.items())
    return Sheet("Commands, with their current values", sections, _KEYS)


def _help_on(session: Session, command: Command) -> Sheet:
    lines = [("usage", command.call, "")]
    if command.setting:
        lines.append(("current", session.show(command.setting.name), ""))
        lines.append(("default", command.setting.show(command.setting.default), ""))
    lines.append(("example", f"/{command.name} {command.example}".rstrip(), ""))
    if command.aliases:
        lines.append(("also", ", ".join(f"/{alias}" for alias in command.aliases), ""))
    return Sheet(
        f"/{command.name}", (Section(command.help, tuple(lines)),), (command.detail,) if command.detail else ()
    )


def _status(session: Session, argument: str) -> Reply:
    _no_argument("status", argument)
    sections = [Section("Models", tuple(_models(session)))]
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for command in COMMANDS.values():
        if command.setting:
            name = command.setting.name
            default = command.setting.show(command.setting.default)
            changed = "" if session.show(name) == default else f"default {default}"
            groups.setdefault(command.group, []).append((name, session.show(name), changed))
    sections += [Section(group, tuple(lines)) for group, lines in groups.items()]
    if tried := tuple(_tried(session)):
        sections.append(Section("Chosen by trying on this machine", tried))
    if memories := session.memories():
        sections.append(Section("Memory", tuple((name, text, "") for name, text in memories)))
    sections.append(Section("Files", (("state", str(state_folder()), "history, errors.log"),)))
    return Sheet("Session", tuple(sections))


def _models(session: Session) -> Iterator[tuple[str, str, str]]:
    pair, loading = session.loading.pair, session.loading
    if pair is None:
        yield "models", "failed" if loading.done else "loading", str(loading.error or loading.describe())
        return
    for role, info in (("target", pair.target_info), ("drafter", pair.drafter_info)):
        kernel = "" if info is None or info.kernel is None else f", {info.kernel} kernel"
        value = "none" if info is None else f"{info.name}, {info.device}, {info.dtype}{kernel}"
        yield role, value, info.detail if info else ""
    for note in pair.notes:
        yield "note", note, ""


def _tried(session: Session) -> Iterator[tuple[str, str, str]]:
    if session.loading.pair is not None:
        from sampling.forward.choices import made  # torch is there by now

        for question, choice in made().items():
            yield question, "yes" if choice.answer else "no", choice.origin


def _save(session: Session, argument: str) -> Reply:
    path = script.save(session, _path("save", argument))
    return Message(f"saved to {path}")


def _load(session: Session, argument: str) -> Reply:
    path = _path("load", argument)
    return Play(path, script.read(path))


def _path(name: str, argument: str) -> Path:
    if not argument:
        raise UserError(f"/{name}: no file given; allowed: /{name} FILE")
    try:
        return Path(argument).expanduser()
    except RuntimeError as error:
        raise UserError(f"/{name}: {argument!r} given: {str(error).rstrip('.').lower()}") from None


def _clear(session: Session, argument: str) -> Reply:
    _no_argument("clear", argument)
    return Clear()


def _quit(session: Session, argument: str) -> Reply:
    _no_argument("quit", argument)
    return Quit()


def _method(session: Session, argument: str) -> Reply:
    name, _, word = argument.partition(" ")
    if not name:
        raise UserError(f"/method: no name given; allowed: {', '.join(METHODS)}")
    command = COMMANDS[METHODS[name].name]
    return command.handler(session, word.strip())


def _method_words(typed: str) -> Iterator[str]:
    name, space, _ = typed.partition(" ")
    if not space:
        yield from (method for method in METHODS if method.startswith(typed))
    else:
        yield from (line for word in ("on", "off") if (line := f"{name} {word}").startswith(typed))


def _speculative_config(session: Session, argument: str) -> Reply:
    from ablation.commands.speculative_config import parse_speculative_config

    config = parse_speculative_config(argument)
    if config.models:
        raise UserError(
            "model: the models of a session stay; allowed: start with --drafter or --heads, or leave it out"
        )
    wanted = [(name, PARAMETERS[name].show(name in config.methods)) for name in METHODS]
    defaults = [(name, PARAMETERS[name].show(PARAMETERS[name].default)) for name in config.unnamed]
    asked = (*wanted, *defaults, *config.assignments)
    changes = [(name, value) for name, value in asked if session.show(name) != value]
    session.settings.assign_all(changes)
    return Message(", ".join(f"{name} {value}" for name, value in changes) or "nothing changes")


def _ngram_save(session: Session, argument: str) -> Reply:
    path = _path("ngram_save", argument)
    return WithModels(lambda: ngrams.save(session, path))


def _ngram_load(session: Session, argument: str) -> Reply:
    path = _path("ngram_load", argument)
    return WithModels(lambda: ngrams.load(session, path))


def _ablate(session: Session, argument: str) -> Reply:
    from ablation.plan.file import read_experiment

    plan = argument or DEFAULT_PLAN
    return Ablate(read_experiment(plan, base=session.settings), f"/ablate {plan}")


def _plans(typed: str) -> Iterator[str]:
    from ablation.plan.file import plan_names

    yield from (name for name in plan_names() if name.startswith(typed))
    yield from (name for name in _files(typed) if name.endswith((".toml", "/")))


def _results(session: Session, argument: str) -> Reply:
    _no_argument("results", argument)
    return Results()


def _no_argument(name: str, argument: str) -> None:
    if argument:
        raise UserError(f"/{name}: {argument!r} given; allowed: no argument")


def _files(typed: str) -> Iterator[str]:
    folder, slash, start = typed.rpartition("/")
    with contextlib.suppress(OSError):
        for path in sorted(Path(folder + slash).expanduser().iterdir()):
            if path.name.startswith(start):
                yield f"{folder}{slash}{path.name}" + ("/" if path.is_dir() else "")


def _names(typed: str) -> Iterator[str]:
    return (name for name in COMMANDS if name.startswith(typed.lower().removeprefix("/")))


def _group(parameter: Parameter) -> str:
    users = users_of(parameter)
    if parameter.name in METHODS:
        return "Methods"
    if parameter in JUDGING.all_parameters:
        return "How drafts are judged"
    if not users:
        return "Generation"
    return "Settings of " + ", ".join(METHODS[name].title for name in users)


_SETTINGS = sorted(PARAMETERS.values(), key=lambda p: (p.name not in METHODS, p not in GENERAL))

COMMANDS = Registry[Command](
    "command",
    Command(
        "help", "Session", "all commands, or one in full", _help, "[command]", "gamma", candidates=lambda t: _names(t)
    ),
    Command("quit", "Session", "leave", _quit, aliases=("exit",)),
    Command("clear", "Session", "clear the screen", _clear),
    Command("status", "Session", "the whole session state in one table", _status),
    Command(
        "save",
        "Session",
        "save the state as a script",
        _save,
        "FILE",
        "my.session",
        "A file of that name is replaced if it is a saved session, and left alone if it is anything else.",
        candidates=_files,
    ),
    Command(
        "load",
        "Session",
        "play a script: one command or prompt a line",
        _load,
        "FILE",
        "my.session",
        "Empty lines and lines that begin with # are skipped; a line that fails is reported and the rest is played.",
        candidates=_files,
    ),
    Command(
        "ablate",
        "Session",
        "run a plan on the loaded pair into a results file with a report",
        _ablate,
        "[PLAN]",
        "gamma",
        "PLAN is a built-in plan (quick without an argument) or a .toml file; what it leaves open is as set here. "
        "Ctrl-C stops after the row under way and reports what is there.",
        candidates=_plans,
    ),
    Command(
        "method",
        "Session",
        "switch a method on or off by its name",
        _method,
        "NAME [on|off]",
        "ngram on",
        "The same as /NAME; without on or off it flips.",
        candidates=_method_words,
    ),
    Command(
        "speculative_config",
        "Session",
        "set methods and settings from the JSON that servers take",
        _speculative_config,
        "JSON",
        '{"method": "draft_model", "num_speculative_tokens": 4}',
        "Switches on the method it names and the reference, every other method off; keys left out get their defaults.",
    ),
    Command(
        "ngram_save",
        "Session",
        "save what NASD has counted",
        _ngram_save,
        "FILE",
        "my.ngrams",
        "The counts of the storage in use, also those of this prompt. A file of counts is replaced, any other is left.",
        candidates=_files,
    ),
    Command(
        "ngram_load",
        "Session",
        "go on with counts that were saved",
        _ngram_load,
        "FILE",
        "my.ngrams",
        "Sets set_ngramstorage to the file's, and reset_in_between off. A bad file is refused whole.",
        candidates=_files,
    ),
    Command("results", "Session", "the table of the last ablation", _results),
    setting_command(DEBUG, "Session"),
    *(setting_command(parameter, _group(parameter)) for parameter in _SETTINGS),
)

_ALIASES = {alias: command.name for command in COMMANDS.values() for alias in command.aliases}


def find(name: str) -> Command:
    """A command by name or alias, with or without its slash. Raises `UserError` with the nearest name."""
    bare = name.lower().removeprefix("/")
    bare = _ALIASES.get(bare, bare)
    if bare in COMMANDS:
        return COMMANDS[bare]
    near = nearest(bare, [*COMMANDS, *_ALIASES])
    hint = f". Did you mean /{near}?" if near else ""
    raise UserError(f"unknown command {name!r}{hint} (/help lists all; to prompt with a slash, begin with a space)")


def parse(line: str) -> tuple[Command, str] | str | None:
    """A line as (command, argument), as a prompt with its escapes resolved, or as nothing.

    Example: "/gamma 6" -> (gamma, "6"); "one\\ntwo" with a typed backslash -> two lines.
    """
    if line.startswith("/"):
        name, _, argument = line.strip().partition(" ")
        return find(name), argument.strip()
    return line.strip().replace("\\n", "\n").replace("\\t", "\t") or None


def execute(session: Session, line: str) -> Reply:
    """What a line asks for, done or described. Raises `UserError`, and then nothing has changed."""
    parsed = parse(line)
    if isinstance(parsed, tuple):
        command, argument = parsed
        return command.handler(session, argument)
    return parsed if parsed is None else Ask(parsed)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A word that may replace the last `length` characters typed."""

    text: str
    length: int
    help: str = ""


def complete(text: str) -> Iterator[Suggestion]:
    """What may follow the text before the cursor: command names, then words of the argument."""
    if not text.startswith("/") or "\n" in text:
        return
    name, space, argument = text.partition(" ")
    if not space:
        for command in COMMANDS.values():
            for known in (command.name, *command.aliases):
                if known.startswith(name[1:].lower()):
                    yield Suggestion(f"/{known}", len(name), command.help)
        return
    with contextlib.suppress(UserError):
        command = find(name)
        for word in command.candidates(argument):
            yield Suggestion(word, len(argument), COMMANDS[word].help if command.name == "help" else "")

"""/model and /repeat: other models in this session, and the last answer as a command line."""

import shlex
from collections.abc import Iterator
from dataclasses import fields

from repl.answers import Answers
from repl.commands.command import CommandHost
from repl.commands.handlers import no_argument
from repl.replies import Message
from sampling.loading.options import LOAD, RANDOM, SELF, LoadOptions, load_options
from sampling.methods.settings import GENERAL, PARAMETERS
from sampling.methods.tables import METHODS
from utils.errors import UserError, one_of, wrong_value
from utils.interrupt import Deferred
from utils.text import quoted

DEFAULT = "default"
_OWN = (
    "length",
    "processor",
    "seed",
    "grammar",
    "thinking",
    "chat_template_kwargs",
    "prefill_chunk",
)  # settings with an option of their own


def model(host: CommandHost, argument: str) -> Message:
    """/model ID|default [NAME=VALUE ...]: load other models; a loading option that is not named gets its default."""
    session = host.session
    if not argument:
        return Message(f"models: {_options(session.loading.options)}; usage: /model ID [NAME=VALUE ...]")
    try:
        words = shlex.split(argument)
    except ValueError as error:
        raise UserError(f"/model: {quoted(argument)} given: {error}") from None
    target, *rest = words
    given = {} if target == DEFAULT else {"target": target}
    for word in rest:
        name, equals, value = word.partition("=")
        if not equals or name not in LOAD or name == "target":
            names = one_of(f"{name}=VALUE" for name in LOAD if name != "target")
            raise wrong_value("/model", word, names)
        given[name] = value
    options = load_options(given)
    if session.loading.running:
        host.wait()
    _refuse_missing(options)
    session.load(options)
    return Message(f"loading {_options(options)}; the next prompt waits for it")


def _refuse_missing(options: LoadOptions) -> None:
    """Raises `UserError` for a path that leads nowhere, while the present models are still there."""
    with Deferred():
        from sampling.loading.origin import refuse_missing

    for place in (options.target, options.drafter):
        if place is not None and not place.startswith((RANDOM, SELF)):
            refuse_missing(place)


def repeat(host: CommandHost, argument: str) -> Message:
    """/repeat: the command that gives the last answer again. Raises `UserError` where there is none, or not in one."""
    no_argument("repeat", argument)
    answers = host.session.answers
    if answers is None:
        raise UserError("/repeat: nothing was answered yet; type a prompt first")
    turns = answers.dialogue.turns
    if len(turns) > 1:
        raise UserError(
            f"/repeat: the last answer is turn {len(turns)} of a dialogue, and --prompt takes one turn only; "
            "/export FILE.jsonl keeps it"
        )
    command = ["uv", "run", "infer.py", "run", *_flags(host.session.loading.options)]
    command += ["--prompt", turns[-1].prompt, "--methods", ",".join(run.explicit.name for run in answers.runs.values())]
    return Message(shlex.join([*command, *_settings(answers)]))


def _flags(options: LoadOptions) -> Iterator[str]:
    """The loading options that are not at their defaults, as words of a command line."""
    for f in fields(options):
        value = getattr(options, f.name)
        if value != f.default:
            yield f"--{f.name.replace('_', '-')}"
            if not isinstance(value, bool):
                yield str(value)


def _options(options: LoadOptions) -> str:
    return shlex.join(_flags(options)) or "the embedded default"


def _settings(answers: Answers) -> Iterator[str]:
    """Settings that what answered reads and that are not at their defaults; those of a run stand in its name."""
    values = answers.comparison.values
    read = {*GENERAL}
    for run in answers.runs.values():
        read.update(METHODS[run.method].relevant({**values, **run.parameters}))
    for parameter in PARAMETERS.values():
        name, text = parameter.name, parameter.show(values[parameter.name])
        if parameter in read and text != parameter.show(parameter.default):
            yield from (f"--{name.replace('_', '-')}", text) if name in _OWN else ("--set", f"{name}={text}")

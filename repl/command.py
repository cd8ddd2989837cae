"""What a command is, and the commands that follow from a parameter."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from repl.replies import Message, Reply
from repl.session import Session
from sampling.methods import METHODS
from sampling.settings import GENERAL, PARAMETERS
from utils.parameter import Parameter

Handler = Callable[[Session, str], Reply]


@dataclass(frozen=True, slots=True)
class Command:
    """One command, declared once: parsing, completion, help and validation read this record.

    `handler` gets the session and the argument's text, and raises `UserError`. `example` is an argument, or
    empty for a command that is complete without one. `candidates` maps the argument typed so far to words
    that may replace it; `setting` names the setting that the command shows and changes.
    """

    name: str
    group: str
    help: str
    handler: Handler
    usage: str = ""
    example: str = ""
    detail: str = ""
    aliases: tuple[str, ...] = ()
    candidates: Callable[[str], Iterable[str]] = lambda typed: ()
    setting: Parameter | None = None

    @property
    def call(self) -> str:
        """How it is typed."""
        return f"/{self.name} {self.usage}".rstrip()


# Where the default would be a dull example.
_EXAMPLES = {"processor": "nucleus 0.8 0.9", "set_ngramstorage": "onelevel 4"}
_DETAILS = {
    "egag": "With /speculative on it adds a row SD EGAG next to SD: the same drafter, another draft length.",
    "beam": "Nothing is drawn: the processor and the seed play no part. No speedup is claimed: the output is another.",
    "chat": "A model without a chat template gets the prompt as it is.",
    "processor": "Arguments go by position or by name: topk 0.8 top_k=20.",
}
_TOGGLE = "Without an argument it flips; with on or off it says what you get."
_METHOD = "Methods are independent toggles: each one that is on answers every prompt and is a row of the table."


def setting_command(parameter: Parameter, group: str) -> Command:
    """The command that shows, flips or sets a parameter."""
    flips = isinstance(parameter.default, bool)

    def handler(session: Session, argument: str) -> Reply:
        if not argument and not flips:
            return Message(f"{parameter.name} is {session.show(parameter.name)}; allowed: {parameter.usage}")
        return _change(session, parameter, argument or _flipped(session, parameter))

    details = (_METHOD if parameter.name in METHODS else "", _TOGGLE if flips else "", _DETAILS.get(parameter.name, ""))
    return Command(
        parameter.name,
        group,
        parameter.help,
        handler,
        usage=parameter.usage,
        example=_EXAMPLES.get(parameter.name, "on" if flips else parameter.show(parameter.default)),
        detail=" ".join(filter(None, details)),
        candidates=lambda typed: (word for word in parameter.words if word.startswith(typed.lower())),
        setting=parameter,
    )


def _flipped(session: Session, parameter: Parameter) -> str:
    return "off" if parameter.parse(session.show(parameter.name)) else "on"


def _change(session: Session, parameter: Parameter, text: str) -> Message:
    before = session.show(parameter.name)
    session.assign(parameter.name, text)
    after = session.show(parameter.name)
    change = f"{parameter.name} {after}" if before == after else f"{parameter.name} {before} -> {after}"
    return Message(change + _idle(session.settings, parameter))


def _idle(values: Any, parameter: Parameter) -> str:
    """A remark when no enabled method reads the parameter."""
    users = users_of(parameter)
    if not users or any(values[name] for name in users):
        return ""
    return f" (not in use: {' or '.join(f'/{name} on' for name in users)})"


def users_of(parameter: Parameter) -> list[str]:
    """Names of the methods that read the parameter; none for a general one."""
    return [method.name for method in METHODS.values() if parameter in method.parameters]


def summary(session: Session) -> str:
    """The settings that matter for the enabled methods, in one line."""
    values = session.settings
    relevant = [
        parameter for method in METHODS.values() if values[method.name] for parameter in method.relevant(values)
    ]
    used = [parameter for parameter in PARAMETERS.values() if parameter in relevant]
    settings = [f"{p.name} {session.show(p.name)}" for p in (*GENERAL, *used) if _matters(values, p)]
    return ", ".join(settings)


def _matters(values: Any, parameter: Parameter) -> bool:
    """Switches and choices that stand where they start are not news."""
    quiet = isinstance(parameter.default, bool | str)
    return not quiet or values[parameter.name] != parameter.default

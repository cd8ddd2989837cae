"""What a command is, and the commands that follow from a parameter."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from repl.replies import Message, Reply
from repl.screen.view import View
from repl.session import Session
from sampling.methods.choices import OPTIONS
from sampling.methods.rules import CONTROLLERS, DRAFT_RULE
from sampling.methods.tables import DRAFTERS, METHODS, SEARCHES
from sampling.methods.verifiers import JUDGING
from utils.parameter import Parameter
from utils.registry import Registry

if TYPE_CHECKING:
    from ablation.run.job import JobOutcome
    from sampling.pair.profile import LatencyProfile


class CommandHost(Protocol):
    """Who plays the lines, as commands see it: the session and its view, and what takes the screen, or time.

    `left`: the user is done.
    """

    session: Session
    view: View
    left: bool

    def answer(self, prompt: str) -> None:
        """A prompt for every enabled method."""

    def load(self, name: str, lines: tuple[tuple[int, str], ...]) -> Message:
        """Execute lines of a script, with their numbers in the file; says how that went."""

    def replace(self, path: Path, why: str, write: Callable[[], str]) -> str:
        """Ask before a file is written over, of which `why` says what it is or holds. Raises `UserError`."""

    def wait(self) -> None:
        """Until the models are there."""

    def profile(self) -> "LatencyProfile":
        """What rounds cost here, measured first where it is not known."""

    def count(self, outcome: "JobOutcome") -> None:
        """Note what failed in a plan, and whether it was stopped."""


Handler = Callable[[CommandHost, str], Reply | None]


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """Commands that one page of help shows: `/help NAME`."""

    name: str
    help: str


GROUPS = Registry[CommandGroup](
    "group of commands",
    CommandGroup("session", "dialogues, status, save and load, export, round lines, leaving"),
    CommandGroup("methods", "methods that answer a prompt: /mtp on, /add mtp gamma=2, /drop"),
    CommandGroup("ablation", "run a plan on many prompts, show its results"),
    CommandGroup("generation", "length, processor, seed, cache, chat template"),
    CommandGroup("drafting", "what drafts: n-grams, suffix trees, trained heads, hybrids"),
    CommandGroup("draft_length", "how many tokens are drafted: gamma, budget, EGAG"),
    CommandGroup("judging", "how drafts are accepted and rejected"),
    CommandGroup("search", "beam search"),
)


@dataclass(frozen=True, slots=True)
class SessionCommand:
    """One command, declared once: parsing, completion, help and validation read this record.

    `group` is a line of GROUPS, `heading` what stands over the command on a page of help. `handler` gets who
    plays the line and the argument's text, returns what is to be shown beside what it showed itself, and raises
    `UserError`. `example` is an argument, or empty for a command
    that is complete without one. `candidates` maps the argument typed so far to words that may replace it;
    `setting` names the setting that the command shows and changes.
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
    heading: str = ""

    @property
    def call(self) -> str:
        """How it is typed."""
        return f"/{self.name} {self.usage}".rstrip()


# Where the default would be a dull example.
_EXAMPLES = {"turns": "on", "processor": "nucleus 0.8 0.9", "set_ngramstorage": "onelevel 4"}
_EXAMPLES |= {"grammar": "json", "thinking": "off", "chat_template_kwargs": '{"enable_thinking": false}'}
_DETAILS = {
    "turns": "The chat template wraps the whole dialogue. A method without an answer to an earlier turn uses "
    "the first answer of that turn. /new begins another dialogue.",
    "egag": "With /speculative on it adds a row SD EGAG next to SD: the same drafter with another draft-length rule.",
    "beam": "Nothing is sampled: the processor and the seed have no effect. The output differs, without a speedup.",
    "chat": "A model without a chat template gets the prompt unchanged.",
    "thinking": "It sets enable_thinking or thinking, whichever the template reads. A template without either is "
    "refused.",
    "chat_template_kwargs": "Only variables that the template reads are taken. {} takes them all back.",
    "grammar": "A file: a JSON Schema (.json), a regular expression (.regex) or a Lark grammar (.lark). json is any "
    "object. Or the text itself: regex:[0-9]+ (docs/grammar.md).",
    "processor": "Arguments are positional or named: topk 0.8 top_k=20. Options may follow, as in nucleus 0.8 0.9 "
    f"repetition=1.1: {', '.join(OPTIONS)} (docs/processors.md).",
}
_TOGGLE = "Without an argument it toggles the setting; on or off sets it."
_FEW = 3  # of many ways, so many are named
_METHOD = "Methods are independent toggles: each one that is on answers every prompt and gets a row in the table."


def setting_command(parameter: Parameter, group: str = "") -> SessionCommand:
    """The command that shows, flips or sets a parameter; the tables say in which group, where `group` does not."""
    flips = isinstance(parameter.default, bool)

    def handler(host: CommandHost, argument: str) -> Message:
        return change(host.session, parameter, argument)

    details = (_METHOD if parameter.name in METHODS else "", _TOGGLE if flips else "", _DETAILS.get(parameter.name, ""))
    group = group or _group(parameter)
    return SessionCommand(
        parameter.name,
        group,
        parameter.help,
        handler,
        usage=parameter.usage,
        example=_EXAMPLES.get(parameter.name, "on" if flips else parameter.show(parameter.default)),
        detail=" ".join(filter(None, details)),
        candidates=lambda typed: (word for word in parameter.words if word.startswith(typed.lower())),
        setting=parameter,
        heading=_heading(parameter, group),
    )


def _group(parameter: Parameter) -> str:
    if parameter.name in METHODS:
        return "methods"
    if parameter in JUDGING.all_parameters:
        return "judging"
    if parameter is DRAFT_RULE:
        return "draft_length"
    tables = {"draft_length": CONTROLLERS, "search": SEARCHES, "drafting": DRAFTERS}
    for group, table in tables.items():
        if any(parameter in part.all_parameters for part in table.values()):
            return group
    return "generation"


def _heading(parameter: Parameter, group: str) -> str:
    """The methods that read a parameter which not all of them read; empty where the group says enough."""
    users = [METHODS[name].title for name in users_of(parameter)]
    users = users or [f"{DRAFT_RULE.name} {name}" for name in rules_of(parameter)]
    return "" if group == "judging" or not users else "Settings of " + ", ".join(users)


def change(session: Session, parameter: Parameter, text: str) -> Message:
    """Set a parameter, or without a text flip a toggle and show any other."""
    before = session.show(parameter.name)
    if not text and not isinstance(parameter.default, bool):
        usage = f"usage: /{parameter.name} {parameter.usage}"
        return Message(f"{parameter.name} is {before}; {usage}{_recommended(session, parameter)}")
    session.assign(parameter.name, text or ("off" if parameter.parse(before) else "on"))
    after = session.show(parameter.name)
    change = f"{parameter.name} {after}" if before == after else f"{parameter.name} {before} -> {after}"
    lacking = cannot_answer(session, parameter.name)
    return Message(f"{change}{lacking}{_idle(session, parameter)}{_recommended(session, parameter)}")


def cannot_answer(session: Session, name: str, parameters: Mapping[str, Any] | None = None) -> str:
    """A remark when a method is on that the loaded pair cannot run; it stays on, as a further setting may mend it.

    parameters: its own values, where it was added.
    """
    pair = session.loading.pair
    if pair is None or name not in METHODS or (parameters is None and not session.settings[name]):
        return ""
    why = pair.lacks(METHODS[name], {**session.settings, **(parameters or {})})
    return "" if why is None else f", but it cannot answer: {why}"


def _idle(session: Session, parameter: Parameter) -> str:
    """A remark when no enabled method reads the parameter."""
    users = users_of(parameter)
    ways = [*(f"/{name} on" for name in users), *(f"/{DRAFT_RULE.name} {name}" for name in rules_of(parameter))]
    read = (
        run.method in users or parameter in METHODS[run.method].relevant({**session.settings, **run.parameters})
        for run in session.runs()
    )
    if not ways or any(read):
        return ""
    more = f" and {len(ways) - _FEW} others" if len(ways) > _FEW else ""
    on = ", ".join(run.title for run in session.runs()) or "nothing"
    return f" (not read by what is on: {on}; read after {', '.join(ways[:_FEW])}{more})"


def _recommended(session: Session, parameter: Parameter) -> str:
    """A remark when a method runs with the value of a drafter's card instead."""
    runs = [run for run in session.runs() if parameter.name in run.recommended]
    values = [f"{run.title} {parameter.show(run.recommended[parameter.name])}" for run in runs]
    return f" (recommended by cards: {', '.join(values)})" if values else ""


def users_of(parameter: Parameter) -> list[str]:
    """Names of the methods that read the parameter whatever rule is asked for; none for a general one."""
    return [method.name for method in METHODS.values() if parameter in method.own_parameters]


def rules_of(parameter: Parameter) -> list[str]:
    """Names of the draft-length rules that read the parameter."""
    return [rule.name for rule in CONTROLLERS.values() if parameter in rule.all_parameters]

"""THE table of commands, and what is read from it: parsing and execution."""

from collections.abc import Iterator

from repl.commands import handlers, help, measuring, models, status, words
from repl.commands.command import GROUPS, CommandHost, SessionCommand, setting_command
from repl.own_settings import DEBUG, TURNS
from repl.replies import Message, Reply, SectionSheet
from sampling.methods.settings import GENERAL, PARAMETERS
from sampling.methods.tables import METHODS
from utils.errors import UserError, nearest, wrong_value
from utils.registry import Registry


def _help(host: CommandHost, argument: str) -> SectionSheet:
    session, topic = host.session, argument.lower()
    if topic in GROUPS:
        return help.group_page(session, topic, COMMANDS)
    if topic in ("", "all"):
        return help.whole_page(session, COMMANDS) if topic else help.first_page()
    if topic == help.TABLE:
        return help.table_page()
    if topic.removeprefix("/") not in COMMANDS and (page := help.number_page(topic)):
        return page
    return help.command_page(session, find(argument))


def _status(host: CommandHost, argument: str) -> SectionSheet:
    if argument.lower() == "all":
        return status.whole_page(host.session, COMMANDS)
    if argument:
        raise wrong_value("/status", argument, "all, or nothing")
    return status.short_page(host.session)


def _topics(typed: str) -> Iterator[str]:
    return (
        name for name in ("all", help.TABLE, *GROUPS, *COMMANDS) if name.startswith(typed.lower().removeprefix("/"))
    )


_SETTINGS = sorted(PARAMETERS.values(), key=lambda p: (p.name not in METHODS, p not in GENERAL))

COMMANDS = Registry[SessionCommand](
    "command",
    SessionCommand(
        "help",
        "session",
        "the groups of commands, one group, one command, a column of a table, or all",
        _help,
        "[group|command|column|table|all]",
        "alpha",
        candidates=_topics,
    ),
    SessionCommand("quit", "session", "leave the session", handlers.quit, aliases=("exit",)),
    SessionCommand("clear", "session", "clear the screen", handlers.clear),
    SessionCommand(
        "status",
        "session",
        "models, what answers a prompt, changed settings; all: every setting",
        _status,
        "[all]",
        "all",
        candidates=lambda typed: (word for word in ("all",) if word.startswith(typed.lower())),
    ),
    SessionCommand(
        "model",
        "session",
        "load other models, also after a refusal",
        models.model,
        "ID|default [NAME=VALUE ...]",
        "Qwen/Qwen2.5-1.5B-Instruct drafter=Qwen/Qwen2.5-0.5B-Instruct",
        "ID is a hub id, a folder or a FILE.gguf; default is the embedded pair. NAME is an option of loading, such as "
        "drafter, heads, dtype or device; what is not named gets its default. The models here are let go first.",
        candidates=words.files,
    ),
    SessionCommand(
        "repeat",
        "session",
        "the command that gives the last answer again",
        models.repeat,
        detail="A line of `infer.py run` with the models, methods and settings, the values of cards included. What "
        "methods remember of earlier answers does not come along.",
    ),
    SessionCommand(
        "save",
        "session",
        "save the state as a script",
        handlers.save,
        "FILE",
        "my.session",
        "Replaces a saved session, but not unasked where lines were added to it; any other file is left alone.",
        candidates=words.files,
    ),
    SessionCommand(
        "load",
        "session",
        "play a script: one command or prompt per line",
        handlers.load,
        "FILE",
        "my.session",
        "Empty lines and those that begin with # are skipped. Commands are silent unless they fail; the rest goes on.",
        candidates=words.files,
    ),
    SessionCommand(
        "export",
        "session",
        "write the answers of this session to a file",
        handlers.export,
        "FILE",
        "answers.html",
        ".jsonl: the records that infer.py run --json prints, a line each. .html: a page with the tables, the answers "
        "with accepted and rejected drafts, and the settings. A file that is there is replaced only if you say so.",
        candidates=words.files,
    ),
    SessionCommand(
        "ngram_save",
        "session",
        "save what NASD has counted",
        handlers.ngram_save,
        "FILE",
        "my.ngrams",
        "The counts of the storage in use, including those of this prompt. Only a file of counts is replaced.",
        candidates=words.files,
    ),
    SessionCommand(
        "ngram_load",
        "session",
        "continue with counts that were saved",
        handlers.ngram_load,
        "FILE",
        "my.ngrams",
        "Sets set_ngramstorage to the file's, and reset_in_between off. A bad file is refused as a whole.",
        candidates=words.files,
    ),
    setting_command(TURNS, "session"),
    SessionCommand(
        "new", "session", "begin another dialogue", handlers.new, detail="For /turns on and /turns reference."
    ),
    setting_command(DEBUG, "session"),
    SessionCommand(
        "add",
        "methods",
        "run a method once more, with values of its own",
        handlers.add,
        "METHOD NAME=VALUE ...",
        "speculative gamma=2",
        "It gets a row beside the method as it is set. A value ends where the next NAME= begins; one with a comma or = "
        'goes in quotes: /add ngram set_ngramstorage="onelevel 4" top_k_filler=1.',
        candidates=words.added,
    ),
    SessionCommand(
        "drop",
        "methods",
        "remove what was added",
        handlers.drop,
        "NAME|all",
        "all",
        "NAME is what the table or /status calls it: /drop mtp gamma=2.",
    ),
    SessionCommand(
        "method",
        "methods",
        "switch a method on or off by its name",
        handlers.method,
        "NAME [on|off]",
        "ngram on",
        "The same as /NAME; without on or off it flips.",
        candidates=words.method_words,
    ),
    SessionCommand(
        "speculative_config",
        "methods",
        "set methods and settings from the JSON that servers accept",
        handlers.speculative_config,
        "JSON",
        '{"method": "draft_model", "num_speculative_tokens": 4}',
        "Switches on the method it names and the reference, and all others off; keys left out get their defaults.",
    ),
    SessionCommand(
        "ablate",
        "ablation",
        "run a plan on the loaded pair and report its results",
        measuring.ablate,
        "[PLAN]",
        "gamma",
        "PLAN is a built-in plan or a .toml file; what it leaves open, methods included, is as set in the session. "
        "The default is quick; after /add, the prompts of quick for what answers a prompt here. "
        "Ctrl-C stops after the current row and reports what has been measured.",
        candidates=words.plans,
    ),
    SessionCommand(
        "profile",
        "ablation",
        "what forwards and drafts cost on this machine",
        measuring.profile,
        detail="Times of the target's forward by rows and context, and of each drafter. A first session measures them "
        "while the prompt waits, half a minute in all; asked for earlier, the rest is measured now.",
    ),
    SessionCommand(
        "why",
        "methods",
        "where the time of the last answer went",
        measuring.why,
        "[NAME]",
        "mtp",
        "A bar and a line a run: what forwards, their further rows, drafting and judging took of a token's time, and "
        "what acceptance would have paid for it. NAME is what the table calls it; it then stands beside AR alone.",
        candidates=words.methods,
    ),
    SessionCommand(
        "batch",
        "ablation",
        "answer a file of prompts, several at a time",
        measuring.batch,
        "FILE [N]",
        "grounded 4",
        "FILE has a prompt a line (docs/prompts.md), or is a built-in set; N are answered at a time, 4 where it is "
        "left out. A line a text shows it grow; the table at the end compares each method with AR at as many at a "
        "time. Ctrl-C stops after the method under way.",
        candidates=words.prompts,
    ),
    SessionCommand("results", "ablation", "the table of the last ablation", measuring.results),
    *(setting_command(parameter) for parameter in _SETTINGS),
)

_PROCESSOR = "the processor has it: /processor multinomial 0.7, /processor nucleus 0.7 0.9 or /processor topk 0.7 20"
_LENGTH = "/length sets the most tokens of an answer"
# Settings of other tools, and where they are here.
_ELSEWHERE = {
    **dict.fromkeys(("temperature", "temp", "top_p", "top_k"), _PROCESSOR),
    **dict.fromkeys(("max_tokens", "max_new_tokens", "max_length"), _LENGTH),
    "num_speculative_tokens": "/gamma sets how many tokens are drafted",
    "system": "a file of prompts may have system prompts (docs/prompts.md); a session has none",
}
_ALIASES = {alias: command.name for command in COMMANDS.values() for alias in command.aliases}


def find(name: str) -> SessionCommand:
    """A command by name or alias, with or without its slash. Raises `UserError` with the nearest name."""
    bare = name.lower().removeprefix("/")
    bare = _ALIASES.get(bare, bare)
    if bare in COMMANDS:
        return COMMANDS[bare]
    if bare in _ELSEWHERE:
        raise UserError(f"unknown command {name!r}; {_ELSEWHERE[bare]}")
    near = nearest(bare, [*COMMANDS, *_ALIASES])
    hint = f". Did you mean /{near}?" if near else ""
    raise UserError(
        f"unknown command {name!r}{hint} (/help all lists them; to begin a prompt with a slash, put a space before it)"
    )


def parse(line: str) -> tuple[SessionCommand, str] | str | None:
    """A line as (command, argument), as a prompt with its escapes resolved, or as nothing.

    Example: "/gamma 6" -> (gamma, "6"); "one\\ntwo" with a typed backslash -> two lines.
    """
    if line.startswith("/"):
        name, _, argument = line.strip().partition(" ")
        return find(name), argument.strip()
    return line.strip().replace("\\n", "\n").replace("\\t", "\t") or None


def execute(host: CommandHost, line: str) -> Reply | None:
    """Carry a line out: what is to be shown. Raises `UserError`, and then nothing has changed.

    `help`, `exit` and `quit` alone are answered rather than generated from; with a space before they are prompts.
    """
    match line.rstrip().lower():
        case "help":
            return help.first_page()
        case "exit" | "quit" as word:
            return Message(f"type /quit or press Ctrl-D to leave; to ask {word!r} as a prompt, put a space before it")
    parsed = parse(line)
    if isinstance(parsed, tuple):
        command, argument = parsed
        return command.handler(host, argument)
    if parsed is not None:
        host.answer(parsed)
    return None

"""The table of all commands, with parsing and execution of a line."""

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
        "models, methods that are on, changed settings; all: every setting",
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
        "drafter, heads, dtype or device; other options get their defaults. The present models are unloaded first, and "
        "loaded again where the others cannot be had.",
        candidates=words.files,
    ),
    SessionCommand(
        "repeat",
        "session",
        "the command that gives the last answer again",
        models.repeat,
        detail="A line of `infer.py run` with the models, methods and settings, also values from model cards. The "
        "memory of earlier answers is left out.",
    ),
    SessionCommand(
        "save",
        "session",
        "save the state as a script",
        handlers.save,
        "FILE",
        "my.session",
        "Replaces a saved session. Asks first if lines were added to the file. Any other file is left alone.",
        candidates=words.files,
    ),
    SessionCommand(
        "load",
        "session",
        "play a script: one command or prompt per line",
        handlers.load,
        "FILE",
        "my.session",
        "Empty lines and lines that begin with # are skipped. A command prints only if it fails; the script continues.",
        candidates=words.files,
    ),
    SessionCommand(
        "export",
        "session",
        "write the answers of this session to a file",
        handlers.export,
        "FILE",
        "answers.html",
        ".jsonl: the records that infer.py run --json prints, one per line. .html: a page with the tables, the answers "
        "with accepted and rejected drafts, and the settings. An existing file is replaced only after you confirm.",
        candidates=words.files,
    ),
    SessionCommand(
        "ngram_save",
        "session",
        "save the n-gram counts of NASD",
        handlers.ngram_save,
        "FILE",
        "my.ngrams",
        "The counts of the storage in use, including those of this prompt. Only a file of counts is replaced.",
        candidates=words.files,
    ),
    SessionCommand(
        "ngram_load",
        "session",
        "load saved n-gram counts",
        handlers.ngram_load,
        "FILE",
        "my.ngrams",
        "Sets set_ngramstorage to the storage of the file, and reset_in_between off. A damaged file changes nothing.",
        candidates=words.files,
    ),
    setting_command(TURNS, "session"),
    SessionCommand(
        "new", "session", "start a new dialogue", handlers.new, detail="For /turns on and /turns reference."
    ),
    setting_command(DEBUG, "session"),
    SessionCommand(
        "add",
        "methods",
        "run a method a second time with other values",
        handlers.add,
        "METHOD NAME=VALUE ...",
        "speculative gamma=2",
        "It gets a row of its own in the table. A value ends at the next NAME=. A value with a comma or = "
        'needs quotes: /add ngram set_ngramstorage="onelevel 4" top_k_filler=1.',
        candidates=words.added,
    ),
    SessionCommand(
        "drop",
        "methods",
        "remove a method that /add added",
        handlers.drop,
        "NAME|all",
        "all",
        "NAME is the name in the table or in /status: /drop mtp gamma=2.",
    ),
    SessionCommand(
        "method",
        "methods",
        "switch a method on or off by its name",
        handlers.method,
        "NAME [on|off]",
        "ngram on",
        "The same as /NAME; without on or off it toggles the method.",
        candidates=words.method_words,
    ),
    SessionCommand(
        "speculative_config",
        "methods",
        "set methods and settings from the JSON that servers accept",
        handlers.speculative_config,
        "JSON",
        '{"method": "draft_model", "num_speculative_tokens": 4}',
        "Switches on the named method and the reference, and all others off; missing keys get their defaults.",
    ),
    SessionCommand(
        "ablate",
        "ablation",
        "run a plan on the loaded pair and report its results",
        measuring.ablate,
        "[PLAN]",
        "gamma",
        "PLAN is a built-in plan or a .toml file. Settings and methods that it leaves out come from the session. "
        "The default is quick. After /add, the prompts of quick run with the methods of the session. "
        "Ctrl-C stops after the current row and reports the rows so far.",
        candidates=words.plans,
    ),
    SessionCommand(
        "profile",
        "ablation",
        "the cost of forwards and drafts on this machine",
        measuring.profile,
        detail="Times of the target's forward by rows and context, and of each drafter. The first session measures "
        "them while it waits for input, half a minute in all. /profile measures the rest at once.",
    ),
    SessionCommand(
        "why",
        "methods",
        "how the time of the last answer divides",
        measuring.why,
        "[NAME]",
        "mtp",
        "A bar and a line per run: the time of forwards, their extra rows, drafting and verification per token, and "
        "the acceptance rate needed for a speedup. NAME is a name of the table; only its run and AR are then shown.",
        candidates=words.methods,
    ),
    SessionCommand(
        "batch",
        "ablation",
        "answer a file of prompts, several at a time",
        measuring.batch,
        "FILE [N]",
        "grounded 4",
        "FILE has one prompt per line (docs/prompts.md), or is a built-in set. N is the batch size; default 4. "
        "One line per text shows its progress. The table at the end compares each method with AR at the same batch "
        "size. Ctrl-C stops after the current method.",
        candidates=words.prompts,
    ),
    SessionCommand("results", "ablation", "the table of the last ablation", measuring.results),
    *(setting_command(parameter) for parameter in _SETTINGS),
)

_PROCESSOR = "use /processor: /processor multinomial 0.7, /processor nucleus 0.7 0.9 or /processor topk 0.7 20"
_LENGTH = "/length sets the most tokens of an answer"
# Settings of other tools and options of the start, and the equivalent command here.
_ELSEWHERE = {
    **dict.fromkeys(("temperature", "temp", "top_p", "top_k"), _PROCESSOR),
    **dict.fromkeys(("max_tokens", "max_new_tokens", "max_length"), _LENGTH),
    "num_speculative_tokens": "/gamma sets how many tokens are drafted",
    **dict.fromkeys(("heads", "head"), "/model ID heads=DIR loads heads beside a target, as --heads DIR does at start"),
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
    """A line as (command, argument), as a prompt with its escapes resolved, or None for an empty line.

    Example: "/gamma 6" -> (gamma, "6"); "one\\ntwo" with a typed backslash -> two lines.
    """
    if line.startswith("/"):
        name, _, argument = line.strip().partition(" ")
        return find(name), argument.strip()
    return line.strip().replace("\\n", "\n").replace("\\t", "\t") or None


def execute(host: CommandHost, line: str) -> Reply | None:
    """Execute a line and return the reply to show. Raises `UserError`; nothing has changed then.

    `help`, `exit` and `quit` alone are commands; with a space before them they are prompts.
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

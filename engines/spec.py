"""An engine as a plan names it. No torch is imported here."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from engines.dialect import Dialect
from engines.speculation import config_for
from engines.tables import DIALECTS, PROCESSES
from sampling.methods.tables import AR
from utils.errors import UserError, one_of

OURS = "workbench"
TRANSFORMERS, OPENAI = "transformers", "openai"
KINDS = (TRANSFORMERS, *PROCESSES, OPENAI)
DRAFTER = "speculative"
IN_GENERATE = (AR, DRAFTER, "prompt_lookup")
UNKNOWN = "unknown"
SERVER = "server"
_WORKER = shlex.quote(str(Path(__file__).parent / "server" / "worker.py"))
_PLACES = ("model", "port", "options")
_ALWAYS = ("name", "kind", "methods", "weights", "version")
_TAKES = {
    TRANSFORMERS: (),
    **dict.fromkeys(PROCESSES, ("python", "arguments", "model", "drafter")),
    OPENAI: ("dialect", "url", "urls", "launch", "model", "drafter"),
}


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """name: in tables. kind: `transformers`, in this process on the loaded checkpoint; `vllm` or `openvino`, in a
    process of that engine's own Python; or `openai`, a server.

    dialect: how the server is asked and read. url: where it runs already; urls: the same by method, for servers that
    speculate as they were started; launch: what starts it, in which {model}, {port} and {options} stand for what they
    say. python: of that environment; arguments: those of `vllm serve`, or OpenVINO's properties as NAME=VALUE. model:
    what it is called there, or which weights it loads; none: those that are loaded here. drafter: the same of what
    drafts. weights: the format of those. version: of the engine. methods: which of the plan's it plays; none: all.
    """

    name: str
    kind: str
    dialect: str = ""
    url: str = ""
    launch: str = ""
    python: str = ""
    arguments: str = ""
    model: str = ""
    drafter: str = ""
    weights: str = UNKNOWN
    version: str = ""
    methods: tuple[str, ...] = ()
    urls: tuple[tuple[str, str], ...] = ()

    def check(self) -> None:
        """Raises `UserError` for a server that nobody could find, start or read."""
        taken = (*_ALWAYS, *_TAKES[self.kind])
        strange = [field.name for field in fields(self) if field.name not in taken and getattr(self, field.name)]
        if strange:
            raise UserError(f"{strange[0]} given for kind {self.kind}; expected only {', '.join(taken)}")
        if self.kind in PROCESSES:
            self._check_process()
        elif self.kind == OPENAI:
            self._check_server()

    def _check_process(self) -> None:
        if not self.python:
            raise UserError(f"python: '' given; expected the path of the Python that has {self.kind}")
        _read(self.arguments, "arguments")

    def _check_server(self) -> None:
        if self.dialect not in DIALECTS:
            raise UserError(f"dialect: {self.dialect!r} given; expected {one_of(DIALECTS)}")
        if [bool(self.url), bool(self.urls), bool(self.launch)].count(True) != 1:
            raise UserError("url and launch: expected one of them, where the server runs or what starts it")
        if self.launch:
            read_launch(self.launch)
        for url in filter(None, (self.url, *(url for _, url in self.urls))):
            if not _is_url(url):
                raise UserError(f"url: {url!r} given; expected http://HOST:PORT")
        if self.url and not DIALECTS[self.dialect].by_request:
            raise UserError(
                f"url: {self.url!r} given, and {self.dialect} speculates as it was started; expected one a method, "
                'such as url = {target = "http://...", prompt_lookup = "http://..."}'
            )

    @property
    def played(self) -> tuple[str, ...]:
        """The methods that it is asked for; none: all of the plan's."""
        return self.methods or tuple(method for method, _ in self.urls)

    @property
    def speaks(self) -> Dialect:
        """The dialect in which it is asked, where it does not run in this process."""
        return PROCESSES[self.kind] if self.kind in PROCESSES else DIALECTS[self.dialect]

    @property
    def started(self) -> str:
        """The command line that starts it; none where it runs already, or in this process."""
        if self.kind not in PROCESSES:
            return self.launch
        program = f"{shlex.quote(self.python)} {_WORKER} {self.kind}_worker {{port}}"
        return f"{program} --model {{model}} {self.arguments} {{options}}"

    def refuse(self, method: str, values: Mapping[str, Any]) -> None:
        """Raises `UserError`, which names it, for a method with values that it lacks."""
        try:
            if self.kind == TRANSFORMERS:
                refuse_in_generate(method, values)
                return
            dialect = self.speaks
            config = config_for(dialect, method, values)
            if dialect.options(config) and self.launch and "{options}" not in self.launch:
                raise UserError(
                    f"launch: {self.launch!r} given; expected {{options}} in it, by which {method} is asked for"
                )
            draft = self.drafter or (dialect.folders and method == DRAFTER)
            if self.started and dialect.loads(config) and not draft:
                raise UserError(f"{method} needs drafter, what {dialect.name} loads to draft")
        except UserError as error:
            reason = str(error).removeprefix(f"{self.name}: ")
            raise UserError(f"engine {self.name}: {reason}; or name only methods that it has") from None


def refuse_in_generate(method: str, values: Mapping[str, Any]) -> None:
    """Raises `UserError` for what transformers' `generate` lacks."""
    if method not in IN_GENERATE:
        raise UserError(f"transformers has no method {method}; expected {one_of(IN_GENERATE)}")
    rule = values["draft_rule"] if method == DRAFTER and "draft_rule" in values else "fixed"
    if rule not in ("fixed", "own"):
        raise UserError(f"transformers has no draft_rule {rule}; expected fixed")


def read_launch(launch: str) -> list[str]:
    """The words of a command line. Raises `UserError` for one that could not be told where to listen."""
    words = _read(launch, "launch")
    if not any("{port}" in word for word in words):
        raise UserError(f"launch: {launch!r} given; expected a command with {{port}} in it, and {{options}}")
    for name in re.findall(r"{(\w+)}", launch):
        if name not in _PLACES:
            raise UserError(f"launch: {{{name}}} given, for which nothing stands; expected {one_of(_PLACES)}")
    return words


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and " " not in text
    except ValueError:
        return False


def _read(line: str, what: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UserError(f"{what}: {line!r} given, which cannot be read: {error}") from None


def expanded(words: Sequence[str], model: str, port: int, options: Sequence[str]) -> list[str]:
    """The words with what stands for them; {options} is as many as there are."""
    expanded_words: list[str] = []
    for word in words:
        parts = options if word == "{options}" else [word.replace("{model}", model).replace("{port}", str(port))]
        expanded_words += parts
    return expanded_words

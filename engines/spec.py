"""An engine as a plan names it. No torch is imported here."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engines.speculation import config_for
from engines.tables import DIALECTS
from sampling.methods import REFERENCE
from utils.errors import UserError, one_of

OURS = "workbench"
TRANSFORMERS, OPENAI = "transformers", "openai"
KINDS = (TRANSFORMERS, OPENAI)
IN_GENERATE = (REFERENCE, "speculative", "prompt_lookup")
UNKNOWN = "unknown"
SERVER = "server"


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """name: in tables. kind: `transformers`, in this process on the loaded checkpoint, or `openai`, a server.

    dialect: how the server is asked and read. url: where it runs already; urls: the same by method, for servers that
    speculate as they were started; launch: what starts it, in which {model}, {port} and {options} stand for what they
    say. model: what it is called there, or which weights it loads. weights:
    the format of those. version: of the engine. methods: which of the plan's it plays; none: all.
    """

    name: str
    kind: str
    dialect: str = ""
    url: str = ""
    launch: str = ""
    model: str = ""
    weights: str = UNKNOWN
    version: str = ""
    methods: tuple[str, ...] = ()
    urls: tuple[tuple[str, str], ...] = ()

    def check(self) -> None:
        """Raises `UserError` for a server that nobody could find, start or read."""
        if self.kind == TRANSFORMERS:
            given = [name for name in ("dialect", "url", "urls", "launch", "model") if getattr(self, name)]
            if given:
                raise UserError(f"{given[0]} given for kind transformers, which runs the loaded checkpoint")
            return
        if self.dialect not in DIALECTS:
            raise UserError(f"dialect: {self.dialect!r} given; expected {one_of(DIALECTS)}")
        if [bool(self.url), bool(self.urls), bool(self.launch)].count(True) != 1:
            raise UserError("url and launch: expected one of them, where the server runs or what starts it")
        if self.launch:
            read_launch(self.launch)
        for url in filter(None, (self.url, *(url for _, url in self.urls))):
            if not url.startswith(("http://", "https://")):
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

    def refuse(self, method: str, values: Mapping[str, Any]) -> None:
        """Raises `UserError`, which names it, for a method with values that it lacks."""
        try:
            if self.kind == TRANSFORMERS:
                refuse_in_generate(method, values)
            else:
                DIALECTS[self.dialect].options(config_for(DIALECTS[self.dialect], method, values))
        except UserError as error:
            raise UserError(f"engine {self.name}: {error}; or leave the method out of its methods") from None


def refuse_in_generate(method: str, values: Mapping[str, Any]) -> None:
    """Raises `UserError` for what transformers' `generate` lacks."""
    if method not in IN_GENERATE:
        raise UserError(f"transformers has no method {method}; expected {one_of(IN_GENERATE)}")
    rule = values["draft_rule"] if method == "speculative" and "draft_rule" in values else "fixed"
    if rule not in ("fixed", "own"):
        raise UserError(f"transformers has no draft_rule {rule}; expected fixed")


def read_launch(launch: str) -> list[str]:
    """The words of a command line. Raises `UserError` for one that could not be told where to listen."""
    try:
        words = shlex.split(launch)
    except ValueError as error:
        raise UserError(f"launch: {launch!r} given, which cannot be read: {error}") from None
    if not any("{port}" in word for word in words):
        raise UserError(f"launch: {launch!r} given; expected a command with {{port}} in it, and {{options}}")
    return words


def expanded(words: Sequence[str], model: str, port: int, options: Sequence[str]) -> list[str]:
    """The words with what stands for them; {options} is as many as there are."""
    found: list[str] = []
    for word in words:
        given = options if word == "{options}" else [word.replace("{model}", model).replace("{port}", str(port))]
        found += given
    return found

"""The loaded models as requests see them."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from ablation.plan.grid import Configuration
from sampling.engine import Text
from sampling.methods.chat_template import UNTOLD, TemplateVariables
from sampling.methods.tables import METHODS
from sampling.pair.conversation_ids import reads_tools
from sampling.pair.local_engine import LocalEngine
from serve.answers.parts import CLOSES, OPENS, PLAIN, AnswerForm
from serve.answers.syntax import syntax_of
from serve.jobs import Tokens
from serve.limits import ServerLimits, served_values
from utils.errors import UserError

_TAIL = 16


class Served:
    """See `serve.requests.body.Model`."""

    def __init__(self, engine: LocalEngine, tokens: Tokens, limits: ServerLimits, default: Configuration) -> None:
        about = engine.describe()
        self.engine, self.tokens, self.default = engine, tokens, default
        self.name, self.window, self.longest = about.target.name, about.window, limits.longest
        self.places = limits.size + limits.waiting
        self.vocab_size = engine.target.vocab_size
        self._limits = limits
        self.refuse(default)
        self.methods = tuple(name for name in METHODS if self._serves(name))

    @property
    def template(self) -> str:
        """The chat template; empty where there is none."""
        tokenizer = self.engine.pair.tokenizer
        return str(tokenizer.get_chat_template()) if tokenizer.chat_template else ""

    @cached_property
    def call_syntax(self) -> str | None:
        """See `Model`."""
        if self._limits.tool_parser != "auto":
            return self._limits.tool_parser
        return syntax_of(self.template, reads_tools(self.engine.pair.tokenizer)) if self.template else None

    def tokenise(
        self, turns: Sequence[str], chat: bool, system: str | None = None, variables: TemplateVariables = UNTOLD
    ) -> list[int]:
        """See `Model.tokenise`."""
        return self.tokens.encode(turns, chat, system, variables)

    def encode_messages(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        variables: TemplateVariables = UNTOLD,
        opens: bool = True,
    ) -> list[int]:
        """See `Model.encode_messages`."""
        return self.tokens.encode_messages(messages, tools, variables, opens)

    def thinking(self, prompt: Sequence[int]) -> AnswerForm:
        """See `Model.thinking`: a template that knows the tags may have opened or closed them at the prompt's end."""
        if CLOSES not in self.template:
            return PLAIN
        tail = self.tokens.decode_all(prompt[-_TAIL:]).rstrip()
        return AnswerForm(thinks=not tail.endswith(CLOSES), open=tail.endswith(OPENS))

    def decode(self, ids: Sequence[int]) -> str:
        """See `Model.decode`."""
        return self.tokens.decode(ids)

    def bytes_of(self, token: int) -> bytes:
        """See `Model.bytes_of`."""
        return self.tokens.bytes_of(token)

    def refuse(self, configuration: Configuration) -> None:
        """Raises `UserError` for a method that cannot run here, or not for many at a time, or costs too much."""
        self.engine.request(configuration.method, served_values(configuration), Text(None, (), 1))
        if METHODS[configuration.method].search:
            raise UserError(f"{configuration.method} given, which answers one text at a time; expected another method")
        self._limits.check(configuration)

    def _serves(self, name: str) -> bool:
        try:
            self.refuse(Configuration(name))
        except UserError:
            return False
        return True

"""How an engine's server is asked and read. A dialect is a class of its own and a line in the table."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from utils.errors import UserError, one_of
from utils.events import Acceptance

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextRequest:
    """A text to be written after a prompt (ids). temperature 0 is greedy; top_k 0 and top_p 1 keep all tokens.

    options: those of `OPTIONS` that the processor has, by our names. logprobs: how many of the best tokens of each
    place are to be told with their ln p.
    """

    prompt: Sequence[int]
    length: int
    seed: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    options: Mapping[str, float] = field(default_factory=dict)
    logprobs: int = 0


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """What one event of a stream adds. ids: None where the server tells text alone. reason: why the text ended.

    total: how many ids the text has by then, of a server whose events may hold all of them.
    """

    ids: tuple[int, ...] | None = ()
    text: str = ""
    reason: str | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Option:
    """A method of `speculative_config` as a server's command line: fixed words, and the word of each key."""

    words: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)


class Dialect(ABC):
    """name: in tables and plans. path: where texts are asked for. by_request: whether a request names the method.

    A server speculates as it was started: `options` are the words of its command line. folders: whether it loads
    checkpoints in folders, as we do. version: where it tells its own, and under which key. samplers: its words for
    options of a processor that mean there what they mean here.
    """

    name: ClassVar[str]
    path: ClassVar[str] = "/v1/completions"
    health: ClassVar[str] = "/health"
    by_request: ClassVar[bool] = False
    folders: ClassVar[bool] = True
    methods: ClassVar[Mapping[str, Option]] = {}
    version: ClassVar[tuple[str, str] | None] = None
    samplers: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def body(self, wanted: TextRequest, model: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """The request, which asks for a stream. config: a `speculative_config`, for those that take it by request."""

    @abstractmethod
    def piece(self, event: Event) -> AnswerPiece:
        """What an event of the stream adds."""

    @abstractmethod
    def acceptance(self, events: Sequence[Event], new_tokens: int) -> Acceptance:
        """What the events of a whole answer say of its rounds."""

    def top_logprobs(self, events: Sequence[Event]) -> list[dict[int, float]]:
        """ln p of the best tokens of each place by id, raw, as `logprobs` asks for them; none where none are told."""
        return []

    def options(self, config: Mapping[str, Any]) -> list[str]:
        """The words that start a server with this `speculative_config`. Raises `UserError` for what it lacks."""
        option = self.option(config)
        words = [*option.words]
        for key, value in config.items():
            if key != "method":
                words += [option.keys[key], str(value)]
        return words

    def loads(self, config: Mapping[str, Any]) -> bool:
        """Whether the method is another model, or a head, that the command line names."""
        option = self.methods.get(config["method"])
        return option is not None and "model" in option.keys

    def option(self, config: Mapping[str, Any]) -> Option:
        """The line of the table for a method. Raises `UserError` for a method or a key that this server lacks."""
        method = config["method"]
        if method not in self.methods:
            raise UserError(f"{self.name} has no method {method}; expected {one_of(self.methods)}")
        option = self.methods[method]
        for key in config:
            if key != "method" and key not in option.keys:
                raise UserError(f"{self.name} has no {key} for {method}; expected {one_of(option.keys)}")
        return option


OPENAI_SAMPLERS: Mapping[str, str] = {
    "min_p": "min_p",
    "repetition": "repetition_penalty",
    "frequency": "frequency_penalty",
    "presence": "presence_penalty",
}
"""vLLM's words, which others took over."""


def spoken(wanted: TextRequest, words: Mapping[str, str]) -> dict[str, float]:
    """The options of a request in an engine's words."""
    return {words[name]: value for name, value in wanted.options.items()}


def last_of(events: Sequence[Event], key: str) -> Any:
    """The value of a key in the last event that has it; None where none has."""
    return next((event[key] for event in reversed(events) if event.get(key) is not None), None)


def last_of_choices(events: Sequence[Event], key: str) -> Any:
    """The same for a key of the choices."""
    choices = [choice for event in events for choice in event.get("choices") or ()]
    return last_of(choices, key)

"""A request's body, read strictly: every field is known, of its type and within its limits, or refused by name."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from ablation.plan.grid import Configuration
from sampling.methods.chat_template import KWARGS, THINKING, UNTOLD, TemplateVariables
from sampling.methods.tables import METHODS
from serve.errors import ApiError, refused_as, wrong_field
from serve.jobs import ParsedRequest, TextOrder
from serve.messages import conversation
from serve.requested import GRAMMARS, SAMPLING, processor_of, requested_grammar, requested_method
from utils.errors import UnknownName, UserError, checked_text, one_of
from utils.json_text import read_json
from utils.parameter import LARGEST
from utils.text import quoted

T = TypeVar("T")

_KINDS: Mapping[type, str] = {bool: "true or false", str: "a text", int: "an integer", dict: "an object"}

MOST_STOPS, LONGEST_STOP = 16, 256
COMPLETION_TOKENS = 16
_SEEDS = 2**31

# What OpenAI's API has and this server does not do: only the values that ask for nothing are taken.
_NOT_DONE: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "store": (False,),
}
_UNUSED: Mapping[str, type] = {"user": str, "metadata": dict, "safety_identifier": str, "service_tier": str}
_COMMON = (
    "model",
    "stream",
    "stream_options",
    "seed",
    "stop",
    "max_tokens",
    *SAMPLING,
    *GRAMMARS,
    "ignore_eos",
    "return_token_ids",
    "speculative",
)


class Model(Protocol):
    """What reading a request asks of the models."""

    name: str
    window: int
    vocab_size: int
    longest: int
    places: int
    default: Configuration

    def tokenise(
        self, turns: Sequence[str], chat: bool, system: str | None = None, variables: TemplateVariables = UNTOLD
    ) -> list[int]:
        """Ids of a prompt. Raises `UserError`."""
        ...

    def refuse(self, configuration: Configuration) -> None:
        """Raises `UserError` for a method that cannot run here."""
        ...


def read_completion(content: bytes, model: Model) -> ParsedRequest:
    """The body of `/v1/completions`. Raises `ApiError`."""
    fields = _Fields.read(content, (*_COMMON, "prompt"))
    return fields.asked("text", [tuple(ids) for ids in fields.prompts(model)], model, COMPLETION_TOKENS)


def read_chat(content: bytes, model: Model) -> ParsedRequest:
    """The body of `/v1/chat/completions`. Raises `ApiError`."""
    fields = _Fields.read(content, (*_COMMON, "messages", "max_completion_tokens", THINKING.name, KWARGS.name))
    turns, system = conversation(fields.given.get("messages"))
    variables = fields.template_variables()
    where = "messages" if not variables else KWARGS.name if variables.named else THINKING.name
    ids = refused_as(where, lambda: model.tokenise(turns, True, system, variables))
    return fields.asked("chat", [tuple(ids)], model, model.longest)


@dataclass(frozen=True, slots=True)
class _Fields:
    """The object of a body; a field that is null was not given."""

    given: Mapping[str, Any]

    @classmethod
    def read(cls, content: bytes, allowed: Sequence[str]) -> "_Fields":
        """Raises `ApiError` for what is no object, for a field that is unknown, and for what is not done here."""
        try:
            body = read_json(content.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise ApiError(400, f"the body is not UTF-8 at byte {error.start}; expected a JSON object") from None
        except UserError as error:
            raise ApiError(400, f"the body: {error}") from None
        if not isinstance(body, dict):
            raise ApiError(400, f"the body is {_kind(body)}; expected a JSON object")
        fields_given = {name: value for name, value in body.items() if value is not None}
        for name, value in fields_given.items():
            if name in _NOT_DONE:
                if not any(type(value) is type(none) and value == none for none in _NOT_DONE[name]):
                    raise ApiError(400, f"{name}: {quoted(value)} given, which this server does not do", name)
            elif name in _UNUSED:
                if not isinstance(value, _UNUSED[name]):
                    raise wrong_field(name, value, _KINDS[_UNUSED[name]])
            elif name not in allowed:
                raise ApiError(400, str(UnknownName("field", name, allowed)), name)
        return cls(fields_given)

    def asked(self, kind: Any, prompts: Sequence[tuple[int, ...]], model: Model, usual: int) -> ParsedRequest:
        """The request for these prompts. usual: tokens to write where it does not say. Raises `ApiError`."""
        self._check_model(model)
        configuration, processor = self._configuration(model), processor_of(self, model.vocab_size)
        seed, stops, grammar = self._seed(), self._stops(), requested_grammar(self)
        ends = self.get("ignore_eos", bool, False)
        orders = [
            TextOrder(ids, configuration, self._length(model, ids, usual), processor, seed, stops, ends, grammar)
            for ids in prompts
        ]
        stream = self.get("stream", bool, False)
        return ParsedRequest(
            kind, tuple(orders), stream, self._include_usage(stream), self.get("return_token_ids", bool, False)
        )

    def get(self, name: str, kind: type[T], default: T) -> T:
        """A field of this type. Raises `ApiError`."""
        value = self.given.get(name, default)
        if type(value) is not kind:
            raise wrong_field(name, value, _KINDS[kind])
        return value

    def template_variables(self) -> TemplateVariables:
        """What the chat template is told beside the messages. Raises `ApiError`."""
        given = {KWARGS.name: self.get(KWARGS.name, dict, {}), THINKING.name: self.given.get(THINKING.name, "auto")}
        if type(given[THINKING.name]) not in (bool, str):
            raise wrong_field(THINKING.name, given[THINKING.name], "true, false or auto")
        read = {p.name: refused_as(p.name, partial(p.checked, given[p.name])) for p in (THINKING, KWARGS)}
        return TemplateVariables.of(read)

    def prompts(self, model: Model) -> list[list[int]]:
        """The ids of each prompt: one text or list of ids, or a list of either."""
        value: Any = self.given.get("prompt")
        several = isinstance(value, list) and value and not any(type(token) is int for token in value)
        if several and len(value) > model.places:
            raise ApiError(400, f"prompt: {len(value)} prompts given; expected {model.places} at most", "prompt")
        return [self._ids(prompt, model) for prompt in (value if several else [value])]

    def _ids(self, prompt: Any, model: Model) -> list[int]:
        if isinstance(prompt, str) and prompt:
            return refused_as("prompt", lambda: model.tokenise([checked_text(prompt, "prompt")], False))
        if not isinstance(prompt, list) or not prompt or not all(type(token) is int for token in prompt):
            raise wrong_field("prompt", prompt, "a text, a list of token ids, or a list of such, none of them empty")
        for token in prompt:
            if not 0 <= token < model.vocab_size:
                raise wrong_field("prompt", token, f"ids from 0 to {model.vocab_size - 1}")
        return list(prompt)

    def _check_model(self, model: Model) -> None:
        name = self.get("model", str, model.name)
        if name != model.name:
            raise ApiError(404, f"model: {quoted(name)} given; expected {model.name}", "model", "model_not_found")

    def _length(self, model: Model, ids: Sequence[int], usual: int) -> int:
        names = [name for name in ("max_completion_tokens", "max_tokens") if name in self.given]
        if len(names) > 1:
            raise ApiError(400, f"{' and '.join(names)} given; expected one of them", names[1])
        room = model.window - len(ids)
        if room < 1:
            raise ApiError(
                400,
                f"the prompt has {len(ids):,} tokens; expected at most {model.window - 1:,}, as the model's context "
                f"holds {model.window:,}",
                "prompt",
                "context_length_exceeded",
            )
        if not names:
            return min(usual, model.longest, room)
        length = self.get(names[0], int, 0)
        if not 1 <= length <= model.longest:
            raise wrong_field(names[0], length, f"an integer from 1 to {model.longest}")
        return length

    def _seed(self) -> int:
        seed = self.get("seed", int, secrets.randbelow(_SEEDS))
        if not 0 <= seed <= LARGEST:
            raise wrong_field("seed", seed, f"an integer from 0 to {LARGEST}")
        return seed

    def _stops(self) -> tuple[str, ...]:
        value = self.given.get("stop", [])
        stops = [value] if isinstance(value, str) else value
        if (
            not isinstance(stops, list)
            or len(stops) > MOST_STOPS
            or not all(isinstance(stop, str) and 0 < len(stop) <= LONGEST_STOP for stop in stops)
        ):
            raise wrong_field(
                "stop", value, f"a text or up to {MOST_STOPS} of them, each of 1 to {LONGEST_STOP} characters"
            )
        return tuple(refused_as("stop", partial(checked_text, stop, "stop")) for stop in stops)

    def _include_usage(self, stream: bool) -> bool:
        options = self.given.get("stream_options", {})
        if not isinstance(options, dict) or set(options) - {"include_usage", "include_obfuscation"}:
            raise wrong_field("stream_options", options, '{"include_usage": true}')
        if options and not stream:
            raise ApiError(400, "stream_options given without stream; expected both", "stream_options")
        return _Fields(options).get("include_usage", bool, False)

    def _configuration(self, model: Model) -> Configuration:
        """The method of `speculative`, with the values that it gives."""
        speculative = self.given.get("speculative")
        if speculative is None:
            return model.default
        if not isinstance(speculative, dict) or not isinstance(speculative.get("method"), str):
            raise wrong_field(
                "speculative", speculative, f'an object with "method", {one_of(METHODS)}, and its parameters'
            )

        def read() -> Configuration:
            configuration = requested_method(speculative)
            model.refuse(configuration)
            return configuration

        return refused_as("speculative", read)


def _kind(value: object) -> str:
    return {list: "a list", str: "a text", bool: "true or false", type(None): "null"}.get(type(value), "a number")

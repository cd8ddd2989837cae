"""A request's body as orders of texts: every field is known, of its type and within its limits, or refused by name."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol

from ablation.plan.grid import Configuration
from sampling.grammar.spelling import OFF_WORD
from sampling.methods.chat_template import KWARGS, THINKING, UNTOLD, TemplateVariables
from serve.answers.parts import AnswerForm
from serve.errors import ApiError, refused_as, wrong_field
from serve.jobs import ParsedRequest, TextOrder
from serve.requests.fields import Fields, checked_ids
from serve.requests.messages import beyond_text, conversation, tool_conversation
from serve.requests.requested import GRAMMARS, SAMPLING, processor_of, requested_grammar
from serve.requests.speculative import SPECULATIVE, requested_speculation
from serve.requests.tools import CHOICE, PARALLEL, TOOLS, ToolUse, requested_tools
from utils.errors import checked_text
from utils.parameter import LARGEST
from utils.text import quoted

MOST_STOPS, LONGEST_STOP = 16, 256
MOST_LOGPROBS = 20
COMPLETION_TOKENS = 16
_SEEDS = 2**31

_COMMON = (
    "model",
    "stream",
    "stream_options",
    "n",
    "seed",
    "stop",
    "stop_token_ids",
    "max_tokens",
    *SAMPLING,
    *GRAMMARS,
    "ignore_eos",
    "return_token_ids",
    "return_tokens_as_token_ids",
    "logprobs",
    *SPECULATIVE,
)
TEMPLATE = (THINKING.name, KWARGS.name)
_CHAT = ("messages", "max_completion_tokens", "top_logprobs", TOOLS, CHOICE, PARALLEL, *TEMPLATE)


class Model(Protocol):
    """What reading a request asks of the models.

    places: texts that may run and wait. call_syntax: how calls of tools in an answer are written; None: not known.
    """

    name: str
    window: int
    vocab_size: int
    longest: int
    places: int
    default: Configuration

    @property
    def call_syntax(self) -> str | None: ...

    def tokenise(
        self, turns: Sequence[str], chat: bool, system: str | None = None, variables: TemplateVariables = UNTOLD
    ) -> list[int]:
        """Ids of a prompt. Raises `UserError`."""
        ...

    def encode_messages(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        variables: TemplateVariables = UNTOLD,
        opens: bool = True,
    ) -> list[int]:
        """Ids of messages with tools. Raises `UserError`."""
        ...

    def thinking(self, prompt: Sequence[int]) -> AnswerForm:
        """Whether the answer to a chat's prompt may begin with reasoning."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens."""
        ...

    def bytes_of(self, token: int) -> bytes:
        """The bytes of a token."""
        ...

    def refuse(self, configuration: Configuration) -> None:
        """Raises `UserError` for a method that cannot run here."""
        ...


def read_completion(content: bytes, model: Model) -> ParsedRequest:
    """The body of `/v1/completions`. Raises `ApiError`."""
    fields = Fields.read(content, (*_COMMON, "prompt", "echo", "best_of"))
    check_model(fields, model)
    texts = _texts(fields, model)
    prompts = [_ids(text, model) for text in texts]
    echo = fields.get("echo", bool, False)
    most = fields.whole("logprobs", 0, 0, MOST_LOGPROBS) if "logprobs" in fields.given else None
    order = replace(_order(fields, model), logprobs=most, of_prompt=echo and most is not None)
    read = _request(fields, model, "text", order, [(ids, _length(fields, model, ids, echo)) for ids in prompts])
    if fields.get("best_of", int, read.samples) != read.samples:
        raise wrong_field("best_of", fields.given["best_of"], f"{read.samples}, which is n")
    if not echo:
        return read
    echoed = [text if isinstance(text, str) else model.decode(text) for text in texts]
    return replace(read, echoed=tuple(echoed))


def read_chat(content: bytes, model: Model) -> ParsedRequest:
    """The body of `/v1/chat/completions`. Raises `ApiError`."""
    fields = Fields.read(content, (*_COMMON, *_CHAT))
    check_model(fields, model)
    tools = requested_tools(fields)
    if tools.choice == "auto" and model.call_syntax is None:
        expected = f"none, required or a function, as how {model.name} writes calls is not known; see --tool-parser"
        raise wrong_field(CHOICE, "auto", expected)
    ids = tuple(chat_ids(fields, model, tools))
    order = replace(_order(fields, model), logprobs=_chat_logprobs(fields))
    thought, grammar = model.thinking(ids), _tool_grammar(order, tools)
    order = replace(order, grammar=grammar or order.grammar)
    opened = thought.open and order.grammar == OFF_WORD  # a grammar holds from the first token on
    syntax = model.call_syntax or tools.form.syntax
    form = replace(tools.form, thinks=thought.thinks, open=opened, syntax=syntax)
    read = _request(fields, model, "chat", order, [(ids, _length(fields, model, ids))])
    return replace(read, form=form)


def chat_ids(fields: Fields, model: Model, tools: ToolUse, opens: bool = True) -> list[int]:
    """The ids of a chat's messages. opens: whether the template opens the answer. Raises `ApiError`."""
    said, variables = fields.given.get("messages"), _template_variables(fields)
    where = "messages" if not variables else KWARGS.name if variables.named else THINKING.name
    if opens and not tools.tools and not beyond_text(said):
        turns, system = conversation(said)
        return refused_as(where, lambda: model.tokenise(turns, True, system, variables))
    messages = tool_conversation(said)
    return refused_as(where, lambda: model.encode_messages(messages, tools.tools, variables, opens))


def check_model(fields: Fields, model: Model) -> None:
    """Raises `ApiError` for another model than the one that is served."""
    check_name(fields.get("model", str, model.name), model)


def check_name(name: str, model: Model) -> None:
    """Raises `ApiError` where a model is called something else."""
    if name != model.name:
        raise ApiError(404, f"model: {quoted(name)} given; expected {model.name}", "model", "model_not_found")


def sample_seed(seed: int, sample: int) -> int:
    """The seed of a prompt's sample: the request's own for the first, and one that follows from it for each other."""
    if not sample:
        return seed
    digest = blake2b(f"{seed} sample {sample}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") & LARGEST


def _order(fields: Fields, model: Model) -> TextOrder:
    """What all texts of a request have in common; prompt and length are not there yet. Raises `ApiError`."""
    return TextOrder(
        (),
        requested_speculation(fields.given, model.default, model.refuse),
        0,
        processor_of(fields, model.vocab_size),
        _seed(fields),
        _stops(fields),
        fields.get("ignore_eos", bool, False),
        requested_grammar(fields),
        checked_ids("stop_token_ids", fields.given.get("stop_token_ids", []), model.vocab_size),
    )


def _request(
    fields: Fields, model: Model, kind: Any, order: TextOrder, prompts: Sequence[tuple[tuple[int, ...], int]]
) -> ParsedRequest:
    """The request for these prompts, each with its most new tokens. Raises `ApiError`."""
    most = model.places // len(prompts)
    samples = fields.whole("n", 1, 1, most, f", as {model.places} texts may run and wait here")
    stream = fields.get("stream", bool, False)
    options = _stream_options(fields, stream)
    if order.logprobs is not None:
        model.bytes_of(0)  # takes a second the first time
    return ParsedRequest(
        kind,
        tuple(
            replace(order, prompt=ids, length=length, seed=sample_seed(order.seed, sample))
            for ids, length in prompts
            for sample in range(samples)
        ),
        stream,
        options.get("include_usage", bool, False),
        fields.get("return_token_ids", bool, False),
        samples,
        options.get("continuous_usage_stats", bool, False),
        tokens_as_ids=fields.get("return_tokens_as_token_ids", bool, False),
    )


def _template_variables(fields: Fields) -> TemplateVariables:
    """What the chat template is told beside the messages. Raises `ApiError`."""
    given = {KWARGS.name: fields.get(KWARGS.name, dict, {}), THINKING.name: fields.given.get(THINKING.name, "auto")}
    if type(given[THINKING.name]) not in (bool, str):
        raise wrong_field(THINKING.name, given[THINKING.name], "true, false or auto")
    read = {p.name: refused_as(p.name, partial(p.checked, given[p.name])) for p in (THINKING, KWARGS)}
    return TemplateVariables.of(read)


def _texts(fields: Fields, model: Model) -> list[Any]:
    """Each prompt: one text or list of ids, or a list of either."""
    value: Any = fields.given.get("prompt")
    several = isinstance(value, list) and value and not any(type(token) is int for token in value)
    if several and len(value) > model.places:
        raise ApiError(400, f"prompt: {len(value)} prompts given; expected {model.places} at most", "prompt")
    return list(value) if several else [value]


def _ids(prompt: Any, model: Model) -> tuple[int, ...]:
    if isinstance(prompt, str) and prompt:
        return tuple(refused_as("prompt", lambda: model.tokenise([checked_text(prompt, "prompt")], False)))
    if not isinstance(prompt, list) or not prompt or not all(type(token) is int for token in prompt):
        raise wrong_field("prompt", prompt, "a text, a list of token ids, or a list of such, none of them empty")
    return checked_ids("prompt", prompt, model.vocab_size)


def _length(fields: Fields, model: Model, ids: Sequence[int], echo: bool | None = None) -> int:
    """The most new tokens. echo: of a completion, whether its prompt is told too, which alone may be all of it."""
    names = [name for name in ("max_completion_tokens", "max_tokens") if name in fields.given]
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
        return min(model.longest if echo is None else COMPLETION_TOKENS, model.longest, room)
    return fields.whole(names[0], 0, 0 if echo else 1, model.longest)


def _seed(fields: Fields) -> int:
    return fields.whole("seed", secrets.randbelow(_SEEDS), 0, LARGEST)


def _stops(fields: Fields) -> tuple[str, ...]:
    value = fields.given.get("stop", [])
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


def _stream_options(fields: Fields, stream: bool) -> Fields:
    options = fields.given.get("stream_options", {})
    known = {"include_usage", "include_obfuscation", "continuous_usage_stats"}
    if not isinstance(options, dict) or set(options) - known:
        raise wrong_field("stream_options", options, '{"include_usage": true, "continuous_usage_stats": true}')
    if options and not stream:
        raise ApiError(400, "stream_options given without stream; expected both", "stream_options")
    return Fields({name: value for name, value in options.items() if value is not None})


def _chat_logprobs(fields: Fields) -> int | None:
    """How many of the best tokens are wanted at each place; None: no log-probabilities."""
    wanted = fields.get("logprobs", bool, False)
    most = fields.whole("top_logprobs", 0, 0, MOST_LOGPROBS)
    if most and not wanted:
        raise wrong_field("top_logprobs", most, "logprobs true beside it")
    return most if wanted else None


def _tool_grammar(order: TextOrder, tools: ToolUse) -> str | None:
    """What the answer must be where a call is required; None where it is not. Raises `ApiError`."""
    grammar = tools.grammar()
    if grammar == OFF_WORD:
        return None
    if order.grammar != OFF_WORD:
        raise wrong_field(CHOICE, tools.choice, f"none or auto beside {' or '.join(GRAMMARS)}")
    return grammar

"""What a request comes to: texts to write, whom to tell of each, and what is told."""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from threading import Lock
from time import perf_counter
from typing import Any, Literal

from torch import Tensor

from ablation.plan.grid import Configuration
from sampling.grammar.spelling import OFF_WORD
from sampling.measure.answer import Decode
from sampling.measure.metrics import RunMetrics
from sampling.methods.chat_template import UNTOLD, TemplateVariables
from sampling.pair.local_engine import LocalEngine
from serve.answers.logprobs import TokenLogprob, emitting_rows
from serve.answers.parts import PLAIN, AnswerForm
from serve.answers.writing import ResponseWriting
from serve.errors import ApiError
from utils.events import Round
from utils.parameter import ChosenPart

_SHOWN_ROUNDS = 24


@dataclass(frozen=True, slots=True)
class TextOrder:
    """One text to write: its prompt's ids, the method with its values, how tokens are drawn and when it ends.

    length: 0 only where its prompt alone is wanted. stops: strings before which it ends. to_the_end: not even a stop
    token of the model ends it (`ignore_eos`). grammar: what it must be, as the setting `grammar` keeps it. stop_ids:
    more tokens that end it. logprobs: how many of the best are wanted at each place; None: no log-probabilities at all.
    of_prompt: those of the prompt, too.
    """

    prompt: tuple[int, ...]
    configuration: Configuration
    length: int
    processor: ChosenPart
    seed: int
    stops: tuple[str, ...] = ()
    to_the_end: bool = False
    grammar: str = OFF_WORD
    stop_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    of_prompt: bool = False


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request: so many `samples` of each prompt, an order each, and how its answer is told.

    include_usage: a stream ends with a chunk of counts. token_ids: ids are told beside the text. usage_by_chunk: each
    chunk has the counts so far. echoed: the text of each prompt, where answers begin with it. tokens_as_ids: tokens of
    log-probabilities are shown by their ids. form: what a chat's text is taken apart into.
    """

    kind: Literal["text", "chat"]
    orders: tuple[TextOrder, ...]
    stream: bool = False
    include_usage: bool = False
    token_ids: bool = False
    samples: int = 1
    usage_by_chunk: bool = False
    echoed: tuple[str, ...] = ()
    tokens_as_ids: bool = False
    form: AnswerForm = PLAIN


@dataclass(frozen=True, slots=True)
class ServedPiece:
    """What a round added to an answer: its ids, the text that may be told by now, and log-probabilities if wanted."""

    ids: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """An answer is whole: the text that was held back, and why it ended, `stop` or `length`."""

    text: str
    reason: str


Told = ServedPiece | AnswerEnd | ApiError


@dataclass(eq=False)
class TextJob:
    """An order, whom to tell, and its account. `tell` is called in the driver's thread and must not wait.

    cancelled: nobody waits for it any longer. recent: its last rounds, for the live page. lossless: whether its text
    has the target's distribution. arrived_s: when it came; begun_s: when it got a place; first_s, last_s: when its
    first and its last tokens were there. rows: logits `[m, V]` that its last tokens were chosen from, where their
    log-probabilities are wanted. logprobs: of all its tokens so far. of_prompt: of the prompt's.
    """

    order: TextOrder
    tell: Callable[[Told], None]
    writing: ResponseWriting
    metrics: RunMetrics = field(default_factory=RunMetrics)
    cancelled: bool = False
    lossless: bool | None = None
    recent: deque[Round] = field(default_factory=lambda: deque[Round](maxlen=_SHOWN_ROUNDS))
    arrived_s: float = field(default_factory=perf_counter)
    begun_s: float = 0.0
    first_s: float | None = None
    last_s: float | None = None
    rows: Tensor | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)
    of_prompt: tuple[TokenLogprob, ...] = ()

    def note_rows(self, logits: Tensor, round: Round) -> None:
        """Keep the rows of a round's tokens, of its raw logits `[n + 1, V]`."""
        self.rows = emitting_rows(logits, round)


class Tokens:
    """The pair's tokenizer, for one thread at a time.

    variables: what the chat template is told where a request says nothing else.
    """

    def __init__(self, engine: LocalEngine, variables: TemplateVariables = UNTOLD) -> None:
        self._engine, self._lock, self._variables = engine, Lock(), variables

    def encode(
        self, turns: Sequence[str], chat: bool, system: str | None = None, variables: TemplateVariables = UNTOLD
    ) -> list[int]:
        """See `Engine.tokenise`."""
        told = variables.over(self._variables) if chat else variables
        with self._lock:
            return self._engine.tokenise(turns, chat, system, told)

    def encode_messages(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        variables: TemplateVariables = UNTOLD,
        opens: bool = True,
    ) -> list[int]:
        """See `Pair.encode_messages`."""
        with self._lock:
            return self._engine.pair.encode_messages(messages, tools, variables.over(self._variables), opens)

    def encode_text(self, text: str, special: bool) -> list[int]:
        """Ids of a text, with the special tokens that its tokenizer puts around it, or without."""
        with self._lock:
            return list(self._engine.pair.tokenizer.encode(text, add_special_tokens=special))

    def decode(self, ids: Sequence[int]) -> str:
        """See `Engine.text`."""
        with self._lock:
            return self._engine.text(ids)

    def decode_keeping(self, marks: Collection[str]) -> Decode:
        """`decode`, but these special tokens stay in the text."""
        added = self._engine.pair.tokenizer.added_tokens_decoder
        there = {id: token.content for id, token in added.items() if token.special and token.content in marks}
        return partial(self._decode_keeping, there) if there else self.decode

    def _decode_keeping(self, marks: Mapping[int, str], ids: Sequence[int]) -> str:
        parts = groupby(ids, marks.get)
        return "".join(mark * len([*some]) if mark else self.decode([*some]) for mark, some in parts)

    def decode_all(self, ids: Sequence[int]) -> str:
        """See `LocalEngine.all_text`."""
        with self._lock:
            return self._engine.all_text(ids)

    def names(self, ids: Sequence[int]) -> list[str]:
        """The entries of the vocabulary."""
        with self._lock:
            return list(self._engine.pair.tokenizer.convert_ids_to_tokens(list(ids)))

    def bytes_of(self, token: int) -> bytes:
        """The bytes that a token stands for."""
        with self._lock:
            return self._engine.pair.bytes_of(token)

"""What a request comes to: texts to write, whom to tell of each, what is told, and what the live page shows."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Literal

from ablation.plan.grid import Configuration
from sampling.grammar.spelling import OFF_WORD
from sampling.measure.answer import Answer, Decode, Span
from sampling.measure.metrics import RunMetrics
from sampling.methods.chat_template import UNTOLD, TemplateVariables
from sampling.pair.local_engine import LocalEngine
from serve.errors import ApiError
from serve.writing import ResponseWriting
from utils.events import Round
from utils.parameter import ChosenPart

_SHOWN_ROUNDS = 24


@dataclass(frozen=True, slots=True)
class TextOrder:
    """One text to write: its prompt's ids, the method with its values, how tokens are drawn and when it ends.

    stops: strings before which it ends. to_the_end: not even a stop token ends it (`ignore_eos`). grammar: what it
    must be, as the setting `grammar` keeps it.
    """

    prompt: tuple[int, ...]
    configuration: Configuration
    length: int
    processor: ChosenPart
    seed: int
    stops: tuple[str, ...] = ()
    to_the_end: bool = False
    grammar: str = OFF_WORD


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request: one order a prompt, and how its answer is told.

    include_usage: a stream ends with a chunk of counts. token_ids: ids are told beside the text.
    """

    kind: Literal["text", "chat"]
    orders: tuple[TextOrder, ...]
    stream: bool = False
    include_usage: bool = False
    token_ids: bool = False


@dataclass(frozen=True, slots=True)
class ServedPiece:
    """What a round added to an answer: its ids, and the text that may be told by now."""

    ids: tuple[int, ...]
    text: str


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
    has the target's distribution.
    """

    order: TextOrder
    tell: Callable[[Told], None]
    writing: ResponseWriting
    metrics: RunMetrics = field(default_factory=RunMetrics)
    cancelled: bool = False
    lossless: bool | None = None
    recent: deque[Round] = field(default_factory=lambda: deque[Round](maxlen=_SHOWN_ROUNDS))


@dataclass(frozen=True, slots=True)
class ServedSlot:
    """A text under way, for the live page: what it has brought, and its last words by who wrote them."""

    method: str
    prompt_tokens: int
    new_tokens: int
    rounds: int
    drafted: int
    accepted: int
    tail: tuple[Span, ...]


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

    def decode(self, ids: Sequence[int]) -> str:
        """See `Engine.text`."""
        with self._lock:
            return self._engine.text(ids)


def slot_of(job: TextJob, decode: Decode) -> ServedSlot:
    """What the live page shows of a text."""
    metrics, answer = job.metrics, Answer(decode)
    for round in tuple(job.recent):
        answer.add(round)
    return ServedSlot(
        job.order.configuration.name,
        metrics.prompt_tokens,
        metrics.new_tokens,
        metrics.rounds,
        metrics.drafted,
        metrics.accepted,
        (*answer.old, *answer.last),
    )

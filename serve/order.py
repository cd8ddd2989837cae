"""What a request comes to once it is read: texts to write, and how."""

from dataclasses import dataclass
from typing import Literal

from ablation.plan.grid import Configuration
from utils.parameter import ChosenPart


@dataclass(frozen=True, slots=True)
class TextOrder:
    """One text to write: its prompt's ids, the method with its values, how tokens are drawn and when it ends.

    stops: strings before which it ends. to_the_end: not even a stop token ends it (`ignore_eos`).
    """

    prompt: tuple[int, ...]
    configuration: Configuration
    length: int
    processor: ChosenPart
    seed: int
    stops: tuple[str, ...] = ()
    to_the_end: bool = False


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

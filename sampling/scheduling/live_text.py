"""A text of a batch: what is asked, and what it is while it is in progress."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from egag.cost_model import CostModel
from sampling.forward.prefixes.use import Prefixes
from sampling.forward.sharing import SlotRunner
from sampling.scheduling.reading import Reading
from sampling.sequence import Sequence
from utils.errors import UserError
from utils.events import FailedText, Round
from utils.logits_processor import LogitsProcessor

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """A text to generate. The random draws follow from `seed` and the prompt, so no other text changes them.

    reuse: the most rows of the prompt that may be taken over from the last sequence of the same slot. Only rows with
    equal tokens are taken over, and their hidden states are not computed again. price: the measured cost of its rounds
    when it runs alone; None if not measured. arrives_s: the time of arrival in seconds of the batch's clock; None means
    that it arrives when a slot is free. tag: the caller's own name for the request. watch: is called with the target's
    raw logits `[n + 1, V]` of each round, which hold until the next one, and the round. error: why it cannot be asked,
    which `admit` raises.
    """

    prompt: list[int]
    processor: LogitsProcessor
    max_new_tokens: int
    seed: int
    stop: Collection[int] = ()
    reuse: int = 0
    price: CostModel | None = None
    arrives_s: float | None = None
    tag: Any = None
    watch: Callable[[Tensor, Round], None] | None = None
    error: Exception | None = None


@dataclass(slots=True, eq=False)
class LiveText:
    """A text in progress, or a text that failed with an `error`. A text whose prompt failed has no sequence.

    reading: its prompt, while that is read in chunks. waited_s: seconds since its last round that were spent on the
    prompts of other texts, or without its rows. held: it has a place and no rows, for there is no room yet.
    preemptions: how often it was put back, to be read again from its tokens.
    """

    request: Request
    slot: SlotRunner = field(init=False)
    seq: Sequence = field(init=False)
    reading: Reading | None = None
    waited_s: float = 0.0
    held: bool = False
    preemptions: int = 0
    error: Exception | None = None

    def resume(self, prefixes: Prefixes | None, layers: tuple[int, ...]) -> int:
        """Take over rows of the prompt that its place still has, or that a tree has, whichever are more; how many."""
        tokens = self.seq.tokens[:-1]
        there = self.slot.resume(tokens, self.request.reuse)
        self.seq.use_prefixes(prefixes, layers)
        return there if self.seq.prefix is None else self.seq.prefix.resume(tokens, there)

    def take_in(self, round: Round, shares: dict[str, float]) -> None:
        """Show a round to whom it concerns: who watches, and at the end of the text its rule."""
        if self.request.watch is not None and self.seq.logits is not None:
            self.request.watch(self.seq.logits, round)
        self.seq.last = round.timed(shares)
        if self.seq.reason is not None:
            self.seq.rule.update(self.seq.last)

    def put_back(self, now_s: float) -> None:
        """Give up all rows. Its tokens, its rule and what its drafter learnt stay."""
        if self.reading is None:
            again = tuple(drafter for drafter in self.seq.drafter_state if drafter.keeps_rows)
            self.reading = Reading(self.seq, now_s, now_s, 0.0, chunks=0, again=again)
        else:
            self.reading.parts.clear()
        self.seq.release_rows()
        self.slot.wipe()
        self.held, self.preemptions = True, self.preemptions + 1

    def fail(self, error: Exception) -> FailedText:
        """Keep an error, without its traceback, which would keep rows; what is told of it."""
        if not isinstance(error, UserError):
            _log.error("a text of a batch failed", exc_info=error)
        self.error = error.with_traceback(None)
        return FailedText.of(error)

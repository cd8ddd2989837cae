"""Batched decoding: many texts share the rounds of the decode loop, with admission, scheduling and a share of the time.

A round is one call of `sampling.loop.step`. A sequence has the same tokens, rounds and random draws as it has alone.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from egag.cost_model import ASSUMED_COSTS, CostModel
from egag.length_rule import LengthRule
from sampling.drafter import Drafter
from sampling.forward.runner import feed
from sampling.forward.sharing import SharedModel, SlotRunner
from sampling.loop import finish, step
from sampling.sequence import Sequence
from sampling.start import begin
from sampling.verify.verifier import Verifier
from sampling.verify.verify import EagerVerification
from utils.device.spare import attempt
from utils.device.timing import CAPTURE, PhaseClock
from utils.errors import UserError
from utils.events import Event, FailedText, Finished, Prefilled, Round
from utils.logits_processor import LogitsProcessor
from utils.parameter import MOST_DRAFTS

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

    waited_s: seconds since its last round that were spent on the prefill of other texts.
    """

    request: Request
    slot: SlotRunner = field(init=False)
    seq: Sequence = field(init=False)
    waited_s: float = 0.0
    error: Exception | None = None


@dataclass
class Batch:
    """At most `size` sequences that share the forwards of one target and one drafter.

    `admit` prefills a prompt, `play` runs one round of all live texts, `drop` gives up a text. An error in one text
    ends that text only. rule: makes a draft-length rule for each text. learnt: is called with each finished sequence.
    The drafter and `learnt` see finished sequences in the order of admission. plain: the cost of the target's forwards,
    by which the time of a round is divided. most_drafts: the most drafts of a path in one round. now_s: the batch's
    clock in seconds. The clock counts rounds and prefills only.
    """

    target: SharedModel
    drafter: Drafter
    rule: Callable[[], LengthRule]
    verifier: Verifier
    size: int
    learnt: Callable[[Sequence], None] = lambda seq: None
    plain: CostModel = ASSUMED_COSTS
    most_drafts: int = MOST_DRAFTS
    live: list[LiveText] = field(default_factory=list)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UserError(f"batch {self.size} given; expected 1 or more")
        self._free = [self.target.another() for _ in range(self.size)][::-1]
        self._clock, self._verification = PhaseClock(self.target.device), EagerVerification(self.verifier)
        self._unlearnt = deque[LiveText]()

    @property
    def full(self) -> bool:
        """Whether no slot is free."""
        return not self._free

    @torch.inference_mode()
    def admit(self, request: Request) -> tuple[LiveText, Prefilled]:
        """Begin a text with its prefill, run alone.

        Raises `UserError` as `decode` does; the batch is then unchanged.
        """
        if request.error is not None:
            raise request.error
        live = LiveText(request)
        live.slot, rule = self._free[-1], self.rule()
        if request.price is not None:
            rule.use_cost_model(request.price)
        self._clock.start()
        ends = request.max_new_tokens, request.stop, request.seed
        live.seq = begin(live.slot, rule, request.processor, request.prompt, *ends)
        live.seq.most_drafts = self.most_drafts
        try:
            start = live.slot.resume(live.seq.tokens[:-1], request.reuse)
            live.seq.hidden = feed(live.slot, live.seq.tokens[start:-1], self.drafter.needs_hidden)
            self.drafter.begin(live.seq)
        except Exception:
            live.slot.wipe()
            raise
        self._clock.lap("prefill")
        taken = self._clock.stop()
        seconds = sum(taken.values())
        arrived_s = self.now_s if request.arrives_s is None else request.arrives_s
        begun_s = max(self.now_s, arrived_s)
        self.now_s = begun_s + seconds
        for other in self.live:
            other.waited_s += seconds
        self._free.pop()
        self.live.append(live)
        self._unlearnt.append(live)
        told = Prefilled(len(request.prompt), taken["prefill"], begun_s - arrived_s, capture_s=taken[CAPTURE])
        return live, told

    @torch.inference_mode()
    def play(self) -> list[tuple[LiveText, Round | FailedText]]:
        """Run one round of every live text, each with the seconds of the whole batch. Finished texts leave.

        A text of an earlier round may fail as well, if the drafter cannot learn from it.
        """
        shared = [(live, attempt(self._share, live)) for live in self.live]
        failed = [(live, self._fail(live, error)) for live, error in shared if error is not None]
        if not self.live:
            return [*failed]
        clock = self._clock
        clock.start()
        rounds, drafting_s = step([live.seq for live in self.live], self.drafter, self._verification, clock)
        clock.lap("draft")
        return [*failed, *self._played(rounds, clock.stop(), drafting_s)]

    def drop(self, live: LiveText) -> None:
        """Give up a text: its slot becomes free, and the drafter learns nothing from it."""
        self._unlearnt.remove(live)
        self._leave(live)
        live.seq.drafter_state.clear()
        if live.error is not None or not live.seq.rounds:  # only a verdict has checked that the rows are finite
            live.slot.wipe()

    def _share(self, live: LiveText) -> None:
        """Set how many sequences share a round, for a sequence and its rule, if the number has changed."""
        count = len(self.live)
        if live.seq.live != count:
            live.seq.live = count
            if live.request.price is not None:
                live.seq.rule.use_cost_model(live.request.price.among(count))

    def _played(
        self, rounds: list[Round | Exception], seconds: dict[str, float], drafting_s: list[float]
    ) -> list[tuple[LiveText, Round | FailedText]]:
        """The rounds with their times. Each rule learns its sequence's share of the times."""
        count, played = len(self.live), list[tuple[LiveText, Round | FailedText]]()
        self.now_s += sum(seconds.values())
        for live, round, shares in zip([*self.live], rounds, self._shares(rounds, seconds, drafting_s), strict=True):
            taken = attempt(self._take_in, live, round, shares)
            if taken is not None:
                played.append((live, self._fail(live, taken)))
                continue
            assert isinstance(round, Round)
            played.append((live, round.timed(seconds, count, live.waited_s)))
            live.waited_s = 0.0
            if live.seq.reason is not None:
                self._leave(live)
        while self._unlearnt and self._unlearnt[0].seq.reason is not None:
            live = self._unlearnt.popleft()
            if (error := attempt(self._learn, live.seq)) is not None:
                live.seq.drafter_state.clear()
                played.append((live, _failed(live, error)))
        return played

    def _take_in(self, live: LiveText, round: Round, shares: dict[str, float]) -> None:
        """Show a round to whom it concerns: who watches, and at the end of the text its rule."""
        if live.request.watch is not None and live.seq.logits is not None:
            live.request.watch(live.seq.logits, round)
        live.seq.last = round.timed(shares)
        if live.seq.reason is not None:
            live.seq.rule.update(live.seq.last)

    def _learn(self, seq: Sequence) -> None:
        finish(seq, self.drafter)
        self.learnt(seq)

    def _shares(
        self, rounds: list[Round | Exception], seconds: dict[str, float], drafting: list[float]
    ) -> Iterator[dict[str, float]]:
        """Each sequence's share of the seconds of a round.

        Drafting is shared by the host time of each sequence, the target's forward by the predicted cost of its drafts.
        With equal shares every sequence would pay for the drafts of the others, and drafts would look free.
        """
        drafts = [0 if isinstance(round, Exception) else len(round.drafts) for round in rounds]
        price = self.plain.among(len(rounds))
        verify_s = {count: price.verify_s(count) for count in set(drafts)}
        rows = [verify_s[count] for count in drafts]
        all_rows, all_drafting = sum(rows), sum(drafting) or 1.0
        for own_rows, own_drafting in zip(rows, drafting, strict=True):
            yield {
                "draft": seconds["draft"] * own_drafting / all_drafting,
                "verify": seconds["verify"] * own_rows / all_rows,
                "other": seconds["other"] / len(rounds),
                CAPTURE: seconds[CAPTURE] / len(rounds),
            }

    def _fail(self, live: LiveText, error: Exception) -> FailedText:
        """Give up a text because of an error. No NaN of it stays in the cache."""
        failed = _failed(live, error)
        self.drop(live)
        return failed

    def _leave(self, live: LiveText) -> None:
        live.slot.held = live.seq.tokens[: live.slot.length]
        live.seq.release_rows()
        live.seq.logits = None  # a view of the logits of the whole batch; a reference to the view would keep them all
        self.live.remove(live)
        self._free.append(live.slot)


def _failed(live: LiveText, error: Exception) -> FailedText:
    """What is told of a text's error, whose traceback would keep its rows."""
    if not isinstance(error, UserError):
        _log.error("a text of a batch failed", exc_info=error)
    live.error = error.with_traceback(None)
    return FailedText.of(error)


def decode_many(batch: Batch, requests: Iterable[Request]) -> Iterator[tuple[LiveText, Event]]:
    """The events of every request, in the form that `decode` gives them, each with its text.

    The next request is taken from `requests` when a slot is free, after the `Finished` event of the text before it, or
    after a round if none was there yet. With no live text, the clock moves on to the next arrival. The seconds of a
    round are those of the whole batch. An error in one text gives its `FailedText` event.
    """
    waiting, request = iter(requests), None
    while True:
        while not batch.full:
            request = next(waiting, None) if request is None else request
            if request is None or (batch.live and (request.arrives_s or 0.0) > batch.now_s):
                break
            admitted = attempt(batch.admit, request)
            if isinstance(admitted, Exception):
                yield (refused := LiveText(request)), _failed(refused, admitted)
            else:
                yield admitted
            request = None
        if not batch.live:
            return
        for live, round in batch.play():
            yield live, round
            if live.error is None and live.seq.reason is not None:
                yield live, Finished(live.seq.reason, live.seq.new_tokens)

"""Batched decoding: many texts share the rounds of the decode loop, with admission, scheduling and a share of the time.

A round is one call of `sampling.loop.step`. A sequence has the same tokens, rounds and random draws as it has alone,
unless its drafter asks the clock of the batch (`Sequence.shared_state`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from egag.cost_model import ASSUMED_COSTS, CostModel
from egag.length_rule import LengthRule
from sampling.drafter import Drafter
from sampling.forward.prefixes.use import Prefixes
from sampling.forward.runner import PREFILL_CHUNK, feed
from sampling.forward.sharing import SharedModel
from sampling.loop import finish, step
from sampling.rounds import shares_of
from sampling.scheduling.live_text import LiveText, Request
from sampling.scheduling.memory_room import MemoryRoom
from sampling.scheduling.reading import (
    Reading,
    begin_behind,
    begin_drafting,
    charge,
    next_chunks,
    read_together,
    reads_in_chunks,
    with_prefixes,
)
from sampling.sequence import Sequence
from sampling.start import begin
from sampling.verify.verifier import Verifier
from sampling.verify.verify import EagerVerification
from utils.device.spare import attempt
from utils.device.timing import CAPTURE, PhaseClock
from utils.errors import UserError
from utils.events import Event, FailedText, Finished, Prefilled, Round
from utils.parameter import MOST_DRAFTS


@dataclass
class Batch:
    """At most `size` sequences that share the forwards of one target and one drafter.

    `admit` gives a text a place, `play` runs one round of all live texts, `drop` gives up a text. An error in one text
    ends that text only. rule: makes a draft-length rule for each text. learnt: is called with each finished sequence.
    The drafter and `learnt` see finished sequences in the order of admission. plain: the cost of the target's forwards,
    by which the time of a round is divided. most_drafts: the most drafts of a path in one round. prefill_chunk: the
    most rows of prompts that a round reads, in all; 0 = `admit` reads each prompt alone. texts: all that have a place.
    live: those whose prompt is in the caches. now_s: the batch's clock in seconds. It counts rounds and prefills only.
    prefixes: the trees of prefixes that its texts use. room: what its texts must fit in; None = memory is not bounded.
    """

    target: SharedModel
    drafter: Drafter
    rule: Callable[[], LengthRule]
    verifier: Verifier
    size: int
    learnt: Callable[[Sequence], None] = lambda seq: None
    plain: CostModel = ASSUMED_COSTS
    most_drafts: int = MOST_DRAFTS
    prefill_chunk: int = 0
    texts: list[LiveText] = field(default_factory=list)
    live: list[LiveText] = field(default_factory=list)
    now_s: float = 0.0
    prefixes: Prefixes | None = None
    room: MemoryRoom | None = None

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UserError(f"batch {self.size} given; expected 1 or more")
        self._free = [self.target.another() for _ in range(self.size)][::-1]
        self._clock, self._verification = PhaseClock(self.target.device), EagerVerification(self.verifier)
        self._unlearnt, self._shared_state = deque[LiveText](), dict[Any, Any]()

    @property
    def full(self) -> bool:
        """Whether no slot is free."""
        return not self._free

    @torch.inference_mode()
    def admit(self, request: Request) -> tuple[LiveText, Prefilled | None]:
        """Give a text a place. `play` reads its prompt, or it is read here, alone, and the event says so.

        Raises `UserError` as `decode` does; the batch is then unchanged.
        """
        if request.error is not None:
            raise request.error
        chunked = self._chunk_rows > 0 and reads_in_chunks(self.target)
        self._clock.start()
        live = self._begin(request, read=not chunked)
        self._clock.lap("draft")
        taken = self._clock.stop()
        came_s, own_s = self.now_s if request.arrives_s is None else request.arrives_s, sum(taken.values())
        spent = taken["prefill"], taken["draft"], taken[CAPTURE]
        reading = Reading(live.seq, came_s, max(self.now_s, came_s), *spent)
        self.now_s = reading.begun_s + own_s
        for other in self.live:
            other.waited_s += own_s
        self._free.pop()
        self.texts.append(live)
        self._unlearnt.append(live)
        if chunked:
            live.reading, reading.chunks, live.held = reading, 0, self.room is not None
            return live, None
        self.live.append(live)
        return live, reading.told(self.now_s)

    @torch.inference_mode()
    def play(self) -> list[tuple[LiveText, Round | Prefilled | FailedText]]:
        """Run one round of every live text, each with the seconds of the whole batch. Finished texts leave.

        The round's forward also reads parts of prompts. A text whose prompt is in is live from the next round on. With
        no live text a forward reads prompts alone. A text of an earlier round may fail as well, if the drafter cannot
        learn from it.
        """
        self._make_room()
        shared = [(live, attempt(self._share, live)) for live in self.live]
        failed = [(live, self._fail(live, error)) for live, error in shared if error is not None]
        clock, readings = self._clock, [live.reading for live in self.texts if live.reading and not live.held]
        chunks = next_chunks(with_prefixes(readings), self._chunk_rows, len(self.live))
        clock.start()
        rounds, drafting_s = list[Round | Exception](), list[float]()
        if seqs := [live.seq for live in self.live]:
            rounds, drafting_s = step(seqs, self.drafter, self._verification, clock, chunks)
        else:
            read_together(chunks, self.drafter.needs_hidden)
        clock.lap("draft" if seqs else "verify")
        if begun := begin_drafting(readings, self.drafter):
            clock.lap("prefill")
        seconds = clock.stop()
        self.now_s += sum(seconds.values())
        prompts_s = charge(self.plain, rounds, chunks, [*begun], seconds)
        for live in self.texts:
            live.waited_s += prompts_s if live in self.live else sum(seconds.values()) if live.preemptions else 0.0
        return [*failed, *self._played(rounds, seconds, drafting_s), *self._joined(begun)]

    def drop(self, live: LiveText) -> None:
        """Give up a text: its slot becomes free, and the drafter learns nothing from it."""
        self._unlearnt.remove(live)
        self._leave(live)
        live.seq.drafter_state.clear()
        if live.error is not None or not live.seq.rounds:  # only a verdict has checked that the rows are finite
            live.slot.wipe()

    def _begin(self, request: Request, read: bool) -> LiveText:
        """A text in the place that is free next, with the rows that are still there. read: read the others, too."""
        live = LiveText(request)
        live.slot, rule = self._free[-1], self.rule()
        if request.price is not None:
            rule.use_cost_model(request.price)
        ends = request.max_new_tokens, request.stop, request.seed
        live.seq = begin(live.slot, rule, request.processor, request.prompt, *ends)
        live.seq.most_drafts, live.seq.shared_state = self.most_drafts, self._shared_state
        try:
            if self.room is None:
                start = live.resume(self.prefixes, self.drafter.needs_hidden)
            else:
                self.room.check(live.seq)
            states = feed(live.slot, live.seq.tokens[start:-1], self.drafter.needs_hidden) if read else {}
            self._clock.lap("prefill")
            if read:
                begin_behind(live.seq, states, self.drafter)
        except Exception:
            live.seq.release_rows(failed=True)
            live.slot.wipe()
            raise
        return live

    @property
    def _chunk_rows(self) -> int:
        """Rows of prompts in a round. Where memory is bounded prompts are always read so, as texts are put back."""
        return self.prefill_chunk or (0 if self.room is None else PREFILL_CHUNK)

    def _make_room(self) -> None:
        """Put back the youngest texts while the next round may not fit; then let in those that fit, in order."""
        if self.room is None:
            return
        inside = [live for live in self.texts if not live.held]
        while inside and not self.room.holds([live.seq for live in inside]):
            live = inside.pop()
            live.put_back(self.now_s)
            self.live = [other for other in self.live if other is not live]
        for live in [live for live in self.texts if live.held]:
            if not self.room.holds([other.seq for other in (*inside, live)], len(inside)):
                return
            live.held = False
            if live.reading is not None and live.reading.again is None:
                live.reading.begun_s = max(self.now_s, live.reading.arrived_s)
            live.resume(self.prefixes, self.drafter.needs_hidden)
            inside.append(live)

    def _share(self, live: LiveText) -> None:
        """Set how many sequences share a round, for a sequence and its rule, if the number has changed."""
        count = len(self.live)
        if live.seq.live != count:
            live.seq.live = count
            if live.request.price is not None:
                live.seq.rule.use_cost_model(live.request.price.among(count))

    def _joined(self, begun: dict[Reading, Exception | None]) -> Iterator[tuple[LiveText, Prefilled | FailedText]]:
        """The texts whose prompts are in: they are live from now on, but for those whose drafter has failed."""
        for live in [*self.texts]:
            if (reading := live.reading) is None or reading not in begun:
                continue
            if error := begun[reading]:
                yield live, self._fail(live, error)
            else:
                live.reading = None
                self.live.append(live)
                if reading.again is None:
                    yield live, reading.told(self.now_s)

    def _played(
        self, rounds: list[Round | Exception], seconds: dict[str, float], drafting_s: list[float]
    ) -> list[tuple[LiveText, Round | FailedText]]:
        """The rounds with their times. Each rule learns its sequence's share of the times."""
        count, played = len(self.live), list[tuple[LiveText, Round | FailedText]]()
        for live, round, shares in zip(
            [*self.live], rounds, shares_of(rounds, seconds, drafting_s, self.plain), strict=True
        ):
            error = attempt(live.take_in, round, shares)
            if error is not None:
                played.append((live, self._fail(live, error)))
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
                played.append((live, live.fail(error)))
        return played

    def _learn(self, seq: Sequence) -> None:
        finish(seq, self.drafter)
        self.learnt(seq)

    def _fail(self, live: LiveText, error: Exception) -> FailedText:
        """Give up a text because of an error. No NaN of it stays in the cache."""
        failed = live.fail(error)
        self.drop(live)
        return failed

    def _leave(self, live: LiveText) -> None:
        live.slot.held = live.seq.tokens[: live.slot.length]
        live.seq.release_rows(failed=live.error is not None)
        if self.room is not None:
            live.slot.wipe()  # others may have its blocks now
        live.seq.logits = None  # a view of the logits of the whole batch; a reference to the view would keep them all
        live.reading = None
        self.texts, self.live = ([one for one in some if one is not live] for some in (self.texts, self.live))
        self._free.append(live.slot)


def decode_many(batch: Batch, requests: Iterable[Request]) -> Iterator[tuple[LiveText, Event]]:
    """The events of every request, in the form that `decode` gives them, each with its text.

    The next request is taken from `requests` when a slot is free, after the `Finished` event of the text before it, or
    after a round if none was there yet. A text is `Prefilled` before its first round. With no text, the clock moves on
    to the next arrival. A round has the whole batch's seconds. An error in a text gives its `FailedText` event.
    """
    waiting, request = iter(requests), None
    while True:
        while not batch.full:
            request = next(waiting, None) if request is None else request
            if request is None or (batch.texts and (request.arrives_s or 0.0) > batch.now_s):
                break
            admitted = attempt(batch.admit, request)
            if isinstance(admitted, Exception):
                yield (refused := LiveText(request)), refused.fail(admitted)
            else:
                live, read = admitted
                if read is not None:
                    yield live, read
            request = None
        if not batch.texts:
            return
        for live, event in batch.play():
            yield live, event
            if live.error is None and live.seq.reason is not None:
                put_back = live.preemptions if batch.room else None
                yield live, Finished(live.seq.reason, live.seq.new_tokens, preempted=put_back)

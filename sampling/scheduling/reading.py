"""Prompts that are read in chunks, beside the rounds of other texts: what a forward takes of them, and what they cost.

Chunks of several prompts share a forward; a long prompt takes several (Sarathi-Serve, arXiv 2403.02310).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from egag.cost_model import CostModel
from sampling import sequence
from sampling.drafter import Drafter
from sampling.forward.runner import PREFILL_CHUNK
from sampling.forward.sharing import SequenceSlot, SharedModel, SharedRunner
from sampling.handover import taken_over
from utils.device.sent import sent
from utils.device.spare import attempt, note_shared_failure
from utils.device.timing import CAPTURE
from utils.events import Prefilled, Round
from utils.token_ids import alike

_BURST = 4
"""Prompts that wait, so that all others are better read at once."""


def reads_in_chunks(target: SharedModel) -> bool:
    """Whether a target can read parts of prompts beside the rounds of others. If not, it reads each prompt alone."""
    return isinstance(target, SharedRunner)


@dataclass(slots=True, eq=False)
class Reading:
    """A prompt that is being read.

    arrived_s, begun_s: by the batch's clock, when its text came and when it was admitted. read_s, draft_s: its own
    share of the time since then, of the target and of the drafter, without capture_s, that of captures. chunks:
    forwards that read a part of it; None = it was read alone. parts: the hidden states of each part by layer, `[n, H]`.
    again: of a text that was put back, the drafters that lost their rows; None = the drafter begins for the first time.
    error: why a part could not be read.
    """

    seq: sequence.Sequence
    arrived_s: float
    begun_s: float
    read_s: float
    draft_s: float = 0.0
    capture_s: float = 0.0
    chunks: int | None = None
    parts: list[dict[int, Tensor]] = field(default_factory=list)
    again: tuple[Drafter, ...] | None = None
    error: Exception | None = None

    @property
    def slot(self) -> SequenceSlot:
        """Its rows among those of all texts."""
        assert isinstance(self.seq.runner, SequenceSlot), "see `reads_in_chunks`"
        return self.seq.runner

    @property
    def left(self) -> int:
        """How many tokens of the prompt are not read yet. The last token belongs to the first round."""
        return len(self.seq.tokens) - 1 - self.slot.length

    def keep(self, states: dict[int, Tensor]) -> None:
        """Count a part that was read, with its hidden states."""
        self.chunks = 1 + (self.chunks or 0)
        if states:
            self.parts.append(states)

    def begin(self, drafter: Drafter) -> None:
        """The drafter begins with the states of the whole prompt."""
        parts, self.parts = self.parts, []
        states = {layer: torch.cat([part[layer] for part in parts]) for layer in parts[0]} if parts else {}
        begin_behind(self.seq, states, *((drafter,) if self.again is None else self.again))

    def told(self, now_s: float) -> Prefilled:
        """The event of a prompt that is in the caches at this time of the batch's clock."""
        spent_s = self.read_s + self.draft_s
        told = Prefilled(
            len(self.seq.encoder_ids) or self.seq.prompt_length,
            spent_s,
            self.begun_s - self.arrived_s,
            capture_s=self.capture_s,
            waited_s=0.0 if self.chunks is None else max(0.0, now_s - self.begun_s - spent_s - self.capture_s),
            chunks=self.chunks,
        )
        return taken_over(told, self.seq, self.read_s)


def begin_behind(seq: sequence.Sequence, states: dict[int, Tensor], *drafters: Drafter) -> None:
    """Let drafters begin behind a prompt that was read, with the states of the rows that were read now."""
    seq.hidden = states if seq.prefix is None else seq.prefix.whole(states)
    for drafter in drafters:
        drafter.begin(seq)
    seq.keep_prompt()


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next `count` tokens of a prompt, as a part of one forward."""

    reading: Reading
    count: int

    @property
    def tokens(self) -> list[int]:
        """Their ids, before that forward."""
        start = self.reading.slot.length
        return self.reading.seq.tokens[start : start + self.count]


def next_chunks(readings: Sequence[Reading], rows: int, live: int) -> list[Chunk]:
    """What the next forward reads, in the order of admission: at most `PREFILL_CHUNK` rows of a prompt.

    rows: in all, beside the rounds of so many live texts, or two for each of them if that is more. So a round takes
    three times as long at most, where rows are what takes time. In a burst, `PREFILL_CHUNK` if that is more: where more
    prompts wait than texts are live, or `_BURST` and a quarter as many.
    """
    waiting = len(readings)
    burst = live < waiting or (waiting >= _BURST and live < 4 * waiting)
    chunks, rows = list[Chunk](), max(rows, PREFILL_CHUNK if burst else 2 * live)
    for reading in readings:
        count = min(rows, reading.left, PREFILL_CHUNK)
        if count > 0:
            chunks.append(Chunk(reading, count))
            rows -= count
    return chunks


def with_prefixes(readings: Sequence[Reading]) -> list[Reading]:
    """The prompts that are read now, in order. One of which a block or more is being read by another waits for that.

    Then the tree has these rows, and it goes on behind them: see `PrefixUse`.
    """
    going = list[Reading]()
    for reading in readings:
        prefix = reading.seq.prefix
        if prefix is not None and reading.chunks == 0:
            known, wanted = reading.slot.length + prefix.tree.store.grain, reading.seq.tokens[:-1]
            if any(alike(wanted, other.seq.tokens[:-1]) >= known for other in going):
                continue
            prefix.resume(wanted, reading.slot.length)
        going.append(reading)
    return going


def begin_drafting(readings: Sequence[Reading], drafter: Drafter) -> dict[Reading, Exception | None]:
    """Let the drafter begin where the whole prompt is read; the error of each text at which it fails."""
    done = [reading for reading in readings if reading.error or not reading.left]
    return {reading: reading.error or attempt(reading.begin, drafter) for reading in done}


def ids_of(chunks: Sequence[Chunk], device: torch.device) -> Tensor:
    """The ids of chunks, one behind the other, `[N]`."""
    return sent([token for chunk in chunks for token in chunk.tokens], device)


def keep_parts(chunks: Sequence[Chunk], hidden: dict[int, Tensor]) -> None:
    """Give each prompt copies of its states, of those of the last rows of a forward that read these chunks."""
    start = -sum(chunk.count for chunk in chunks)
    for chunk in chunks:
        stop = start + chunk.count
        chunk.reading.keep({layer: states[start : stop or None].clone() for layer, states in hidden.items()})
        start = stop


def read_alone(chunks: Sequence[Chunk], hidden: Sequence[int]) -> None:
    """A forward over chunks of prompts where no text has a round."""
    if chunks:
        owner = chunks[0].reading.slot.owner
        rows = [chunk.reading.slot.prompt_rows(chunk.count) for chunk in chunks]
        keep_parts(chunks, owner.run_flat(rows, ids_of(chunks, owner.device), hidden, [0] * len(rows)).hidden)


def read_together(chunks: Sequence[Chunk], hidden: Sequence[int]) -> None:
    """The same; where that fails, each by itself."""
    if isinstance(error := attempt(read_alone, chunks, hidden), Exception):
        note_shared_failure("forward over prompts", error)
        read_each(chunks, hidden)


def read_each(chunks: Sequence[Chunk], hidden: Sequence[int]) -> None:
    """A forward for each chunk; one that fails leaves its error with its prompt."""
    for chunk in chunks:
        chunk.reading.error = attempt(read_alone, [chunk], hidden)


def share_of_prompts(price: CostModel, rounds: Sequence[Round | Exception], chunks: Sequence[Chunk]) -> float:
    """The share of a forward's time that belongs to the rows of prompts.

    Rounds pay what their rows are predicted to cost without the prompts. So drafts cost as much beside a prompt as
    elsewhere.
    """
    rows = sum(1 if isinstance(round, Exception) else 1 + len(round.drafts) for round in rounds)
    more = sum(chunk.count for chunk in chunks)
    if not rows or not more:
        return float(not rows)
    without, together = price.verify_s(rows - 1), price.verify_s(rows + more - 1)
    return 1.0 - without / together if 0.0 < without < together else more / (rows + more)


def charge(
    price: CostModel,
    rounds: Sequence[Round | Exception],
    chunks: Sequence[Chunk],
    begun: Sequence[Reading],
    seconds: dict[str, float],
) -> float:
    """Take from the phases of a round what its prompts cost, and let each pay its part; the seconds of all prompts.

    A chunk pays for its rows. begun: prompts that the drafter has read in the phase "prefill".
    """
    forward_s, drafter_s = seconds["verify"] * share_of_prompts(price, rounds, chunks), seconds.pop("prefill", 0.0)
    seconds["verify"] -= forward_s
    rows, capture_s = sum(chunk.count for chunk in chunks), 0.0 if rounds else seconds[CAPTURE]
    for chunk in chunks:
        chunk.reading.read_s += forward_s * chunk.count / rows
        chunk.reading.capture_s += capture_s * chunk.count / rows
    for reading in begun:
        reading.draft_s += drafter_s / len(begun)
    return forward_s + drafter_s

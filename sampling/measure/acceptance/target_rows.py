"""What the target says at each place of a text, under a processor."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.runner import Runner
from sampling.measure.acceptance.reading import BLOCK, GivenText, TextReading
from sampling.processors.with_text import changes_of, rows_of
from sampling.proposal import Proposal
from utils.logits_processor import LogitsProcessor
from utils.numbers.argmax import argmax


class PlaceProcessor:
    """A processor at the places of one text: what it makes of a row depends on the text before."""

    def __init__(
        self, processor: LogitsProcessor, text: GivenText, vocab_size: int, device: torch.device, stop: Collection[int]
    ) -> None:
        self._rows, self._ids, self._begin = rows_of(processor), text.ids, len(text.prompt)
        self._changes = changes_of(processor, text.prompt, vocab_size, device, stop)
        self._size = vocab_size
        self.greedy = processor.greedy

    def changed(self, logits: Tensor, block: int, start: int) -> Tensor:
        """Logits `[m, V]` of the places from `start` on, changed by the text before each. block: a place not behind."""
        logits = logits[:, : self._size]
        if self._changes is None:
            return logits
        begin, end = self._begin + block, self._begin + start + len(logits) - 1
        between = torch.tensor(self._ids[begin:end], dtype=torch.long, device=logits.device)
        padded = F.pad(logits, (0, 0, start - block, 0))
        return self._changes.of_round(self._ids[:begin], Proposal(between), padded)[start - block :]

    def probabilities(self, logits: Tensor) -> Tensor:
        """Of changed logits."""
        return self._rows(logits)


@dataclass(frozen=True, slots=True)
class TargetRows:
    """Places `start` to `stop` of a text, and the target's rows from `start` up to the depth of drafts behind them.

    best: `[m]`, the target's most likely token. probs: `[m, V]`, its processed distribution; None under greedy, where
    it is a point at `best`. logits: raw, `[m, V]`. states: see `TextReading`.
    """

    text: GivenText
    start: int
    stop: int
    logits: Tensor
    best: Tensor
    probs: Tensor | None
    states: dict[int, Tensor]
    processor: PlaceProcessor

    def said(self, depth: int, count: int) -> Tensor:
        """The text's own tokens `[count]` at a depth (from 1) behind the first places."""
        begin = self.start + depth - 1
        return torch.tensor(self.text.answer[begin : begin + count], dtype=torch.long, device=self.best.device)


def blocks(
    target: Runner,
    text: GivenText,
    processor: LogitsProcessor,
    stop: Collection[int],
    depth: int,
    layers: Sequence[int] = (),
) -> Iterator[TargetRows]:
    """The blocks of a text. depth: drafts behind a place, whose rows a block has too. layers: whose states are read."""
    reading = TextReading(target, text, layers)
    at_places = PlaceProcessor(processor, text, target.vocab_size, target.device, stop)
    count = len(text.answer)
    for start in range(0, count, BLOCK):
        end = min(start + BLOCK, count)
        logits = reading.rows(start, min(end + depth, count))
        changed = at_places.changed(logits, start, start)
        probs = None if processor.greedy else at_places.probabilities(changed)
        yield TargetRows(text, start, end, logits, argmax(changed), probs, reading.states, at_places)

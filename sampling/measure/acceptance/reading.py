"""A text that a model reads once, in order: its rows at the places of the answer, in windows that move forward."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sampling.forward.runner import PREFILL_CHUNK, Runner, feed
from utils.errors import UserError

BLOCK = 64
"""Places that are worked on at a time: bounds the memory, however long a text is."""

FEWEST = 2
"""Tokens before the first place: a head's first row joins the state of one token with the next."""


@dataclass(frozen=True, slots=True)
class GivenText:
    """A text to walk along: what stands before (ids), and the answer, whose tokens are the places.

    turn: of its conversation, from 1.
    """

    id: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    turn: int = 1

    def __post_init__(self) -> None:
        if len(self.prompt) < FEWEST or not self.answer:
            raise UserError(
                f"text {self.id!r}: {len(self.prompt)} tokens before the first place and {len(self.answer)} places; "
                f"expected {FEWEST} or more before, and one place or more"
            )

    @property
    def ids(self) -> tuple[int, ...]:
        """All of it."""
        return (*self.prompt, *self.answer)


class TextReading:
    """The rows of one model along one text. Place i is the answer's token i; its row follows all tokens before it.

    states: of each asked layer, `[m, H]`, of all positions that were read so far.
    """

    def __init__(self, runner: Runner, text: GivenText, layers: Sequence[int] = ()) -> None:
        self._runner, self._text, self._layers = runner, text, tuple(layers)
        ids = runner.read(text.prompt).tokens
        before = feed(runner, ids[:-1], self._layers)
        self._states = {layer: [before[layer]] for layer in self._layers}
        self._rows, self._first, self._read = torch.empty(0, 0), 0, 0

    @property
    def states(self) -> dict[int, Tensor]:
        """See the class."""
        for layer, parts in self._states.items():
            self._states[layer] = [parts[0] if len(parts) == 1 else torch.cat(parts)]
        return {layer: parts[0] for layer, parts in self._states.items()}

    def rows(self, start: int, stop: int) -> Tensor:
        """Raw logits `[stop - start, V]` of these places; rows before `start` are let go, and no window goes back."""
        kept = self._rows[start - self._first :] if self._first < self._read else self._rows[:0]
        parts = [kept] if len(kept) else []
        while self._read < stop:
            parts.append(self._more())
        self._rows = parts[0] if len(parts) == 1 else torch.cat(parts)
        self._first = start
        return self._rows[: stop - start]

    def _more(self) -> Tensor:
        """The rows of the next places, which is as many tokens read."""
        begin = len(self._text.prompt) - 1 + self._read
        tokens = self._text.ids[begin : min(begin + BLOCK, len(self._text.ids) - 1)]
        output = self._runner.forward(tokens, hidden=self._layers)
        for layer in self._layers:
            self._states[layer].append(output.hidden[layer].clone())
        self._read += len(tokens)
        return output.logits.clone()


assert BLOCK <= PREFILL_CHUNK

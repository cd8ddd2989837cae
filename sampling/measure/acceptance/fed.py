"""Drafters that can be fed the text's own tokens: what they would draft at every place and depth, many at a time."""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from sampling.drafters.heads.medusa_hydra import Heads
from sampling.forward.runner import Runner
from sampling.heads.inference import RecurrentForward
from sampling.heads.recurrent_runner import RecurrentRunner
from sampling.heads.runner import HeadRunner
from sampling.measure.acceptance.reading import GivenText, TextReading
from sampling.measure.acceptance.target_rows import TargetRows


class FedDrafter(Protocol):
    """layers: whose states of the target it reads. by_tokens: its drafts depend on the tokens before alone."""

    @property
    def layers(self) -> tuple[int, ...]: ...

    @property
    def by_tokens(self) -> bool: ...

    def begin(self, text: GivenText) -> None:
        """Another text, whose blocks follow in order."""
        ...

    def rows(self, block: TargetRows, depth: int) -> Iterator[Tensor]:
        """Raw logits `[k, V]` of the drafts at each depth, from 1 on, of the first k places of a block.

        They hold until the next depth. It ends where no place is left.
        """
        ...


def count(block: TargetRows, depth: int, window: int) -> int:
    """How many places of a block, from its first, have a draft at a depth that ends within text and window."""
    end = min(len(block.text.answer), window - len(block.text.prompt))
    return max(0, min(block.stop, end - depth + 1) - block.start)


class FedModel:
    """A causal model: what it drafts depends on the tokens before alone, so one forward has all depths."""

    layers: tuple[int, ...] = ()
    by_tokens = True

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._reading: TextReading | None = None

    def begin(self, text: GivenText) -> None:
        """See `FedDrafter`."""
        fits = len(text.prompt) < self._runner.window
        self._reading = TextReading(self._runner, text) if fits else None

    def rows(self, block: TargetRows, depth: int) -> Iterator[Tensor]:
        """See `FedDrafter`."""
        window = self._runner.window
        end = min(block.stop + depth - 1, len(block.text.answer), window - len(block.text.prompt))
        if self._reading is None or end <= block.start:
            return
        logits = self._reading.rows(block.start, end)
        for place in range(depth):
            if not (many := count(block, place + 1, window)):
                return
            yield logits[place : place + many]


class FedHeads:
    """Medusa and Hydra heads: each place is a state of the target, and the tokens behind it."""

    by_tokens = False

    def __init__(self, heads: Heads, layer: int, window: int) -> None:
        self._heads, self._window, self.layers = heads, window, (layer,)

    def begin(self, text: GivenText) -> None:
        """See `FedDrafter`: nothing is kept."""

    def rows(self, block: TargetRows, depth: int) -> Iterator[Tensor]:
        """See `FedDrafter`."""
        text, first = block.text.ids, len(block.text.prompt) + block.start
        states = block.states[self.layers[0]][first - 2 :]
        for place in range(min(depth, self._heads.config.steps)):
            if not (many := count(block, place + 1, self._window)):
                return
            paths = torch.tensor([text[first + i - 1 : first + i + place] for i in range(many)], device=states.device)
            feeds = list(zip(states[:many].split(1), paths.split(1), strict=True))
            logits = self._heads.steps[place + 1].run(feeds)
            yield torch.cat(list(logits))


class FedRecurrent:
    """EAGLE and MTP heads: rows of the text once, and behind every place a chain that is fed the text's tokens."""

    by_tokens = False

    def __init__(self, runner: HeadRunner[RecurrentForward]) -> None:
        assert isinstance(runner, RecurrentRunner)
        self._runner, self.layers = runner, tuple(runner.forward.config.features)
        self._slot = runner.another()

    def begin(self, text: GivenText) -> None:
        """See `FedDrafter`."""
        self._slot.crop(0)

    def rows(self, block: TargetRows, depth: int) -> Iterator[Tensor]:
        """See `FedDrafter`. The rows of drafts last for one block."""
        window, prompt = self._runner.window, len(block.text.prompt)
        if not (many := count(block, 1, window)):
            return
        self._read(block, prompt + block.start - 2)
        above, logits = self._slot.text_rows(*self._entering(block, prompt + block.start + many - 2))
        text, seen = self._slot.length, self._first_seen(prompt + block.start - 1, many)
        yield logits
        for place in range(1, depth):
            if not (left := count(block, place + 1, window)):
                break
            seen = torch.cat([seen[:left], torch.eye(left, dtype=torch.bool, device=seen.device)], dim=1)
            above, logits = self._slot.beside(block.said(place, left), above[:left], seen)
            yield logits
        self._slot.crop(text)

    def _first_seen(self, rows: int, many: int) -> Tensor:
        """`[many, length]`: the first place sees so many rows of the text, each further one sees one more."""
        device = self._runner.cache.device
        places = torch.arange(rows, rows + many, device=device).unsqueeze(1)
        return torch.arange(self._slot.length, device=device) < places

    def _read(self, block: TargetRows, rows: int) -> None:
        """Rows of the text before the first of the block's places."""
        if rows > self._slot.length:
            self._slot.read(*self._entering(block, rows))

    def _entering(self, block: TargetRows, rows: int) -> tuple[Tensor, Tensor]:
        """Tokens and features of the text's rows that are not fed yet, so that there are so many."""
        here = slice(self._slot.length, rows)
        feature = self._runner.forward.read([block.states[layer][here] for layer in self.layers])
        ids = block.text.ids[here.start + 1 : here.stop + 1]
        return torch.tensor(ids, dtype=torch.long, device=feature.device), feature

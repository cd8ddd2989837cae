"""Logits and distributions that are computed once: what makes thousands of draws from real models affordable."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from sampling.forward.caches.cache import refuse_crop
from sampling.forward.causal_model import CausalModel, Output, PromptReading
from sampling.forward.runner import WholeRunner
from sampling.pair.pair import Pair
from utils.logits_processor import LogitsProcessor

_Path = tuple[int, ...]
_TELLING = 16


class _Memory:
    """Rows of one model: each a function of what an encoder read, the token path before it, and nothing else."""

    def __init__(self, runner: WholeRunner) -> None:
        self._runner = runner
        self._read: _Path | None = None
        self._held: _Path = ()
        self._readings: dict[_Path, PromptReading] = {}
        self._rows: dict[tuple[_Path, _Path], Output] = {}

    def reading(self, prompt: _Path) -> PromptReading:
        """What the model makes of a prompt; it is read once."""
        if prompt not in self._readings:
            self._readings[prompt] = self._runner.read(prompt)
            self._read, self._held = self._readings[prompt].encoder_ids, ()
        return self._readings[prompt]

    def row(self, encoder_ids: _Path, path: _Path, hidden: tuple[int, ...]) -> Output:
        """The row behind a path, with these states at least. Its logits are those of the first time, whoever asks."""
        row = self._rows.get((encoder_ids, path))
        if row is None or not row.hidden.keys() >= set(hidden):
            self._compute(encoder_ids, path, hidden)
        return self._rows[encoder_ids, path]

    @torch.inference_mode()
    def _compute(self, encoder_ids: _Path, path: _Path, hidden: tuple[int, ...]) -> None:
        """The rows of a path and of those on the way that one forward gives as well; a row seen before stays."""
        if self._read != encoder_ids:
            self._runner.read(encoder_ids)
            self._read, self._held = encoder_ids, ()
        common = 0
        while common < min(len(self._held), len(path) - 1) and self._held[common] == path[common]:
            common += 1
        self._runner.crop(common)
        output = self._runner.forward(path[common:], hidden=hidden)
        self._held = path
        for row, end in enumerate(range(common + 1, len(path) + 1)):
            states = {layer: output.hidden[layer][row : row + 1].clone() for layer in hidden}
            logits = output.logits[row : row + 1].clone()  # a forward of fixed shapes overwrites the last one's
            known = self._rows.get((encoder_ids, path[:end]), Output(logits))
            self._rows[encoder_ids, path[:end]] = Output(known.logits, {**states, **known.hidden})


class MemoRunner:
    """The rows of another runner's model, computed once for all sequences: see `Runner` and `Shared`.

    The sequence is a list of ids, and a row seen before costs no forward. Because a path has one row,
    however many tokens share its forward, a distribution that is computed from these rows and a decode loop that
    runs on them agree to the bit: what then differs is the algorithm, never rounding.
    """

    def __init__(self, runner: WholeRunner, memory: _Memory | None = None) -> None:
        self.model, self.vocab_size = runner.model, runner.vocab_size
        self.window, self.device, self.fixed_shapes = runner.window, runner.device, runner.fixed_shapes
        self.held: list[int] = []
        self._runner = runner
        self._memory = memory or _Memory(runner.another())
        self._encoder_ids: _Path = ()
        self._fed: _Path = ()
        self.generation = 0

    def on(self, model: CausalModel) -> "MemoRunner":
        """See `WholeRunner.on`."""
        return MemoRunner(self._runner.on(model))

    def another(self) -> "MemoRunner":
        """See `WholeRunner.another`; rows are shared."""
        return MemoRunner(self._runner, self._memory)

    @property
    def length(self) -> int:
        """See `Runner.length`."""
        return len(self._fed)

    def crop(self, length: int) -> None:
        """See `Runner.crop`."""
        refuse_crop(self.length, length)
        self._fed = self._fed[:length]

    def keep(self, base: int, path: Sequence[int]) -> None:
        """See `Runner.keep`."""
        self._fed = (*self._fed[: base + 1], *(self._fed[base + 1 + row] for row in path))

    def read(self, prompt: Sequence[int]) -> PromptReading:
        """See `Runner.read`."""
        self._fed = ()
        self.generation += 1
        reading = self._memory.reading(tuple(prompt))
        self._encoder_ids = reading.encoder_ids
        return reading

    def forward(
        self,
        tokens: Tensor | Sequence[int],
        parents: Sequence[int] | None = None,
        hidden: Sequence[int] = (),
        rows: int | None = None,
    ) -> Output:
        """See `Runner.forward`."""
        ids = tokens.tolist() if isinstance(tokens, Tensor) else list(tokens)
        count = len(ids) if rows is None else rows
        asked = range(0 if hidden else len(ids) - count, len(ids))
        paths = [(*self._fed, *_path(ids, parents, place)) for place in asked]
        outputs = [self._memory.row(self._encoder_ids, path, tuple(hidden)) for path in reversed(paths)][::-1]
        self._fed = (*self._fed, *ids)
        logits = [row.logits for row in outputs[len(outputs) - count :]]
        return Output(
            torch.cat(logits) if logits else torch.empty(0, self.vocab_size, device=self.device),
            {layer: torch.cat([row.hidden[layer] for row in outputs]) for layer in hidden},
        )

    def feed(
        self,
        tokens: Tensor | Sequence[int],
        parents: Sequence[int] | None = None,
        hidden: Sequence[int] = (),
        rows: int | None = None,
    ) -> Callable[[], Output]:
        """See `Place.feed`."""
        return partial(self.forward, tokens, parents, hidden, rows)

    def run(self, feeds: Sequence[Callable[[], Output]]) -> list[Output]:
        """See `Shared.run`: a row is the same whoever is fed with it."""
        return [forward() for forward in feeds]

    def resume(self, tokens: Sequence[int], most: int) -> int:
        """See `Place.resume`: nothing is taken over, since no row is computed again."""
        self.crop(0)
        return 0

    def wipe(self) -> None:
        """See `SlotRunner.wipe`."""
        self.crop(0)

    def fork(self, tokens: Sequence[int], base: int, lines: Tensor) -> Output:
        """See `Runner.fork`."""
        rows = [(*self._fed[:base], *(self._fed[row] for row in line)) for line in lines.tolist()]
        paths = [(*row, token) for row, token in zip(rows, tokens, strict=True)]
        self._fed = (*self._fed, *tokens)
        return Output(torch.cat([self._memory.row(self._encoder_ids, path, ()).logits for path in paths]))


def memorised(pair: Pair) -> tuple[Pair, MemoRunner]:
    """The pair with both models' rows computed once, and its target, which several sequences can share."""
    target, drafter = MemoRunner(pair.target), pair.drafter and MemoRunner(pair.drafter)
    return replace(pair, target=target, drafter=drafter), target


class MemoProcessor(LogitsProcessor):
    """Another processor's distributions, each computed once: equal rows of logits have equal distributions."""

    def __init__(self, processor: LogitsProcessor) -> None:
        self.greedy = processor.greedy
        self._processor = processor
        self._distributions: dict[tuple[float, ...], list[tuple[Tensor, Tensor]]] = {}

    def __call__(self, logits: Tensor) -> Tensor:
        return torch.cat([self._distribution(row) for row in logits.split(1)])

    def _distribution(self, row: Tensor) -> Tensor:
        """The distribution `[1, V]` of a row `[1, V]`, which its first logits lead to and all of them must confirm."""
        alike = self._distributions.setdefault(tuple(row[0, :_TELLING].tolist()), [])
        for seen, p in alike:
            if torch.equal(seen, row):
                return p
        alike.append((row.clone(), self._processor(row)))
        return alike[-1][1]


def _path(ids: Sequence[int], parents: Sequence[int] | None, place: int) -> Sequence[int]:
    """The fed tokens that row `place` sees, itself the last: all before it, or in a tree its ancestors."""
    if parents is None:
        return ids[: place + 1]
    path = [ids[place]]
    while place > 0:
        place = parents[place - 1] + 1
        path.append(ids[place])
    return path[::-1]

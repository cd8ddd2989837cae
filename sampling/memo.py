"""A runner that computes every row of logits once: what makes thousands of draws from real models affordable."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sampling.runner import ModelRunner, Output

_Path = tuple[int, ...]


class MemoRunner(ModelRunner):
    """The rows of another runner's model, each a function of the token path before it and of nothing else.

    The sequence is a list of ids, and a row seen before costs no forward. Because a path has one row,
    however many tokens share its forward, a law that is computed from these rows and a decode loop that
    runs on them agree to the bit: what then differs is the algorithm, never rounding.
    """

    def __init__(self, runner: ModelRunner) -> None:
        super().__init__(runner.model, runner.vocab_size)
        self._source = ModelRunner(runner.model, runner.vocab_size)
        self._held: _Path = ()
        self._fed: _Path = ()
        self._rows: dict[tuple[_Path, tuple[int, ...]], Output] = {}

    @property
    def length(self) -> int:
        return len(self._fed)

    def crop(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot crop {self.length} rows to {length}")
        self._fed = self._fed[:length]

    def keep(self, base: int, path: Sequence[int]) -> None:
        self._fed = (*self._fed[: base + 1], *(self._fed[base + 1 + row] for row in path))

    def forward(
        self,
        tokens: Tensor | Sequence[int],
        parents: Sequence[int] | None = None,
        hidden: Sequence[int] = (),
        rows: int | None = None,
    ) -> Output:
        ids = tokens.tolist() if isinstance(tokens, Tensor) else list(tokens)
        count = len(ids) if rows is None else rows
        asked = range(0 if hidden else len(ids) - count, len(ids))
        found = [self._row((*self._fed, *_path(ids, parents, place)), tuple(hidden)) for place in asked]
        self._fed = (*self._fed, *ids)
        logits = [row.logits for row in found[len(found) - count :]]
        return Output(
            torch.cat(logits) if logits else torch.empty(0, self.vocab_size, device=self.device),
            {layer: torch.cat([row.hidden[layer] for row in found]) for layer in hidden},
        )

    @torch.inference_mode()
    def _row(self, path: _Path, hidden: tuple[int, ...]) -> Output:
        key = path, hidden
        if key not in self._rows:
            common = 0
            while common < min(len(self._held), len(path) - 1) and self._held[common] == path[common]:
                common += 1
            self._source.crop(common)
            output = self._source.catch_up(path, hidden)
            self._held = path
            self._rows[key] = Output(output.logits, {layer: output.hidden[layer][-1:] for layer in hidden})
        return self._rows[key]


def _path(ids: Sequence[int], parents: Sequence[int] | None, place: int) -> Sequence[int]:
    """The fed tokens that row `place` sees, itself the last: all before it, or in a tree its ancestors."""
    if parents is None:
        return ids[: place + 1]
    path = [ids[place]]
    while place > 0:
        place = parents[place - 1] + 1
        path.append(ids[place])
    return path[::-1]

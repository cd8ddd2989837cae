"""Every forward of a sequence in one width, so that a row has the same bits whatever is fed with it.

A product chooses its kernel, and with it the order of its sums, by the number of rows that it is given, and attention
by its numbers of rows and columns. Here those numbers are the same whether a token is decoded alone, verified among
drafts or read as part of a prompt. Masked columns add exact zeros. The idea: LLM-42 (arXiv 2601.17768).
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from sampling.forward.caches.fixed import bucket
from sampling.forward.chains_only import chains_only
from sampling.forward.graphs.sequence_graphs import SequenceGraphs
from sampling.forward.tree import children
from utils.device.sent import sent

WIDTH = 16
"""Rows of every forward. What is fed is filled up to them; of more there are several forwards, one after the other."""

_Result = tuple[Tensor, dict[int, Tensor]]


class OneWidthGraphs(SequenceGraphs):
    """Forwards of `WIDTH` rows whose columns depend on the place of a row alone: those of its bucket.

    A tree is computed path by path, each as the chain that plain decoding would feed.
    """

    whole = True

    def can_replay(self, count: int) -> bool:
        """See `SequenceGraphs.can_replay`: prompts, too, go through in one width."""
        return True

    def replay(self, ids: Tensor, parents: Sequence[int] | None, hidden: Sequence[int], rows: int) -> _Result:
        """See `SequenceGraphs.replay`."""
        if parents is None:
            return self._chain(ids, hidden, rows)
        if not self.model.trees:
            raise chains_only(self.model)
        logits, states = self._tree(ids, list(parents), hidden)
        return logits[len(ids) - rows :], states

    def _chain(self, ids: Tensor, hidden: Sequence[int], rows: int) -> _Result:
        base, count = self.cache.length, len(ids)
        parts = list(self._parts(base, base + count))
        if len(parts) == 1:
            return self._part(ids, hidden, rows)
        results = list[_Result]()
        try:
            for start, stop in parts:
                wanted = min(stop - start, max(0, stop - (base + count - rows)))
                results.append(_copied(self._part(ids[start - base : stop - base], hidden, wanted)))
                self.cache.advance(stop - start)
        finally:
            self.cache.crop(base)
        return _joined(results)

    def _parts(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Places that are fed together, first and behind the last: `WIDTH` at most, all of one number of columns."""
        while start < stop:
            end = min(stop, start + WIDTH, bucket(start + 1, self._most))
            yield start, end
            start = end

    def _part(self, ids: Tensor, hidden: Sequence[int], rows: int) -> _Result:
        """Rows of one bucket, `WIDTH` at most, behind those that count."""
        return self._replay(ids, None, hidden, rows, WIDTH, self.cache.columns(WIDTH, len(ids)))

    def _tree(self, ids: Tensor, parents: Sequence[int], hidden: Sequence[int]) -> _Result:
        """Logits and states of all rows. The rows of the cache lie as those of a tree do."""
        base, index, owner = self.cache.length, self.cache.index, self.cache.owner
        self.cache.columns(len(ids))  # there is room for all of them then: a path takes less
        results, stored, order = list[_Result](), list[tuple[Tensor, Tensor]](), list[int]()
        for path in _paths(parents):
            known = sum(row in order for row in path)
            new = slice(known, len(path))
            order += path[known:]
            logits, states = self._chain(ids[sent(path, ids.device)], hidden, len(path))
            results.append(_copied((logits[new], {layer: state[new] for layer, state in states.items()})))
            places = slice(base + known, base + len(path))
            stored.append((owner.keys[:, index, :, places].clone(), owner.values[:, index, :, places].clone()))
        back = sent(order, self.cache.device).argsort()
        for buffer, rows in zip((owner.keys, owner.values), zip(*stored, strict=True), strict=True):
            buffer[:, index, :, base : base + len(ids)] = torch.cat(rows, 2).index_select(2, back)
        logits, states = _joined(results)
        return logits[back], {layer: state[back] for layer, state in states.items()}


def _paths(parents: Sequence[int]) -> list[list[int]]:
    """The fed rows from the root, 0, to each leaf: `(-1, -1, 0)` -> `[[0, 2], [0, 1, 3]]`."""
    below, paths = children(parents), list[list[int]]()
    for leaf in range(len(parents)):
        if leaf not in below:
            path, row = list[int](), leaf
            while row >= 0:
                path.append(row + 1)
                row = parents[row]
            paths.append([0, *reversed(path)])
    return paths


def _copied(result: _Result) -> _Result:
    """What holds beyond the next forward."""
    logits, states = result
    return logits.clone(), {layer: state.clone() for layer, state in states.items()}


def _joined(results: Sequence[_Result]) -> _Result:
    layers = results[0][1]
    return torch.cat([logits for logits, _ in results]), {
        layer: torch.cat([states[layer] for _, states in results]) for layer in layers
    }

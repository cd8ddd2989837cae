"""Forwards of a recurrent head with fixed shapes and addresses, which a CUDA graph holds, and the drafts it has fed."""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.caches.attention_metadata import QueryRows
from sampling.forward.caches.fixed import ROOM, CapturedSteps, bucket, columns_over, grow, lay_out_captured
from sampling.forward.caches.rows import RowsCache
from sampling.forward.graphs.further import Feed, FurtherForwards
from sampling.forward.graphs.sequence_graphs import EXACT
from sampling.forward.graphs.shared_graphs import SharedGraphs
from sampling.forward.requests import StepGenerator
from sampling.heads.inference import RecurrentForward
from utils.device.graph_pool import Tensors
from utils.device.lasting import lasting

if TYPE_CHECKING:
    from sampling.heads.recurrent_runner import RecurrentFeed


class FedDrafts:
    """Drafts are numbered in the order they are fed.

    As long as each follows the one before, their rows are a chain like those of a text; from the first tree on a table
    says which of them each draft sees. states: that of the text's last row `[1, H]`, where there is one.
    """

    def __init__(self, states: Sequence[Tensor]) -> None:
        self._states, self._held = list(states), False
        self._seen: Tensor | None = None
        self.count = 0

    @property
    def last(self) -> Tensor:
        """The states that were added last, `[k, H]`."""
        return self._states[-1]

    def hold(self) -> None:
        """Copy the state of the text, which the forward of a draft may overwrite."""
        if not self._held:
            self._states, self._held = [state.clone() for state in self._states], True

    def add(self, states: Tensor) -> None:
        """Those of k more drafts, `[k, H]`."""
        self._states.append(states)
        self.count += len(states)

    def below(self, parents: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """What k new drafts continue, `[k, H]`, and which of the drafts each sees, `[k, fed + k]` bool.

        parents: `[k]`, -1 = the text. None: one draft, behind the last row. All are seen (None) where all are a chain.
        """
        if parents is not None:
            return torch.cat(self._states).index_select(0, parents + 1), self._table(parents)
        if self._seen is None:
            return self.last[-1:], None
        behind = torch.full((1,), self._seen.shape[0] - 2, device=self._seen.device)
        return self.last[-1:], self._table(behind)

    def _table(self, parents: Tensor) -> Tensor:
        """Which drafts k new ones see: what their parents see, and themselves."""
        count, device = len(parents), parents.device
        if self._seen is None:
            self._seen = torch.ones(self.count + 1, self.count, dtype=torch.bool, device=device).tril(-1)
        themselves = torch.eye(count, dtype=torch.bool, device=device)
        new = torch.cat([self._seen.index_select(0, parents + 1), themselves], dim=1)
        self._seen = torch.cat([F.pad(self._seen, (0, count)), new])
        return new


class RecurrentGraphs:
    """Beside `RecurrentRunner`, over the same rows. A chain and a tree share code: which row sees which is an input.

    many: those of many sequences.
    """

    def __init__(self, forward: RecurrentForward, cache: RowsCache) -> None:
        self._forward, self._cache = forward, cache
        self._captured, self.many = CapturedSteps(cache), SharedGraphs(cache, forward.window)

    def can_replay(self, feeds: Sequence["RecurrentFeed"]) -> bool:
        """Whether this is one sequence's, and no prompt: lengths of those are many."""
        return len(feeds) == 1 and len(feeds[0].tokens) <= EXACT

    def replay(self, feed: "RecurrentFeed") -> tuple[Tensor, Tensor]:
        """See `RecurrentRunner.run`."""
        count, rows = len(feed.tokens), feed.slot.length + len(feed.tokens)
        columns = self._columns(rows)
        seen = _causal(count, self._cache.device) if feed.seen is None else feed.seen
        key = feed.slot.index, columns, feed.wanted
        graph = self._captured.step(key, partial(_forward, self._forward, self._cache, *key))
        state, logits = graph(feed.tokens, feed.above, torch.tensor([rows - seen.shape[1]]), seen)
        return state, logits

    def further(self, index: int, base: int, count: int, state: Tensor) -> FurtherForwards:
        """Rows of so many drafts of one sequence behind `base` rows of its text, which end with a state `[1, H]`."""
        columns = self._columns(base + count)
        feed = partial(_further, self._forward, self._cache, index, columns)
        inputs = state, torch.tensor([base])
        graph = partial(self._captured.step, copies=True)
        return FurtherForwards((index, columns), graph, self._captured.known, inputs, feed)

    def _columns(self, rows: int) -> int:
        """Columns of a forward over so many rows, for which there is room then."""
        most = max(rows, self._forward.window + EXACT)
        columns = bucket(rows, most)
        grow(self._cache, columns, most, ROOM)
        return columns_over(self._cache, columns)

    def replay_many(
        self, rows: Sequence[QueryRows], tokens: Tensor, above: Tensor, which: int | Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `RecurrentRunner.run_flat`; which: see `wanted_rows`."""
        count = len(tokens)
        if isinstance(which, int):
            which = torch.arange(count - which, count, device=tokens.device)
        step = partial(_forward_many, self._forward, self._cache)
        state, logits = self.many.replay(rows, "states and logits", step, tokens, above, which)
        return state[:count], logits[: len(which)]


@lru_cache(maxsize=64)
def _causal(count: int, device: torch.device) -> Tensor:
    """Which of its rows each of a chain sees, `[n, n]`."""
    return lasting(torch.ones(count, count, dtype=torch.bool, device=device).tril())


def _forward(
    forward: RecurrentForward,
    cache: RowsCache,
    index: int,
    columns: int,
    wanted: int,
    tokens: Tensor,
    above: Tensor,
    base: Tensor,
    seen: Tensor,
) -> Tensors:
    """(states `[n, H]`, logits of the last `wanted`); nothing is read, and no address changes.

    base: `[1]`, how many rows are seen by all. tokens, above, seen: see `RecurrentFeed`.
    """
    count = len(tokens)
    places = base + (seen.shape[1] - count) + torch.arange(count, device=tokens.device)
    lay_out_captured(cache, index, places, base, seen, columns)
    return forward.rows(tokens, above, base + seen.sum(1) - 1, cache, wanted)


def _forward_many(
    forward: RecurrentForward, cache: RowsCache, positions: Tensor, tokens: Tensor, above: Tensor, which: Tensor
) -> Tensors:
    """(states `[N, H]`, logits of the rows `which`) of rows of many sequences."""
    return forward.rows(tokens, above, positions, cache, which)


def _further(
    forward: RecurrentForward, cache: RowsCache, index: int, columns: int, state: Tensor, base: Tensor
) -> Feed:
    """A feed of drafts behind the text, as `RecurrentSlot.branch` feeds them; base: as in `_forward`."""
    drafts = FedDrafts((state,))

    def feed(tokens: Tensor, parents: Tensor | None) -> StepGenerator[Tensor]:
        yield from ()
        above, seen = drafts.below(parents)
        before = base if seen is not None else base + drafts.count
        seen = _causal(1, tokens.device) if seen is None else seen
        made, logits = _forward(forward, cache, index, columns, len(tokens), tokens, above, before, seen)
        drafts.add(made)
        return logits

    return feed

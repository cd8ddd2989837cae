"""A model that many sequences share: one forward for the rows of all that are fed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from sampling.forward.caches import cache
from sampling.forward.caches.attention_metadata import QueryRows, wanted_rows
from sampling.forward.caches.rows import RowsCache
from sampling.forward.caches.rows_slot import RowsSlot
from sampling.forward.causal_model import CausalModel, Output, Shareable, as_ids
from sampling.forward.graphs.block_graphs import graphs_over
from sampling.forward.graphs.shared_graphs import SharedGraphs
from sampling.forward.requests import ForwardRequest, RequestingRunner
from sampling.forward.runner import CachedRunner, Runner, Runners
from utils.device.spare import with_room


class SlotRunner(Runner, Protocol):
    """The runner of one of several sequences. held: tokens whose rows the text before left behind, see `resume`."""

    held: list[int]

    def resume(self, tokens: Sequence[int], most: int) -> int:
        """Count as fed what the rows still hold of the beginning of a text, `most` rows at most; how many they are."""
        ...

    def wipe(self) -> None:
        """Forget the sequence and what its rows hold: a number that is none would spread to who comes next."""
        ...

    def feed(
        self,
        tokens: Tensor | Sequence[int],
        parents: Sequence[int] | None = None,
        hidden: Sequence[int] = (),
        rows: int | None = None,
    ) -> Any:
        """What `forward` feeds, for a forward with others."""
        ...


class SharedModel(Runners, Protocol):
    """A model for several sequences, each with a place of its own."""

    def another(self) -> SlotRunner:
        """A place that nobody has, for as long as it lives."""
        ...

    def run(self, feeds: Sequence[Any]) -> list[Output]:
        """For each sequence that feeds what `Runner.forward` gives; it holds until the next call."""
        ...


@dataclass(frozen=True, slots=True)
class ForwardInput:
    """What one sequence feeds: its rows, their ids `[n]`, and of how many of them, from the end, logits are wanted."""

    fed: QueryRows
    ids: Tensor
    hidden: Sequence[int]
    rows: int


class SequenceSlot(CachedRunner, RequestingRunner):
    """The runner of one of the sequences that share a `SharedRunner`: see `SlotRunner`."""

    def __init__(self, owner: "SharedRunner") -> None:
        super().__init__(owner.model, owner.vocab_size)
        self.model: CausalModel = owner.model
        self._owner, self._cache = owner, RowsSlot(owner.cache)
        self.held: list[int] = []

    @property
    def cache(self) -> RowsSlot:
        """See `CachedRunner.cache`."""
        return self._cache

    def resume(self, tokens: Sequence[int], most: int) -> int:
        """See `SlotRunner.resume`."""
        same = 0
        while same < min(most, len(tokens), len(self.held)) and tokens[same] == self.held[same]:
            same += 1
        self._cache.length = self._owner.cache.reachable(self._cache.index, same)
        self._owner.cache.release(self._cache.index, self._cache.length)
        return self._cache.length

    def wipe(self) -> None:
        """See `SlotRunner.wipe`."""
        self.crop(0)
        self.held = []
        self._owner.cache.wipe(self._cache.index)

    def forward(
        self,
        tokens: Tensor | Sequence[int],
        parents: Sequence[int] | None = None,
        hidden: Sequence[int] = (),
        rows: int | None = None,
    ) -> Output:
        """See `Runner.forward`: a forward for this sequence alone."""
        return self._owner.run([self.feed(tokens, parents, hidden, rows)])[0]

    def request(
        self, tokens: Tensor | Sequence[int], parents: Sequence[int] | None, hidden: Sequence[int], rows: int | None
    ) -> ForwardRequest:
        """See `RequestingRunner.asked`."""
        return ForwardRequest(self._owner, self.feed(tokens, parents, hidden, rows))

    def feed(
        self,
        tokens: Tensor | Sequence[int],
        parents: Sequence[int] | None = None,
        hidden: Sequence[int] = (),
        rows: int | None = None,
    ) -> ForwardInput:
        """See `SlotRunner.feed`."""
        ids = as_ids(tokens, self.device)
        count = len(ids)
        return ForwardInput(self.rows(count, parents), ids, hidden, count if rows is None else rows)

    @property
    def owner(self) -> "SharedRunner":
        """What it is a slot of."""
        return self._owner

    def rows(self, count: int, parents: Sequence[int] | None = None) -> QueryRows:
        """So many more rows of its sequence, for `SharedRunner.run_flat`."""
        return self._cache.fed(count, parents)

    def prompt_rows(self, count: int) -> QueryRows:
        """So many more rows of its prompt, which stand behind the rounds of others in `SharedRunner.run_flat`."""
        return QueryRows(self._cache, count, prompt=True)

    @torch.inference_mode()
    def fork(self, tokens: Sequence[int], base: int, lines: Tensor) -> Output:
        """See `Runner.fork`."""
        count = len(tokens)
        places = torch.full((count,), base + lines.shape[1], device=self.device)
        seen = cache.seen_by_branches(self.length, base, lines).to(self.device)
        fed = QueryRows(self._cache, count, places, seen, base)
        return self._owner.run_eager([fed], as_ids(tokens, self.device))


class SharedRunner:
    """A model and the rows of all sequences that have a slot of it. Every result holds until the next call.

    fixed_shapes: its forwards but those of prompts are captured. blocks: rows lie in blocks, see `BlockRows`.
    """

    def __init__(
        self, model: Shareable, vocab_size: int | None = None, fixed_shapes: bool = False, blocks: bool = False
    ) -> None:
        self.model, self.vocab_size = model, vocab_size or model.vocab_size
        self.window, self.device = model.window, model.device
        self.cache = model.rows_cache(blocks=blocks)
        self.graphs = graphs_over(self.cache, model.window) if fixed_shapes else None

    def another(self) -> SequenceSlot:
        """See `SharedModel.another`."""
        return SequenceSlot(self)

    def on(self, model: Any) -> Self:
        """The same for another model of the same vocabulary."""
        return type(self)(model, self.vocab_size, self.graphs is not None, self.cache.in_blocks)

    @torch.inference_mode()
    def run(self, feeds: Sequence[ForwardInput]) -> list[Output]:
        """See `SharedModel.run`."""
        layers = sorted({layer for feed in feeds for layer in feed.hidden})
        ids = feeds[0].ids if len(feeds) == 1 else torch.cat([feed.ids for feed in feeds])
        whole = self.run_flat([feed.fed for feed in feeds], ids, layers, [feed.rows for feed in feeds])
        logits = whole.logits.split([feed.rows for feed in feeds])
        states = {layer: whole.hidden[layer].split([feed.fed.count for feed in feeds]) for layer in layers}
        return [
            Output(rows, {layer: states[layer][number] for layer in feed.hidden})
            for number, (feed, rows) in enumerate(zip(feeds, logits, strict=True))
        ]

    @torch.inference_mode()
    def run_flat(
        self,
        feeds: Sequence[QueryRows],
        ids: Tensor,
        hidden: Sequence[int] = (),
        wanted: Sequence[int] | None = None,
    ) -> Output:
        """A forward over rows of several sequences, one behind the other; they count from then on.

        ids: `[N]`. wanted: of how many rows of each, from the end, logits are wanted; None = of all. The states are
        `[N, H]`. All of it holds until the next call.
        """
        if self.graphs is None or not self.graphs.can_replay(feeds):
            return self.run_eager(feeds, ids, hidden, wanted)
        count, which = len(ids), wanted_rows(feeds, wanted, self.device)
        if self.graphs.reads_prompt(feeds):  # of which few logits are asked for, if any
            if isinstance(which, int):
                which = torch.arange(count - which, count, device=self.device)
            asked = [which] if len(which) else []
            logits, *states = self._replayed(self.graphs, feeds, hidden, "some" if asked else "none", ids, *asked)
            rows = logits[: len(which)]
        else:
            logits, *states = self._replayed(self.graphs, feeds, hidden, "all", ids)
            rows = logits[count - which : count] if isinstance(which, int) else logits.index_select(0, which)
        return self._counted(feeds, rows, {layer: state[:count] for layer, state in zip(hidden, states, strict=True)})

    def _replayed(
        self, graphs: SharedGraphs, feeds: Sequence[QueryRows], hidden: Sequence[int], logits: str, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        """What `_forward` gives. logits: of which rows."""
        step = partial(_forward, self.model, self.cache, tuple(hidden), logits)
        return graphs.replay(feeds, (logits, *hidden), step, *inputs)

    @torch.inference_mode()
    def run_eager(
        self,
        feeds: Sequence[QueryRows],
        ids: Tensor,
        hidden: Sequence[int] = (),
        wanted: Sequence[int] | None = None,
    ) -> Output:
        """The same in shapes that follow what is fed; the products of the model see all rows at once, and no other."""
        positions, which = self.cache.lay_out(feeds), wanted_rows(feeds, wanted, self.device)
        forward = partial(self.model.forward, ids, positions, None, self.cache, hidden, which)
        return self._counted(feeds, *(forward() if self.graphs is None else with_room(forward)))

    def _counted(self, feeds: Sequence[QueryRows], logits: Tensor, states: dict[int, Tensor]) -> Output:
        for feed in feeds:
            feed.slot.advance(feed.count)
        return Output(logits if logits.shape[1] == self.vocab_size else logits[:, : self.vocab_size], states)


def _forward(
    model: Shareable,
    cache: RowsCache,
    hidden: tuple[int, ...],
    wanted: str,
    positions: Tensor,
    ids: Tensor,
    *which: Tensor,
) -> tuple[Tensor, ...]:
    """(logits, states of each layer) of ids `[N]`; nothing is read, and no address changes.

    wanted: of which rows there are logits: "all", "some" (which, `[m]`) or "none".
    """
    rows = which[0] if which else len(ids) if wanted == "all" else 0
    logits, states = model.forward(ids, positions, None, cache, hidden, rows)
    return logits, *(states[layer] for layer in hidden)

"""A recurrent head as it drafts: rows of the text, and behind them rows of the drafts under way."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.caches.attention_metadata import QueryRows, wanted_rows
from sampling.forward.caches.rows_slot import RowsSlot
from sampling.forward.graphs.further import FurtherForwards
from sampling.forward.requests import ForwardRequest, StepGenerator, run_single
from sampling.forward.runner import PREFILL_CHUNK
from sampling.heads.inference import MASK, RecurrentForward
from sampling.heads.recurrent_graphs import FedDrafts, RecurrentGraphs
from sampling.heads.runner import HeadRunner, joined, parted
from utils.device.sent import moved


@dataclass(frozen=True, slots=True)
class RecurrentFeed:
    """What one sequence feeds: n tokens, and what each continues, `[n, H]`; logits are wanted of the last `wanted`.

    tokens: there or on the host. seen: `[n, m]` bool, of the last m rows, of which the n fed ones are the end; those
    before are seen by all. None for a chain.
    """

    slot: RowsSlot
    tokens: Tensor
    above: Tensor
    seen: Tensor | None
    wanted: int

    def rows(self) -> QueryRows:
        """Its rows in the cache."""
        count = len(self.tokens)
        if self.seen is None:
            return QueryRows(self.slot, count)
        base = self.slot.length + count - self.seen.shape[1]
        seen = F.pad(self.seen, (base, 0), value=True)
        return QueryRows(self.slot, count, self.seen.sum(1) + (base - 1), seen, base)


class RecurrentRunner(HeadRunner[RecurrentForward]):
    """A recurrent head, or a P-EAGLE head, and the rows of all sequences that draft with it."""

    def __init__(self, forward: RecurrentForward, graphs: bool = False) -> None:
        super().__init__(forward)
        self.graphs = RecurrentGraphs(forward, self.cache) if graphs else None

    def another(self) -> "RecurrentSlot":
        """See `HeadRunner.another`."""
        return RecurrentSlot(self)

    @torch.inference_mode()
    def run(self, feeds: Sequence[RecurrentFeed]) -> list[tuple[Tensor, Tensor]]:
        """States `[n, H]` of the rows of each, and raw logits of those that are wanted."""
        if self.graphs is not None and self.graphs.can_replay(feeds):
            return [self.graphs.replay(feeds[0])]
        tokens = joined([moved(feed.tokens, self.cache.device) for feed in feeds])
        above, wanted = joined([feed.above for feed in feeds]), [feed.wanted for feed in feeds]
        state, logits = self.run_flat([feed.rows() for feed in feeds], tokens, above, wanted)
        return list(zip(parted(state, [len(feed.tokens) for feed in feeds]), parted(logits, wanted), strict=True))

    @torch.inference_mode()
    def run_flat(
        self, rows: Sequence[QueryRows], tokens: Tensor, above: Tensor, wanted: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """The same of rows that lie one sequence's behind the other's: states `[N, H]`, logits of those wanted."""
        which = wanted_rows(rows, wanted, tokens.device)
        if self.graphs is not None and self.graphs.many.can_replay(rows):
            return self.graphs.replay_many(rows, tokens, above, which)
        positions = self.cache.lay_out(rows)
        return self.forward.rows(tokens, above, positions, self.cache, which)


class RecurrentSlot:
    """The rows of one sequence: those that the target's states stand behind, then those of the drafts under way."""

    def __init__(self, runner: RecurrentRunner) -> None:
        self._runner, self._rows = runner, RowsSlot(runner.cache)
        self._base = 0
        self._drafts = FedDrafts(())

    @property
    def length(self) -> int:
        """See `HeadSlot.length`."""
        return self._base

    def crop(self, length: int) -> None:
        """Forget the drafts, and the rows from `length` on."""
        self._rows.crop(length)
        self._base, self._drafts = length, FedDrafts(())

    def next_rows(self, count: int) -> QueryRows:
        """So many more rows, behind those of the text and of the drafts, for `RecurrentRunner.run_flat`."""
        return QueryRows(self._rows, count)

    def count_drafts(self, count: int) -> None:
        """Count so many rows of drafts that were fed."""
        self._rows.advance(count)

    def count_text(self, count: int) -> None:
        """Count so many rows of the text that were fed."""
        self._rows.advance(count)
        self._base += count

    def read(self, tokens: Tensor, feature: Tensor) -> None:
        """Rows of a prompt, behind which nothing is drafted, in chunks, so that masks stay small."""
        for chunk in zip(tokens.split(PREFILL_CHUNK), feature.split(PREFILL_CHUNK), strict=True):
            run_single(self._text(*chunk, wanted=0))

    def feed(self, tokens: Tensor, feature: Tensor, wanted: int = 1) -> StepGenerator[Tensor]:
        """n rows of the target's own states; raw logits `[wanted, V]` behind the last of them."""
        state, logits = yield from self._text(tokens, feature, wanted)
        self._drafts = FedDrafts((state[-1:],))
        return logits

    def text_rows(self, tokens: Tensor, feature: Tensor) -> tuple[Tensor, Tensor]:
        """n rows of the target's own states: a copy of their states `[n, H]`, and raw logits `[n, V]` behind each."""
        state, logits = run_single(self._text(tokens, feature, wanted=len(tokens)))
        return state.clone(), logits

    def beside(self, tokens: Tensor, above: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of n drafts that belong to different places: a copy of their states, and raw logits behind each.

        above: `[n, H]`, what each continues. seen: `[n, rows + n]` bool, all rows that each sees. `crop` forgets them.
        """
        state, logits = run_single(self._fed(tokens, above, seen, len(tokens)))
        return state.clone(), logits

    def ahead(self, tokens: Tensor, feature: Tensor, masks: int) -> StepGenerator[Tensor]:
        """n rows of the target's own states and so many mask rows behind them, which are forgotten at once.

        Raw logits behind the last row of the text, where there is one, and behind each mask row, `[.., V]`.
        """
        self.crop(self._base)
        fed, above = F.pad(tokens, (0, masks), value=MASK), F.pad(feature, (0, 0, 0, masks))
        _, logits = yield from self._fed(fed, above, None, masks + min(1, len(tokens)))
        self.crop(self._base + len(tokens))
        return logits

    def branch(self, tokens: Tensor, parents: Tensor | None = None) -> StepGenerator[Tensor]:
        """Rows of k drafts; raw logits `[k, V]` behind each.

        parents: `[k]`, numbers of drafts fed before, -1 = the text. None: one draft, behind the last row that was fed.
        """
        self._drafts.hold()
        above, seen = self._drafts.below(parents)
        state, logits = yield from self._fed(tokens, above, seen, len(tokens))
        self._drafts.add(state.clone())
        return logits

    def further(self, count: int) -> FurtherForwards | None:
        """Rows of so many drafts, in forwards of fixed shapes and addresses; None where there are none."""
        graphs = self._runner.graphs
        return None if graphs is None else graphs.further(self._rows.index, self._base, count, self._drafts.last)

    def _text(self, tokens: Tensor, feature: Tensor, wanted: int) -> StepGenerator[tuple[Tensor, Tensor]]:
        """Rows of the text, behind all others."""
        self.crop(self._base)
        result = yield from self._fed(tokens, feature, None, wanted)
        self._base += len(tokens)
        return result

    def _fed(
        self, tokens: Tensor, above: Tensor, seen: Tensor | None, wanted: int
    ) -> StepGenerator[tuple[Tensor, Tensor]]:
        """States and logits of more rows, see `RecurrentFeed`, which count from then on."""
        result: tuple[Tensor, Tensor] = yield ForwardRequest(
            self._runner, RecurrentFeed(self._rows, tokens, above, seen, wanted)
        )
        self._rows.advance(len(tokens))
        return result

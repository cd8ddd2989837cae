"""A recurrent head as it drafts: rows of the text, and behind them rows of the drafts under way."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.caches.attention_metadata import QueryRows, wanted_rows
from sampling.forward.caches.rows_slot import RowsSlot
from sampling.forward.requests import ForwardRequest, StepGenerator, run_single
from sampling.forward.runner import PREFILL_CHUNK
from sampling.heads.inference import MASK, RecurrentForward
from sampling.heads.recurrent_graphs import RecurrentGraphs
from sampling.heads.runner import HeadRunner, joined, parted


@dataclass(frozen=True, slots=True)
class RecurrentFeed:
    """What one sequence feeds: n tokens, and what each continues, `[n, H]`; logits are wanted of the last `wanted`.

    seen: `[n, m]` bool, of the last m rows, of which the n fed ones are the end; those before are seen by all. None
    for a chain.
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
        self._graphs = RecurrentGraphs(forward, self.cache) if graphs else None

    def another(self) -> "RecurrentSlot":
        """See `HeadRunner.another`."""
        return RecurrentSlot(self)

    @torch.inference_mode()
    def run(self, feeds: Sequence[RecurrentFeed]) -> list[tuple[Tensor, Tensor]]:
        """States `[n, H]` of the rows of each, and raw logits of those that are wanted."""
        if self._graphs is not None and self._graphs.can_replay(feeds):
            return [self._graphs.replay(feeds[0])]
        tokens, above = joined([feed.tokens for feed in feeds]), joined([feed.above for feed in feeds])
        wanted = [feed.wanted for feed in feeds]
        state, logits = self.run_flat([feed.rows() for feed in feeds], tokens, above, wanted)
        return list(zip(parted(state, [len(feed.tokens) for feed in feeds]), parted(logits, wanted), strict=True))

    @torch.inference_mode()
    def run_flat(
        self, rows: Sequence[QueryRows], tokens: Tensor, above: Tensor, wanted: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """The same of rows that lie one sequence's behind the other's: states `[N, H]`, logits of those wanted."""
        which = wanted_rows(rows, wanted, tokens.device)
        if self._graphs is not None and self._graphs.many.can_replay(rows):
            return self._graphs.replay_many(rows, tokens, above, which)
        positions = self.cache.lay_out(rows)
        state = self.forward.run(tokens, above, positions, None, self.cache)
        asked = state[len(state) - which :] if isinstance(which, int) else state.index_select(0, which)
        return state, self.forward.logits(asked)


class RecurrentSlot:
    """The rows of one sequence: those that the target's states stand behind, then those of the drafts under way.

    Drafts are numbered in the order they are fed. As long as each follows the one before, their rows are a chain like
    those of a text; from the first tree on a table says which of them each draft sees.
    """

    def __init__(self, runner: RecurrentRunner) -> None:
        self._runner, self._rows = runner, RowsSlot(runner.cache)
        self._base = 0
        self._states: list[Tensor] = []
        self._seen: Tensor | None = None

    @property
    def length(self) -> int:
        """See `HeadSlot.length`."""
        return self._base

    def crop(self, length: int) -> None:
        """Forget the drafts, and the rows from `length` on."""
        self._rows.crop(length)
        self._base, self._states, self._seen = length, [], None

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

    def feed(self, tokens: Tensor, feature: Tensor) -> StepGenerator[Tensor]:
        """n rows of the target's own states; raw logits `[1, V]` behind the last of them."""
        state, logits = yield from self._text(tokens, feature, wanted=1)
        self._states = [state[-1:].clone()]
        return logits

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
        if parents is None:
            above, seen = self._states[-1][-1:], self._behind_the_last()
        else:
            above, seen = torch.cat(self._states).index_select(0, parents + 1), self._below(parents)
        state, logits = yield from self._fed(tokens, above, seen, len(tokens))
        self._states.append(state.clone())
        return logits

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

    def _behind_the_last(self) -> Tensor | None:
        """What one more draft of a chain sees."""
        if self._seen is None:
            return None
        last = self._seen.shape[0] - 2
        return self._below(torch.full((1,), last, device=self._seen.device))

    def _below(self, parents: Tensor) -> Tensor:
        """Which drafts k new ones see, `[k, fed + k]` bool: what their parents see, and themselves."""
        count, fed, device = len(parents), self._rows.length - self._base, parents.device
        if self._seen is None:
            self._seen = torch.ones(fed + 1, fed, dtype=torch.bool, device=device).tril(-1)
        themselves = torch.eye(count, dtype=torch.bool, device=device)
        new = torch.cat([self._seen.index_select(0, parents + 1), themselves], dim=1)
        self._seen = torch.cat([F.pad(self._seen, (0, count)), new])
        return new

"""A processor of two parts: what changes logits by the text, and what makes probabilities of a row by itself."""

from collections.abc import Collection, Sequence
from functools import partial
from itertools import groupby
from typing import cast

import torch
from torch import Tensor

from sampling.forward.noise_floor import NoiseFloor, noise_floor
from sampling.forward.runner import Runner
from sampling.processors.followed import FollowedGrammar
from sampling.processors.paths import Committed, Paths
from sampling.processors.text_processors import Penalty, TextProcessor, penalise
from sampling.proposal import Proposal
from utils.errors import UserError
from utils.logits_processor import LogitsProcessor


class WithText(LogitsProcessor):
    """`rows` behind processors of the text; the loop applies these row by row, each along its own path.

    A call without a text is `rows` alone.
    """

    def __init__(self, rows: LogitsProcessor, changes: Sequence[TextProcessor]) -> None:
        self.rows, self.changes, self.greedy = rows, tuple(changes), rows.greedy

    def __call__(self, logits: Tensor) -> Tensor:
        return self.rows(logits)


class TextChanges:
    """The processors of one text, with what they know of its committed tokens."""

    def __init__(self, changes: Sequence[TextProcessor], committed: Committed) -> None:
        self._changes, self._committed = changes, committed
        self._groups = [(penalties, [*group]) for penalties, group in groupby(changes, _is_penalty)]

    @property
    def grammar(self) -> FollowedGrammar | None:
        """What says which tokens may follow at all; None where nothing does."""
        return next((change for change in self._changes if isinstance(change, FollowedGrammar)), None)

    def of_round(self, tokens: Sequence[int], proposal: Proposal, logits: Tensor) -> Tensor:
        """The target's logits `[n + 1, V]` of a round behind these tokens, changed."""
        self._committed.bring_up_to(tokens)
        return self._changed(logits, Paths.of_round(self._committed, proposal))

    def of_drafts(self, tokens: Sequence[int], drafts: Tensor, on_path: Tensor, logits: Tensor) -> Tensor:
        """A drafter's logits `[m, V]`, changed; on_path: `[m, n]`, which of the drafts `[n]` lead to each row."""
        self._committed.bring_up_to(tokens)
        device = self._committed.device
        paths = Paths(self._committed, drafts.to(device), on_path.to(device))
        return self._changed(logits.to(device), paths)

    def behind(self, tokens: Sequence[int], said: Sequence[int], logits: Tensor) -> Tensor:
        """The logits `[1, V]` behind these tokens and what was said after them, changed."""
        none = torch.empty(0, dtype=torch.long, device=logits.device)
        return self.of_drafts([*tokens, *said], none, none.new_zeros(1, 0) > 0, logits)

    def _changed(self, logits: Tensor, paths: Paths) -> Tensor:
        changed = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
        for penalties, group in self._groups:
            if penalties:
                penalise(changed, paths, cast(list[Penalty], group))
            else:
                for change in group:
                    change.change(changed, paths)
        return changed


def _is_penalty(change: TextProcessor) -> bool:
    return isinstance(change, Penalty)


def changes_of(
    processor: LogitsProcessor, tokens: Sequence[int], vocab_size: int, device: torch.device, stop: Collection[int]
) -> TextChanges | None:
    """What changes the logits of a text that begins with this prompt; None where nothing of it does.

    Raises `UserError` for a processor that names a token outside the vocabulary.
    """
    if not isinstance(processor, WithText):
        return None
    for token in (token for change in processor.changes for token in change.named):
        if token >= vocab_size:
            raise UserError(f"token {token} given to a processor; expected ids from 0 to {vocab_size - 1}")
    ends = tuple(sorted(token for token in stop if token < vocab_size))
    committed = Committed(len(tokens), ends, device, vocab_size)
    committed.bring_up_to(tokens)
    return TextChanges([change.of_text(committed) for change in processor.changes], committed)


def rows_of(processor: LogitsProcessor) -> LogitsProcessor:
    """The part that makes probabilities of a row by itself."""
    return processor.rows if isinstance(processor, WithText) else processor


def processed_noise_floor(
    target: Runner, prompt: Sequence[int], said: Sequence[int], processor: LogitsProcessor, stop: Collection[int]
) -> NoiseFloor:
    """See `noise_floor`: the row that follows a prompt and what was said, as processors of the text leave it."""
    floor = noise_floor(target, prompt, said)
    if not isinstance(processor, WithText):
        return floor
    start = target.read(prompt).tokens
    changes = changes_of(processor, start, target.vocab_size, target.device, stop)
    return floor if changes is None else floor.changed(partial(changes.behind, start, said))

"""Dialogues as padded batches, in an order that is a function of the seed and the epoch alone."""

import hashlib
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from sampling.distill.shards import TrainingRow
from utils.errors import UserError
from utils.text import counted

_EVERY = 17


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """B dialogues of at most T tokens.

    tokens: `[B, T]`. states: `{layer: [B, T, H]}` in float32. lengths: `[B]`; behind them everything is
    padding, and the last token's row of states is void. answers: `[B]`, where the answers start.
    """

    tokens: Tensor
    states: dict[int, Tensor]
    lengths: Tensor
    answers: Tensor

    @classmethod
    def of(cls, rows: Sequence[TrainingRow], layers: Iterable[int], device: torch.device) -> "TrainingBatch":
        """Pad these rows to the longest of them."""
        states = {
            layer: pad_sequence([row.states[layer] for row in rows], batch_first=True).to(device).float()
            for layer in layers
        }
        return cls(
            pad_sequence([row.tokens for row in rows], batch_first=True).to(device),
            states,
            torch.tensor([len(row.tokens) for row in rows], device=device),
            torch.tensor([row.answer for row in rows], device=device),
        )


def split(rows: Sequence[TrainingRow], held_out: int) -> tuple[list[TrainingRow], list[TrainingRow]]:
    """(learned, held out): a prompt in `_EVERY` is put aside with all its answers, and one at least.

    Which ones is a function of the prompt alone, so that nothing is held out that an earlier training has learned,
    whatever it had beside it. At most `held_out` of them are counted on, no drawn answers where there are others.
    Raises `UserError` where nothing is left to learn from.
    """
    placed = [(_place(row), row) for row in rows]
    edge = max(1 / _EVERY, min((place for place, _ in placed), default=0.0))
    learned = [row for place, row in placed if place > edge]
    if not learned:
        raise UserError(
            f"{counted(len(rows), 'piece')} of data given; expected at least 2 different ones, as one is held out"
        )
    aside = [row for place, row in sorted(placed, key=itemgetter(0)) if place <= edge]
    return learned, ([row for row in aside if row.greedy or row.is_text] or aside)[:held_out]


def _place(row: TrainingRow) -> float:
    """A number from 0 to 1 that is the same for all answers to one prompt."""
    said = row.tokens if row.is_text else row.tokens[: row.answer]
    return int.from_bytes(hashlib.sha256(repr(said.tolist()).encode()).digest()[:8]) / 2**64


def batches(rows: Sequence[TrainingRow], most_tokens: int, seed: int, epoch: int) -> Iterator[list[TrainingRow]]:
    """All rows once, those of like length together, at most `most_tokens` with the padding, batches shuffled."""
    chance = random.Random(f"{seed} {epoch}")
    ordered = sorted(rows, key=lambda row: (len(row.tokens), chance.random()))
    parts: list[list[TrainingRow]] = [[]]
    for row in ordered:
        if parts[-1] and (len(parts[-1]) + 1) * len(row.tokens) > most_tokens:
            parts.append([])
        parts[-1].append(row)
    chance.shuffle(parts)
    yield from parts


def frequent_tokens(rows: Iterable[TrainingRow], size: int, always: Iterable[int], vocab_size: int) -> Tensor:
    """The `size` tokens that are said most, ascending (FR-Spec, arXiv 2502.14856); `always` are among them.

    Of tokens that are said as often the lowest ids are taken: a byte-pair vocabulary learned its frequent merges first.
    """
    counts = torch.bincount(torch.cat([row.tokens for row in rows]), minlength=vocab_size)
    wanted = dict.fromkeys([*always, *counts.argsort(descending=True, stable=True).tolist()])
    return torch.tensor(sorted(list(wanted)[:size]))

"""Chains of many sequences drafted side by side: one token of each in a step, without a look at any on the host."""

from collections import abc
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from egag.draft_distribution import drafted_logits
from egag.entropy import entropy
from egag.length_rule import LengthRule
from sampling.drafters.drawing import BEST, drawing
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.device.sent import sent
from utils.logits_processor import one_if_finite


class ChainSteps(Protocol):
    """The forwards of a drafter for the chains of B sequences; what they give holds until the next."""

    def root(self) -> Tensor:
        """Raw logits `[B, V]` of the first drafts."""
        ...

    def feed(self, numbers: abc.Sequence[int], tokens: Tensor) -> Tensor:
        """Raw logits `[k, V]` behind one more draft `[k]` of each of these sequences."""
        ...


def is_counted(rule: LengthRule) -> bool:
    """Whether a rule drafts up to its gamma, whatever is drawn."""
    return type(rule).before is LengthRule.before and type(rule).after is LengthRule.after


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Drafts `[k]` of some sequences, and the logits `[k]` of points or the distributions `[k, V]` of drawn ones."""

    numbers: list[int]
    tokens: Tensor
    chances: Tensor


def draft_chains(
    steps: ChainSteps, seqs: abc.Sequence[Sequence], counts: abc.Sequence[int], draft_ids: Tensor | None = None
) -> list[Proposal]:
    """A chain of so many drafts, 1 or more, for each sequence: those that `ForwardDrafter.propose` draws for it.

    draft_ids: see `LogitsDistribution`.
    """
    device, common = seqs[0].device, seqs[0].runner.vocab_size
    logits = steps.root()[:, :common]
    firsts = entropy(drafted_logits(logits, draft_ids))
    live, drawn = [*range(len(seqs))], list[_Drawn]()
    for depth in range(1, max(counts) + 1):
        parts = _drawn(seqs, live, logits.to(device))
        drawn += parts
        going = [number for number in live if counts[number] > depth]
        if going:
            logits = steps.feed(going, _in_order(parts, going))[:, :common]
        live = going
    return _proposals(seqs, drawn, firsts.unbind(0))


def _drawn(seqs: abc.Sequence[Sequence], live: list[int], logits: Tensor) -> list[_Drawn]:
    """The next draft of each live sequence; sequences of one processor draw together."""
    groups = dict[int, list[int]]()
    for at, number in enumerate(live):
        groups.setdefault(id(seqs[number].processor), []).append(at)
    parts = list[_Drawn]()
    for places in groups.values():
        mine = [seqs[live[at]] for at in places]
        rows = logits if len(groups) == 1 else logits.index_select(0, sent(places, logits.device))
        processor = mine[0].processor
        drawn = BEST.best(rows) if processor.greedy else drawing(processor).drawn(rows, [seq.rng for seq in mine])
        parts.append(_Drawn([live[at] for at in places], *drawn))
    return parts


def _in_order(parts: list[_Drawn], wanted: list[int]) -> Tensor:
    """The drafts of these sequences, in this order."""
    numbers = [number for part in parts for number in part.numbers]
    tokens = _joined([part.tokens for part in parts])
    if numbers == wanted:
        return tokens
    place = {number: at for at, number in enumerate(numbers)}
    return tokens.index_select(0, sent([place[number] for number in wanted], tokens.device))


def _proposals(seqs: abc.Sequence[Sequence], drawn: list[_Drawn], firsts: abc.Sequence[Tensor]) -> list[Proposal]:
    """The drafts of each sequence as its proposal. Points and drawn ones are put in order apart."""
    proposals = dict[int, Proposal]()
    for points in (True, False):
        parts = [part for part in drawn if seqs[part.numbers[0]].processor.greedy == points]
        if not parts:
            continue
        numbers = [number for part in parts for number in part.numbers]
        order = sorted(range(len(numbers)), key=numbers.__getitem__)  # of one sequence they stay as they were drawn
        counts = dict.fromkeys(sorted(numbers), 0)
        for number in numbers:
            counts[number] += 1
        rows, lengths = sent(order, seqs[0].device), [*counts.values()]
        tokens = _joined([part.tokens for part in parts]).index_select(0, rows).split(lengths)
        chances = _joined([part.chances for part in parts]).index_select(0, rows)
        each = (one_if_finite(chances) if points else chances).split(lengths)
        for number, mine, chance in zip(counts, tokens, each, strict=True):
            q, check = (None, chance) if points else (chance, None)
            proposals[number] = Proposal(mine, None, q, firsts[number], check)
    return [proposals[number] for number in range(len(seqs))]


def _joined(parts: abc.Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))

"""How often a drafter is right on held-out answers, draft by draft."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from sampling.distill.batches import TrainingBatch
from sampling.distill.tasks import Task, TrainingPass

_WORTH_DRAFTING = 0.2


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Held-out drafts of greedy answers.

    conditional[d]: how often draft d + 1 is right where those before it are. tokens_per_round: one more than
    the mean number of right drafts before the first wrong one. ranks[d][r]: how often the token of rank r is.
    covered: share of the answers' tokens that the draft vocabulary has.
    """

    conditional: tuple[float, ...]
    tokens_per_round: float
    ranks: tuple[tuple[float, ...], ...]
    covered: float

    @property
    def recommended(self) -> dict[str, int]:
        """As many drafts as come through in one round of five, and one at least.

        Below that one draft more took longer than it saved, with the drafters in models/ (docs/benchmarks.md).
        """
        chances = accumulate(self.conditional, operator.mul)
        return {"gamma": max(1, sum(chance >= _WORTH_DRAFTING for chance in chances))}


@torch.no_grad()
def accuracy(task: Task, held_out: Sequence[TrainingBatch], ranks: int = 8) -> Accuracy:
    """What the drafts of a task would be worth under greedy decoding, counted on answers it never saw."""
    right: list[Tensor] = []
    places: list[Tensor] = []
    for batch in held_out:
        hits = [_ranks(task, draft, batch) for draft in task.drafts(batch)]
        start = batch.answers[:, None] - hits[0][1]
        row = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)[None]
        whole = (row >= start) & (row + hits[-1][1] < batch.lengths[:, None])
        places.append(torch.stack([place[whole] for place, _ in hits]))
        right.append((places[-1] == 0).cumprod(dim=0))
    places_of, chain = torch.cat(places, dim=1), torch.cat(right, dim=1).float()
    before = torch.cat([torch.ones_like(chain[:1]), chain[:-1]])
    conditional = (chain.sum(1) / before.sum(1).clamp(min=1)).tolist()
    table = [
        [((step == rank) * known).sum().item() / max(1.0, known.sum().item()) for rank in range(ranks)]
        for step, known in zip(places_of, before, strict=True)
    ]
    rounds = 1 + chain.sum().item() / max(1, chain.shape[1])
    return Accuracy(tuple(conditional), rounds, tuple(tuple(line) for line in table), _covered(task, held_out))


def _covered(task: Task, batches: Sequence[TrainingBatch]) -> float:
    """Share of the tokens of all answers that are in the draft vocabulary."""
    covered = []
    for batch in batches:
        place = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)[None]
        answers = batch.tokens[(place >= batch.answers[:, None]) & (place < batch.lengths[:, None])]
        covered.append(torch.isin(answers, task.trunk.ids))
    return torch.cat(covered).float().mean().item()


def _ranks(task: Task, training_pass: TrainingPass, batch: TrainingBatch) -> tuple[Tensor, int]:
    """At which rank `[B, T]` each row has the token it predicts (very high where the draft vocabulary lacks it)."""
    logits = task.drafted(training_pass.rows)
    label = torch.roll(batch.tokens, -training_pass.ahead, dims=1)
    place = torch.searchsorted(task.trunk.ids, label).clamp(max=len(task.trunk.ids) - 1)
    score = logits.gather(2, place.unsqueeze(2))
    rank = (logits > score).sum(dim=2)
    return torch.where(task.trunk.ids[place] == label, rank, len(task.trunk.ids)), training_pass.ahead

"""Drafts against the target's rows: how likely each is to be accepted, exactly, without a draw."""

import torch
from torch import Tensor

from sampling.measure.acceptance.fed import FedDrafter
from sampling.measure.acceptance.met import TOP, Met
from sampling.measure.acceptance.target_rows import TargetRows
from utils.numbers.argmax import argmax


def meet(met: Met, block: TargetRows, drafter: FedDrafter, depth: int) -> None:
    """Enter what a drafter meets at the places of a block, down to a depth."""
    for place, logits in enumerate(drafter.rows(block, depth)):
        here = slice(block.start, block.start + len(logits))
        changed = block.processor.changed(logits.to(block.best.device), block.start, block.start + place)
        met.drafted[here, place] = True
        accept, follow = _chances(block, changed, place)
        met.accept[here, place] = accept.double().cpu().numpy()
        met.follow[here, place] = follow.double().cpu().numpy()
        _look_wider(met, block, changed, place)


def accepted(block: TargetRows, changed: Tensor, place: int) -> Tensor:
    """The chance `[k]` that a draft of each row is accepted: sum of min(p, q), of points whether they are the same."""
    rows = slice(place, place + len(changed))
    if block.probs is None:
        return (argmax(changed) == block.best[rows]).float()
    return torch.minimum(block.processor.probabilities(changed), block.probs[rows]).sum(-1).clamp(max=1.0)


def _chances(block: TargetRows, changed: Tensor, place: int) -> tuple[Tensor, Tensor]:
    """What `Met` calls accept and follow, `[k]` each."""
    rows, said = slice(place, place + len(changed)), block.said(place + 1, len(changed))
    if block.probs is None:
        draft, best = argmax(changed), block.best[rows]
        return (draft == best).float(), (draft == said).float().masked_fill(best != said, torch.nan)
    p, q = block.probs[rows], block.processor.probabilities(changed)
    p_said, q_said = (probs.gather(1, said.unsqueeze(1)).squeeze(1) for probs in (p, q))
    follow = (q_said / p_said).clamp(max=1.0).masked_fill(p_said <= 0.0, torch.nan)
    return torch.minimum(p, q).sum(-1).clamp(max=1.0), follow


def _look_wider(met: Met, block: TargetRows, changed: Tensor, place: int) -> None:
    """Enter cover and rank."""
    assert met.cover is not None and met.rank is not None
    rows, said = slice(place, place + len(changed)), block.said(place + 1, len(changed))
    ids = _likeliest(changed)
    same = (ids == block.best[rows].unsqueeze(1)).float()
    mass = same if block.probs is None else block.probs[rows].gather(1, ids)
    here, wide = slice(block.start, block.start + len(changed)), ids.shape[1]
    met.cover[here, place, :wide] = mass.double().cumsum(1).cpu().numpy()
    met.cover[here, place, wide:] = met.cover[here, place, wide - 1 : wide]
    found = ids == said.unsqueeze(1)
    rank = torch.where(found.any(1), found.int().argmax(1), TOP)
    met.rank[here, place] = rank.cpu().numpy()


def _likeliest(logits: Tensor) -> Tensor:
    """The `TOP` likeliest tokens of each row, most likely first; the first is the one that would be drafted."""
    ids = logits.topk(min(TOP, logits.shape[1]), dim=1).indices
    first = argmax(logits).unsqueeze(1)
    if bool((ids[:, :1] == first).all()):
        return ids
    return logits.scatter(1, first, torch.inf).topk(ids.shape[1], dim=1).indices

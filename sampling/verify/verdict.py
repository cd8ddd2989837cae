"""A verdict in three forms: on the device, packed into one tensor so that one read suffices, and on the host."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sampling.forward.tree import Parents
from sampling.proposal import Proposal
from sampling.verify.proposals import ProposalBatch
from utils.errors import NoDistribution
from utils.logits_processor import wide


@dataclass(frozen=True, slots=True)
class Verdict:
    """The accepted rows in order, and the token that follows them.

    drafts, p, q: for each draft its token and its probability under the target and the drafter. parents: of the drafts
    of a tree, see `Proposal`. entropy: nats, of the drafter's raw distribution for the first draft; None without a
    distribution.
    """

    drafts: tuple[int, ...]
    path: tuple[int, ...]
    token: int
    p: tuple[float, ...]
    q: tuple[float, ...]
    entropy: float | None
    parents: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class DeviceVerdict:
    """The verdict on B proposals: `[B]` the row of the last accepted draft (-1 = none), `[B]` the next token."""

    end: Tensor
    token: Tensor


def pack(batch: ProposalBatch, verdict: DeviceVerdict, p_x: Tensor, chosen: Tensor) -> Tensor:
    """Everything that the host needs of a round, in one tensor; `unpack` takes it apart.

    p_x: `[n]`, p of each draft. chosen: `[B]`, p of the next tokens. The tensor begins with the integers: the end of
    each path, the next token, each draft's token, and the parents of a tree that was grown on the device. Then follow
    chosen, the entropies (NaN without a distribution), p_x and q.
    """
    tree, exact = batch.tree, wide(batch.device)
    whole, real = [verdict.end, verdict.token], [chosen, batch.entropies]
    if batch.total:
        whole.append(batch.tokens)
        real += [p_x, batch.q]
    if tree is not None and isinstance(tree.parents, Parents):
        whole.append(tree.parents.there)
    return torch.cat([torch.cat(whole).to(exact), torch.cat(real).to(exact)])


def unpack(batch: ProposalBatch, numbers: Sequence[float]) -> list[Verdict | Exception]:
    """The verdicts of a packed result; `NoDistribution` if a distribution of a verdict or of a draft is not finite."""
    size, total = len(batch.counts), batch.total
    wholes = [int(number) for number in numbers[: len(numbers) - 2 * size - 2 * total]]
    ends, tokens, drafts = wholes[:size], wholes[size : 2 * size], wholes[2 * size : 2 * size + total]
    parents, real = wholes[2 * size + total :], numbers[len(wholes) :]
    p, q = real[2 * size : 2 * size + total], real[2 * size + total :]
    verdicts, start = list[Verdict | Exception](), 0
    for i, (proposal, count) in enumerate(zip(batch.proposals, batch.counts, strict=True)):
        stop = start + count
        above = None if proposal.parents is None else tuple(parents) or tuple(proposal.parents)
        path = tuple(range(ends[i] + 1)) if above is None else _path(above, ends[i])
        nats = None if proposal.first_entropy is None else real[size + i]
        said, mine, theirs = tuple(drafts[start:stop]), tuple(p[start:stop]), tuple(q[start:stop])
        verdict = Verdict(said, path, tokens[i], mine, theirs, nats, above)
        verdicts.append(_lacking(verdict, real[i]) or verdict)
        start = stop
    return verdicts


def _lacking(verdict: Verdict, chosen: float) -> Exception | None:
    """The error of a verdict whose distributions are NaN or infinite. chosen: the probability of its next token."""
    if not chosen > 0.0:
        return NoDistribution("model")
    if not verdict.q:
        return None
    if any(math.isnan(verdict.p[row]) for row in verdict.path):
        return NoDistribution("model")
    return NoDistribution("drafter") if any(map(math.isnan, verdict.q)) else None


def whole(verdict: Verdict | Exception) -> Verdict:
    """The verdict. Raises the error if the entry is an error."""
    if isinstance(verdict, Exception):
        raise verdict
    return verdict


def _path(parents: Sequence[int], end: int) -> tuple[int, ...]:
    """The rows from the root to a row, inclusive; empty for -1."""
    path = list[int]()
    while end >= 0:
        path.append(end)
        end = parents[end]
    return tuple(reversed(path))


def distribution_of(proposal: Proposal, row: Tensor, p: Tensor) -> Tensor:
    """q of the draft in a row (0-d), `[V]`: the distribution it was drawn from; one-hot for a point mass."""
    if proposal.draft_probs is not None:
        return proposal.draft_probs.index_select(0, row.view(1))[0]
    return torch.zeros_like(p[0]).scatter_(0, proposal.tokens.index_select(0, row.view(1)), 1.0)

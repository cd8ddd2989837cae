"""Many verdicts on one proposal at once: a test of a law draws thousands, which one by one take long."""

import warnings

import torch
from torch import Tensor

from sampling.proposal import Proposal
from sampling.verify.proposals import ProposalBatch
from sampling.verify.verifier import Verifier
from utils.numbers.random_numbers import RecordingRNG, ReplayingRNG


def many_verdicts(
    verifier: Verifier, proposal: Proposal, p: Tensor, count: int, rng: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The row of the last accepted draft (-1: none) and the next token, `[count]` each: `decide` over a batch of coins.

    Each is what `decide` says to its own numbers, which are drawn in the shapes that it asks for.
    """
    noted, batch = RecordingRNG(rng), ProposalBatch([proposal], p.device)
    verifier.decide(batch, p, [noted])
    numbers = [torch.rand((count, *asked.shape), generator=rng, dtype=asked.dtype) for asked in noted.requests]

    def decided(*of_one: Tensor) -> tuple[Tensor, Tensor]:
        verdict = verifier.decide(batch, p, [ReplayingRNG(of_one)])
        return verdict.end, verdict.token

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*non-contiguous")  # of a search in rows that are batched so
        warnings.filterwarnings("ignore", message=".*performance drop")  # of point masses
        end, token = torch.vmap(decided)(*numbers)
    return end[:, 0], token[:, 0]

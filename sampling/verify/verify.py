"""A round is verified: raw logits of the target, the user's processor, the verifier's rule, and one read."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor

from sampling import sequence
from sampling.proposal import Proposal
from sampling.verify.match import follow
from sampling.verify.proposals import ProposalBatch
from sampling.verify.verdict import Verdict, pack, unpack
from sampling.verify.verifier import Verifier
from utils.logits_processor import GreedyProcessor, LogitsProcessor, one_if_finite
from utils.numbers.argmax import argmax
from utils.numbers.random_numbers import RNG


class Verify(Protocol):
    """`verify` with a verifier."""

    def __call__(
        self, seqs: Sequence[sequence.Sequence], proposals: Sequence[Proposal], logits: Sequence[Tensor]
    ) -> list[Verdict]: ...


def verify(
    verifier: Verifier,
    seqs: Sequence[sequence.Sequence],
    proposals: Sequence[Proposal],
    logits: Sequence[Tensor],
) -> list[Verdict]:
    """The verdict on each sequence's proposal from its raw logits `[n + 1, V]`; all are read at once.

    Sequences that share a processor go through it together, row by row as ever. Raises `UserError` as `Verifier.verify`
    does.
    """
    verdicts, packed = dict[int, Verdict](), list[tuple[list[int], ProposalBatch, Tensor]]()
    for members in _alike(seqs, proposals):
        rows = torch.cat([logits[i] for i in members]) if len(members) > 1 else logits[members[0]]
        batch = ProposalBatch([proposals[i] for i in members], rows.device)
        processor, draws = seqs[members[0]].processor, [seqs[i].rng for i in members]
        packed.append((members, batch, packed_verdict(verifier, processor, batch, rows, draws)))
    results = [result for _, _, result in packed]
    numbers = iter((torch.cat(results) if len(results) > 1 else results[0]).tolist())
    for members, batch, result in packed:
        verdicts.update(zip(members, unpack(batch, [*islice(numbers, len(result))]), strict=True))
    return [verdicts[i] for i in range(len(seqs))]


def packed_verdict(
    verifier: Verifier, processor: LogitsProcessor, batch: ProposalBatch, logits: Tensor, rngs: Sequence[RNG]
) -> Tensor:
    """The verdict on proposals of one processor, see `pack`, from raw logits `[n + B, V]`; nothing is read.

    Under greedy most verifiers follow the best tokens; then no one-hot row is written out.
    """
    if follows_argmax(verifier, processor):
        best = argmax(logits)
        sure = one_if_finite(logits.gather(-1, best.unsqueeze(-1)).squeeze(-1))
        verdict = follow(batch, best)
        if not batch.total:
            return pack(batch, verdict, sure, sure)
        missed = best.index_select(0, batch.rows) != batch.tokens
        p_x = sure.index_select(0, batch.rows) - missed.float()
        return pack(batch, verdict, p_x, sure.index_select(0, batch.behind(verdict.end)))
    p = processor(logits)
    verdict = verifier.decide(batch, p, rngs)
    return pack(batch, verdict, batch.of_drafts(p), batch.of_next(p, verdict.end, verdict.token))


def follows_argmax(verifier: Verifier, processor: LogitsProcessor) -> bool:
    """Whether the verdict is the way along the best tokens, whatever is drawn; another's processor is asked."""
    return type(processor) is GreedyProcessor and verifier.is_argmax_under_greedy


def _alike(seqs: Sequence[sequence.Sequence], proposals: Sequence[Proposal]) -> Iterator[list[int]]:
    """Those that are verified together: chains of one processor, drawn ones and point masses apart; trees alone."""
    if len(proposals) == 1:
        yield [0]
        return
    groups = dict[tuple[int, bool], list[int]]()
    for i, (seq, proposal) in enumerate(zip(seqs, proposals, strict=True)):
        if proposal.parents is not None:
            yield [i]
        else:
            groups.setdefault((id(seq.processor), proposal.draft_probs is not None), []).append(i)
    yield from groups.values()

"""Verification of a round: raw logits of the target, the user's processor, the verifier's rule, and one device read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from utils.device.spare import OUT_OF_MEMORY
from utils.logits_processor import GreedyProcessor, LogitsProcessor, one_if_finite
from utils.numbers.argmax import argmax
from utils.numbers.random_numbers import RNG


@dataclass(frozen=True, slots=True)
class RoundInput:
    """The input of the verification of one sequence's proposal; logits: raw, `[n + 1, V]`."""

    seq: sequence.Sequence
    proposal: Proposal
    logits: Tensor


class Verification(Protocol):
    """Verifies the rounds of one sequence or of several."""

    def run(self, feeds: Sequence[RoundInput], flat: Tensor | None = None) -> list[Verdict | Exception]:
        """The verdict on each proposal, or the error if its logits are not finite or its processor fails.

        flat: the logits of all feeds one behind the other, where they lie so.
        """
        ...


@dataclass(frozen=True, slots=True)
class EagerVerification:
    """Verifies without a graph, with one read for all verdicts. Sequences of one processor are verified together."""

    verifier: Verifier

    def run(self, feeds: Sequence[RoundInput], flat: Tensor | None = None) -> list[Verdict | Exception]:
        """See `Verification.run`."""
        results = dict[int, Verdict | Exception]()
        packed = [each for members in _alike(feeds) for each in self._packed(feeds, members, results, flat)]
        parts = [part for _, _, part in packed]
        numbers = iter((torch.cat(parts) if len(parts) > 1 else parts[0]).tolist() if parts else ())
        for members, batch, part in packed:
            results.update(zip(members, unpack(batch, [*islice(numbers, len(part))]), strict=True))
        return [results[i] for i in range(len(feeds))]

    def _packed(
        self,
        feeds: Sequence[RoundInput],
        members: list[int],
        results: dict[int, Verdict | Exception],
        flat: Tensor | None = None,
    ) -> Iterator[tuple[list[int], ProposalBatch, Tensor]]:
        """The packed verdict on some sequences.

        If it fails, each is verified alone, and `results` receives the errors.
        """
        mine = [feeds[i] for i in members]
        try:
            rows = flat if len(mine) == len(feeds) else None
            if rows is None:
                rows = torch.cat([feed.logits for feed in mine]) if len(mine) > 1 else mine[0].logits
            batch = ProposalBatch([feed.proposal for feed in mine], rows.device)
            draws = [feed.seq.rng for feed in mine]
            yield members, batch, packed_verdict(self.verifier, mine[0].seq.processor, batch, rows, draws)
        except OUT_OF_MEMORY:
            raise
        except Exception as error:
            if len(members) == 1:
                results[members[0]] = error
                return
            for member in members:
                seq = feeds[member].seq
                seq.rng.at(seq.position)  # what was drawn for all is drawn once more
                yield from self._packed(feeds, [member], results)


def packed_verdict(
    verifier: Verifier, processor: LogitsProcessor, batch: ProposalBatch, logits: Tensor, rngs: Sequence[RNG]
) -> Tensor:
    """The packed verdict (see `pack`) on proposals of one processor, without a device read.

    logits: raw, `[n + B, V]`. With greedy decoding most verifiers follow the argmax, and no one-hot row is written.
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
    """Whether the verdict follows the argmax, whatever is drawn. A custom processor is always called."""
    return type(processor) is GreedyProcessor and verifier.is_argmax_under_greedy


def _alike(feeds: Sequence[RoundInput]) -> Iterator[list[int]]:
    """Groups that are verified together: a single tree, or chains of one processor, drawn or point masses."""
    if len(feeds) == 1:
        yield [0]
        return
    groups = dict[tuple[int, bool], list[int]]()
    for i, feed in enumerate(feeds):
        if feed.proposal.parents is not None:
            yield [i]
        else:
            groups.setdefault((id(feed.seq.processor), feed.proposal.draft_probs is not None), []).append(i)
    yield from groups.values()

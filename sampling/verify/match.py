"""Verifiers that choose the target's token at every node and accept the drafts that equal it."""

from collections.abc import Sequence

from torch import Tensor

from sampling.verify.proposals import ProposalBatch
from sampling.verify.verdict import DeviceVerdict
from sampling.verify.verifier import Verifier, sample_each
from utils.logits_processor import LogitsProcessor
from utils.numbers.argmax import argmax
from utils.numbers.random_numbers import RNG


class TargetMatchVerifier(Verifier):
    """Draws the token from p at each node; a draft is accepted if it equals that token. Lossless.

    The acceptance rate is sum p(x) q(x). Rejection sampling accepts sum min(p(x), q(x)).
    """

    is_argmax_under_greedy = True

    def lossless(self, processor: LogitsProcessor) -> bool:
        return True

    def decide(self, batch: ProposalBatch, p: Tensor, rngs: Sequence[RNG]) -> DeviceVerdict:
        return follow(batch, sample_each(p, rngs, [count + 1 for count in batch.counts]))


class GreedyVerifier(Verifier):
    """Accepts a draft that is the argmax of p; the next token is the argmax as well.

    Lossless with greedy decoding only.
    """

    is_argmax_under_greedy = True

    def lossless(self, processor: LogitsProcessor) -> bool:
        return processor.greedy

    def decide(self, batch: ProposalBatch, p: Tensor, rngs: Sequence[RNG]) -> DeviceVerdict:
        return follow(batch, argmax(p))


def follow(batch: ProposalBatch, wanted: Tensor) -> DeviceVerdict:
    """Walk down the tree while the target's choice at a node, `[n + B]`, is one of the children."""
    if not batch.total:
        return DeviceVerdict(batch.layout.none, wanted)
    end = batch.deepest(wanted.index_select(0, batch.rows) == batch.tokens)
    return DeviceVerdict(end, wanted.index_select(0, batch.behind(end)))

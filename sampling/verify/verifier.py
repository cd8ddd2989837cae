"""The contract of a verifier. A lossless verifier leaves the target's output distribution unchanged.

Terms: a draft is accepted or rejected. After a rejection the target's own token is the recovered token. After full
acceptance it is the bonus token. p is the target's distribution, q the drafter's, both after the processor.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from sampling.proposal import Proposal
from sampling.verify.proposals import ProposalBatch
from sampling.verify.verdict import DeviceVerdict, Verdict, pack, unpack, whole
from utils.logits_processor import LogitsProcessor, inverted, wide
from utils.numbers.random_numbers import RNG, uniform_each


class Verifier(ABC):
    """Judges proposals against the target's distributions.

    is_argmax_under_greedy: whether with greedy decoding its verdict follows the target's argmax, whatever is drawn.
    Each class declares it anew, because a subclass may change `decide`. reads_trees: whether it reads the shape of a
    tree on the host, which a GPU graph cannot do.
    """

    is_argmax_under_greedy = False
    reads_trees = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.is_argmax_under_greedy = vars(cls).get("is_argmax_under_greedy", False)

    @classmethod
    def build(cls, pair: object, values: Mapping[str, Any]) -> Self:
        """The verifier with the given parameters; it needs no model."""
        return cls(**values)

    @abstractmethod
    def lossless(self, processor: LogitsProcessor) -> bool:
        """Whether the output has the target's own distribution under this processor."""

    @abstractmethod
    def decide(self, batch: ProposalBatch, p: Tensor, rngs: Sequence[RNG]) -> DeviceVerdict:
        """The accepted drafts of each proposal and the next token, without a read of the device.

        p: `[n + B, V]` float32, see `ProposalBatch`. rngs: the random numbers of each sequence.
        """

    def verify(self, proposal: Proposal, p: Tensor, rng: RNG) -> Verdict:
        """The verdict on one proposal. p: `[n + 1, V]` float32, row 0 at the root, row i + 1 after draft i.

        Raises `UserError` if a distribution behind the verdict, or the one behind a draft, is NaN or infinite.
        """
        batch = ProposalBatch([proposal], p.device)
        verdict = self.decide(batch, p, [rng])
        packed = pack(batch, verdict, batch.of_drafts(p), batch.of_next(p, verdict.end, verdict.token))
        return whole(unpack(batch, packed.tolist())[0])


def sample_each(p: Tensor, rngs: Sequence[RNG], counts: Sequence[int] | None = None) -> Tensor:
    """A token of each row `[m, V]`, with the random numbers of its own sequence; counts: rows of each, 1 by default."""
    shapes = [(1 if counts is None else counts[i], 1) for i in range(len(rngs))]
    return inverted(p, uniform_each(shapes, rngs, p.device, wide(p.device), "token"))


def coins_each(batch: ProposalBatch, rngs: Sequence[RNG]) -> Tensor:
    """A uniform random number for each draft `[n]`, which decides its acceptance."""
    return uniform_each([(count,) for count in batch.counts], rngs, batch.device, torch.float32, "coin")

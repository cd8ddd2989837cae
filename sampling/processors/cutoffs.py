"""Cut-offs of a distribution, row by row: tokens that are too unlikely are left out, and the rest is renormalised.

They follow temperature, top-k and top-p, in the order of `CUTOFFS`, which is transformers'. The most likely token of a
row always stays.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from utils.logits_processor import LogitsProcessor


class Cutoff(ABC):
    """Says which tokens of a distribution stay."""

    @abstractmethod
    def stays(self, probs: Tensor) -> Tensor:
        """Whether each token stays, `[n, V]` bool, of probabilities `[n, V]`."""


@dataclass(frozen=True, slots=True)
class TopNSigma(Cutoff):
    """Logits within n standard deviations of the largest one (arXiv 2411.07641), of the tokens that are left."""

    n: float

    def stays(self, probs: Tensor) -> Tensor:
        """See `Cutoff.stays`. A logit less a constant is as good as the logit."""
        there = probs > 0.0
        logits = torch.where(there, probs.log(), 0.0)
        count = there.sum(-1, keepdim=True)
        mean = logits.sum(-1, keepdim=True) / count
        spread = (torch.where(there, logits - mean, 0.0).square().sum(-1, keepdim=True) / count).sqrt()
        return there & (logits >= probs.amax(-1, keepdim=True).log() - self.n * spread)


@dataclass(frozen=True, slots=True)
class MinP(Cutoff):
    """At least so large a share of the most likely token's probability (arXiv 2407.01082)."""

    share: float

    def stays(self, probs: Tensor) -> Tensor:
        """See `Cutoff.stays`."""
        return probs >= self.share * probs.amax(-1, keepdim=True)


@dataclass(frozen=True, slots=True)
class TypicalP(Cutoff):
    """The tokens whose surprise is nearest to the entropy, up to a mass (arXiv 2202.00666)."""

    mass: float

    def stays(self, probs: Tensor) -> Tensor:
        """See `Cutoff.stays`."""
        surprise = -probs.log()
        away = (surprise - _entropy(probs)).abs()
        order = away.argsort(-1)
        reached = (probs.gather(-1, order).cumsum(-1) < self.mass).sum(-1, keepdim=True)
        edge = away.gather(-1, order.gather(-1, reached.clamp(max=probs.shape[-1] - 1)))
        return (away <= edge) | (torch.arange(probs.shape[-1], device=probs.device) == order[..., :1])


@dataclass(frozen=True, slots=True)
class Epsilon(Cutoff):
    """At least so large a probability (arXiv 2210.15191)."""

    least: float

    def stays(self, probs: Tensor) -> Tensor:
        """See `Cutoff.stays`."""
        return (probs >= self.least) | _likeliest(probs)


@dataclass(frozen=True, slots=True)
class Eta(Cutoff):
    """At least min(e, sqrt(e) exp(-entropy)) (arXiv 2210.15191)."""

    epsilon: float

    def stays(self, probs: Tensor) -> Tensor:
        """See `Cutoff.stays`."""
        least = torch.exp(-_entropy(probs)) * math.sqrt(self.epsilon)
        return _likeliest(probs) | (probs >= least.clamp(max=self.epsilon))


class CutProcessor(LogitsProcessor):
    """A processor whose distributions are cut further."""

    def __init__(self, processor: LogitsProcessor, cutoffs: Sequence[Cutoff]) -> None:
        self.processor, self.cutoffs = processor, tuple(cutoffs)

    def __call__(self, logits: Tensor) -> Tensor:
        probs = self.processor(logits)
        for cutoff in self.cutoffs:
            probs = torch.where(cutoff.stays(probs), probs, 0.0)
            probs = probs / probs.sum(-1, keepdim=True)
        return probs


def _entropy(probs: Tensor) -> Tensor:
    entropy: Tensor = torch.special.entr(probs)
    return entropy.sum(-1, keepdim=True)


def _likeliest(probs: Tensor) -> Tensor:
    return probs >= probs.amax(-1, keepdim=True)

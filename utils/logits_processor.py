"""From raw logits to the distribution that is sampled: temperature, then top-k, then top-p.

A processor maps logits `[n, V]` to probabilities `[n, V]` in float32, row by row, and never edits its
argument. Greedy is one of them: it returns a one-hot row, so that nothing downstream has to know.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from utils.numbers.argmax import argmax
from utils.numbers.largest import largest
from utils.numbers.random_numbers import RNG, Purpose, uniform
from utils.sampling_parameters import TEMPERATURE, TOP_K, TOP_P

_NUCLEUS_FIRST_LOOK = 256
_BLOCK = 256
_BY_BLOCKS = 16 * _BLOCK


class LogitsProcessor(ABC):
    """Distribution after the user's sampling settings; `greedy` says that every row is one-hot.

    The constructors raise `UserError` for a temperature outside [1e-10, 1e10], a top_k below 1, a top_p outside (0, 1].
    Logits that are no distribution, because the best of them is NaN or infinite, come out as NaN.
    A class of your own overrides `__call__`; one that overrides `sample`, or `_process` of other repositories, raises
    `TypeError`: the loop calls neither.
    """

    greedy: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in ("_process", "sample"):
            if name in vars(cls):
                raise TypeError(
                    f"{cls.__name__}.{name} would never be called; override __call__: logits in, probabilities out"
                )

    @classmethod
    def build(cls, pair: object, values: Mapping[str, Any]) -> Self:
        """The processor with the given arguments; it needs no model."""
        return cls(**values)

    @abstractmethod
    def __call__(self, logits: Tensor) -> Tensor:
        """Probabilities `[n, V]` (float32, rows sum to 1) from logits `[n, V]` of any dtype."""

    def sample(self, probs: Tensor, rng: torch.Generator | None = None) -> Tensor:
        """One token id a row, `[n]`, drawn from `probs` with a generator, or with torch's own."""
        return sample(probs, rng)


def one_of_alike(processor: LogitsProcessor) -> LogitsProcessor:
    """The same object for all processors of this file with the same values: what is asked of them is asked at once.

    One of somebody's own may hold state, and stays itself.
    """
    if type(processor).__module__ != __name__:
        return processor
    return _alike(type(processor), tuple(vars(processor).items()))


@lru_cache(maxsize=256)
def _alike(kind: type[LogitsProcessor], values: tuple[tuple[str, Any], ...]) -> LogitsProcessor:
    made = kind.__new__(kind)
    vars(made).update(values)
    return made


def sample(probs: Tensor, coins: RNG | None, purpose: Purpose = "token") -> Tensor:
    """One token id a row: `[n]` from probabilities `[n, V]`, by inverting the cumulative sum.

    One uniform number a row in double precision; `torch.multinomial` draws V of them, which at 50,000
    tokens costs several times as much. A token of probability 0 is never drawn.
    """
    return inverted(probs, uniform((probs.shape[0], 1), coins, probs.device, wide(probs.device), purpose))


def inverted(probs: Tensor, coin: Tensor) -> Tensor:
    """The token of each row `[n, V]` at which its cumulative sum passes a number `[n, 1]` between 0 and 1.

    A large vocabulary is summed up by blocks, of which only the one that is met is looked into: many rows of double
    precision would not fit into a cache.
    """
    format, size = wide(probs.device), probs.shape[-1]
    if size < _BY_BLOCKS:
        mass = probs.cumsum(-1, dtype=format)
        return _passed(mass, coin * mass[:, -1:]).squeeze(-1)
    count = -(-size // _BLOCK)
    padding = count * _BLOCK - size
    blocks = (F.pad(probs, (0, padding)) if padding else probs).reshape(-1, count, _BLOCK)
    mass = blocks.sum(-1, dtype=format).cumsum(-1)
    wanted = coin * mass[:, -1:]
    block = _passed(mass, wanted)
    before = torch.where(block > 0, mass.gather(1, (block - 1).clamp(min=0)), 0.0)
    within = blocks.gather(1, block.unsqueeze(-1).expand(-1, -1, _BLOCK)).squeeze(1).cumsum(-1, dtype=format)
    return (block * _BLOCK + _passed(within, wanted - before)).clamp(max=size - 1).squeeze(-1)


def _passed(mass: Tensor, wanted: Tensor) -> Tensor:
    """Where cumulative sums `[n, m]` pass a number `[n, 1]`, at the latest where they reach their end."""
    last = torch.searchsorted(mass, mass[:, -1:].contiguous())
    return torch.minimum(torch.searchsorted(mass, wanted, right=True), last).clamp(max=mass.shape[-1] - 1)


def wide(device: torch.device) -> torch.dtype:
    """The widest number format of a device."""
    return torch.float32 if device.type == "mps" else torch.float64


def one_if_finite(logits: Tensor) -> Tensor:
    """1 for each logit in float32, NaN for one that is NaN or infinite."""
    return (logits - logits).float() + 1.0


class GreedyProcessor(LogitsProcessor):
    """One-hot at the argmax, the lowest id on a tie; a temperature is accepted and has no effect."""

    greedy = True

    def __init__(self, temperature: float = 1.0) -> None:
        self.temperature = TEMPERATURE.checked(temperature)

    def __call__(self, logits: Tensor) -> Tensor:
        best = argmax(logits).unsqueeze(-1)
        finite = one_if_finite(logits.gather(-1, best))
        return (finite - 1.0).expand(logits.shape).contiguous().scatter_(-1, best, finite)


class MultinomialProcessor(LogitsProcessor):
    """Softmax at a temperature from 1e-10 to 1e10."""

    def __init__(self, temperature: float) -> None:
        self.temperature = TEMPERATURE.checked(temperature)

    def __call__(self, logits: Tensor) -> Tensor:
        return _softmax(logits, self.temperature)


class TopKProcessor(LogitsProcessor):
    """The `top_k` most likely tokens; ties with the last stay in, so a row's set depends on that row alone."""

    def __init__(self, temperature: float, top_k: int) -> None:
        self.temperature, self.top_k = TEMPERATURE.checked(temperature), TOP_K.checked(top_k)

    def __call__(self, logits: Tensor) -> Tensor:
        return _renormalise(_top_k(_softmax(logits, self.temperature), self.top_k))


class NucleusProcessor(LogitsProcessor):
    """The smallest set of most likely tokens whose mass reaches `top_p` (ties at its edge stay in)."""

    def __init__(self, temperature: float, top_p: float) -> None:
        self.temperature, self.top_p = TEMPERATURE.checked(temperature), TOP_P.checked(top_p)

    def __call__(self, logits: Tensor) -> Tensor:
        return _renormalise(_top_p(_softmax(logits, self.temperature), self.top_p))


class TopKNucleusProcessor(LogitsProcessor):
    """Top-k, renormalised, then top-p."""

    def __init__(self, temperature: float, top_k: int, top_p: float) -> None:
        self.temperature = TEMPERATURE.checked(temperature)
        self.top_k, self.top_p = TOP_K.checked(top_k), TOP_P.checked(top_p)

    def __call__(self, logits: Tensor) -> Tensor:
        probs = _softmax(logits, self.temperature)
        top = largest(probs, min(self.top_k, probs.shape[-1]))
        kept = _at_least(probs, top[..., -1:])
        mass = kept.sum(dim=-1, keepdim=True)
        kept.div_(mass)
        if self.top_p >= 1.0:
            return kept
        return _renormalise(_at_least(kept, _reaching(top.div_(mass), self.top_p)[0]))


def _softmax(logits: Tensor, temperature: float) -> Tensor:
    return torch.softmax(logits.float() / temperature, dim=-1)


def _renormalise(probs: Tensor) -> Tensor:
    """In place: each row divided by its sum."""
    return probs.div_(probs.sum(dim=-1, keepdim=True))


def _at_least(probs: Tensor, edge: Tensor) -> Tensor:
    """Probabilities `[n, V]`, 0 where they are below their row's edge `[n, 1]`; NaN stays NaN.

    The comparison is written as float32: on a CPU a mask of bool costs five times as much.
    """
    return torch.ge(probs, edge, out=torch.empty_like(probs)).mul_(probs)


def _top_k(probs: Tensor, k: int) -> Tensor:
    return _at_least(probs, largest(probs, min(k, probs.shape[-1]))[..., -1:])


def _top_p(probs: Tensor, p: float) -> Tensor:
    """Cut by value: the edge is the probability of the token whose cumulative mass first reaches p.

    A nucleus is nearly always within the first few hundred tokens. Rows where it is not are sorted whole. On CUDA to
    look would be to wait, and all rows are sorted at once.
    """
    if p >= 1.0:
        return probs
    look = probs.shape[-1] if probs.device.type == "cuda" else _NUCLEUS_FIRST_LOOK
    return _at_least(probs, _nucleus_edge(probs, p, look))


def _nucleus_edge(probs: Tensor, p: float, look: int) -> Tensor:
    """The least probability of each row's nucleus, `[n, 1]`; looks at the `look` most likely tokens first."""
    size = probs.shape[-1]
    edge, mass = _reaching(largest(probs, min(look, size)), p)
    if look < size and bool((short := mass < p).any()):
        edge[short] = _nucleus_edge(probs[short], p, size)
    return edge


def _reaching(top: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """The descending probability `[n, 1]` at which each row's `[n, k]` cumulative mass reaches p, and its whole mass.

    Where p is not reached it is the last one.
    """
    mass = top.cumsum(dim=-1)
    last = (mass < p).sum(dim=-1, keepdim=True).clamp(max=top.shape[-1] - 1)
    return top.gather(-1, last), mass[..., -1]

"""A model of a few numbers whose output depends on every cached row, position and mask entry it may see.

One forward takes tens of microseconds, so that distributions can be tested by drawing thousands of runs; a wrong
cache row, position or mask changes its logits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor

from sampling.forward.caches.cache import RollbackCache
from sampling.forward.causal_model import PromptReading
from sampling.forward.runner import ModelRunner
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from tests.heads import CachingPair, random_heads

VOCAB = 6
WINDOW = 48
PROMPT = (1, 4, 2, 0)
# For laws of what is drawn from distributions: a head has no row of it to read before its first draft.
SHORT = PROMPT[:2]


@dataclass
class ToyModel:
    """Attention by distance over the tokens in sight, exp(-|pos_i - pos_j| / 4), through a sine that
    makes the logits jump at any change of what is seen, or of the position."""

    weights: Tensor
    sharpness: float = 2.0
    window: int = WINDOW
    num_layers: int = 1
    trees: bool = True
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32

    @property
    def vocab_size(self) -> int:
        return self.weights.shape[1]

    @property
    def embedding(self) -> Tensor:
        return self.weights

    def output_rows(self, ids: Tensor) -> Tensor:
        return self.weights.T[ids]

    def landmarks(self) -> dict[str, Tensor]:
        return {"weights": self.weights}

    def new_cache(self) -> RollbackCache:
        return RollbackCache(1, self.device, self.dtype)

    def read(self, prompt: Sequence[int]) -> PromptReading:
        return PromptReading(list(prompt))

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: RollbackCache,
        hidden: Sequence[int],
        rows: int,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        keys = torch.nn.functional.one_hot(tokens, self.vocab_size).float()[None, None]
        places = positions.float()[None, None, :, None]
        keys, places = cache.layers[0].write(keys, places)
        distance = positions.float()[:, None] - places[0, 0, :, 0]
        scores = -distance.abs() / 4 if mask is None else mask - distance.abs() / 4
        states = torch.softmax(scores, -1) @ keys[0, 0]
        logits = self.sharpness * torch.sin(20.0 * states @ self.weights + positions.float()[:, None])
        return logits[len(tokens) - rows :], dict.fromkeys(hidden, states)


@cache
def toy_model(seed: int, window: int = WINDOW) -> ToyModel:
    """A toy model, whose weights nobody changes."""
    generator = torch.Generator().manual_seed(seed)
    return ToyModel(torch.randn(VOCAB, VOCAB, generator=generator), window=window)


def toy_runner(seed: int, window: int = WINDOW) -> ModelRunner:
    """A toy model with its cache."""
    return ModelRunner(toy_model(seed, window))


def toy_pair(drafter_seed: int | None = 1, window: int = WINDOW, stop: frozenset[int] = frozenset()) -> Pair:
    """A target and a drafter that disagrees with it; seed None = the drafter is the target's twin."""
    target = toy_runner(0, window=window)
    drafter = toy_runner(0 if drafter_seed is None else drafter_seed)
    info = ModelInfo("toy", "cpu", "float32")
    heads = random_heads(VOCAB, 1, WINDOW, (0, 1, 2, 4, 5), VOCAB)
    return CachingPair(target, drafter, None, stop, info, heads=heads, drafter_heads=heads)  # type: ignore[arg-type]

"""Controls of a walk: what must be accepted nowhere, and what everywhere, if places and masks are right.

A drafter against the target's rows of one place later must fail. The target as its own drafter must succeed. A reader
that drafts the next token in sight sees nothing of it behind a causal mask, and all of it without one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from sampling.forward.caches.cache import RollbackCache
from sampling.forward.causal_model import PromptReading
from sampling.forward.runner import ModelRunner
from sampling.measure.acceptance.estimate import IntervalEstimate, shares
from sampling.measure.acceptance.fed import FedModel
from sampling.measure.acceptance.met import Met
from sampling.measure.acceptance.reading import GivenText
from sampling.measure.acceptance.target_rows import TargetRows
from sampling.measure.acceptance.walk import walk_along
from sampling.measure.acceptance.walkers import FedWalker, Walker, target_itself
from sampling.pair.pair import Pair
from utils.logits_processor import LogitsProcessor

_SURE, _READER = 1000.0, "next token in sight"
LITTLE, NEARLY_ALL, ALL = 0.15, 0.9, 0.999
"""What controls that must fail may reach, and what those that must succeed have to."""


@dataclass(frozen=True, slots=True)
class Control:
    """A control's acceptance of first drafts, and whether it is as it must be: at most or at least `bound`.

    Of the readers: how often the first draft is the text's own token, where the target could say that.
    """

    name: str
    found: IntervalEstimate
    most: bool
    bound: float

    @property
    def held(self) -> bool:
        """Whether it is."""
        return self.found.value <= self.bound if self.most else self.found.value >= self.bound


class Shifted:
    """A walker that is judged by the target's rows of one place later."""

    def __init__(self, walker: Walker) -> None:
        self._walker, self.layers, self.fed = walker, walker.layers, walker.fed

    def begin(self, text: GivenText) -> None:
        """See `Walker`."""
        self._walker.begin(text)

    def enter(self, met: Met, block: TargetRows) -> None:
        """See `Walker`. The text's last row has none after it, and stays."""
        probs = None if block.probs is None else _later(block.probs)
        self._walker.enter(met, replace(block, best=_later(block.best), probs=probs))

    def end(self, met: Met) -> None:
        """See `Walker`."""
        self._walker.end(met)


def _later(rows: Tensor) -> Tensor:
    return torch.cat([rows[1:], rows[-1:]])


@dataclass
class NextInSight:
    """A causal model that says the token which follows, if a row of it is in sight, else token 0.

    masked: whether it minds the mask. Rows of the cache hold (token, position).
    """

    vocab_size: int
    window: int
    masked: bool
    num_layers: int = 1
    trees: bool = True
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32

    @property
    def embedding(self) -> Tensor:
        """It has no weights."""
        return torch.empty(self.vocab_size, 0)

    def output_rows(self, ids: Tensor) -> Tensor:
        """See `CausalModel`."""
        return self.embedding[ids]

    def landmarks(self) -> dict[str, Tensor]:
        """See `CausalModel`."""
        return {}

    def new_cache(self) -> RollbackCache:
        """See `CausalModel`."""
        return RollbackCache(1, self.device, self.dtype)

    def read(self, prompt: Sequence[int]) -> PromptReading:
        """See `CausalModel`."""
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
        """See `CausalModel`: one logit stands out, the token that is said."""
        ids, places = cache.layers[0].write(tokens.float()[None, None, :, None], positions.float()[None, None, :, None])
        held, at = ids[0, 0, :, 0].long(), places[0, 0, :, 0]
        after = at == positions.float().unsqueeze(1) + 1.0
        seen = after if mask is None or not self.masked else after & (mask.view(len(tokens), -1) == 0.0)
        said = torch.where(seen.any(1), held[seen.int().argmax(1)], 0)
        logits = _SURE * torch.nn.functional.one_hot(said, self.vocab_size).float()
        return logits[len(tokens) - rows :], {}


def _reader(pair: Pair, masked: bool) -> Walker:
    runner = ModelRunner(NextInSight(pair.target.vocab_size, pair.target.window, masked))
    return FedWalker(FedModel(runner))


def controls(
    pair: Pair, texts: Sequence[GivenText], walkers: Mapping[str, Walker], processor: LogitsProcessor
) -> list[Control]:
    """The controls on these texts, those of each walker first."""
    shifted = {f"{name}, target shifted by one": Shifted(walker) for name, walker in walkers.items()}
    fixed: dict[str, tuple[Walker, bool, float]] = {
        f"{_READER}, causal mask": (_reader(pair, True), True, LITTLE),
        f"{_READER}, no causal mask": (_reader(pair, False), False, NEARLY_ALL),
        "the target as its own drafter": (target_itself(pair), False, ALL),
    }
    all_walkers = {**shifted, **{name: walker for name, (walker, _, _) in fixed.items()}}
    mets = [walk_along(pair, text, all_walkers, processor, 1) for text in texts]
    found = {name: _first([met[name] for met in mets], name.startswith(_READER)) for name in all_walkers}
    return [
        *(Control(name, found[name], True, LITTLE) for name in shifted),
        *(Control(name, found[name], most, bound) for name, (_, most, bound) in fixed.items()),
    ]


def _first(mets: Sequence[Met], said: bool) -> IntervalEstimate:
    chances = [(met.follow if said else met.accept)[met.drafted[:, 0], 0] for met in mets]
    parts = np.array([[np.nansum(chance)] for chance in chances])
    return shares(parts, np.array([[float((~np.isnan(chance)).sum())] for chance in chances]))[0]

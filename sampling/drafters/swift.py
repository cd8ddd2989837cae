"""SWIFT (arXiv 2410.06916): the target drafts for itself without some of its layers, which a search finds meanwhile."""

from collections import abc
from dataclasses import dataclass
from typing import Any, Self

import torch

from egag.controller import GammaController
from sampling.drafter import AskingDrafter, Drafter
from sampling.drafters.model import ModelDrafter
from sampling.events import Round
from sampling.forward.asked import Asking
from sampling.forward.runner import ModelRunner, Runners
from sampling.forward.traffic import Traffic
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.argmax import argmax
from utils.coins import Draws
from utils.errors import UserError

_LONGEST = 8
Layers = tuple[int, ...]


@dataclass(slots=True)
class Search:
    """How far the search is: the best layers so far, and how many other sets were tried."""

    layers: Layers
    tried: int = 0


class SwiftDrafter(AskingDrafter):
    """A model drafter whose model is the target without some of its layers.

    Each round tries another set, which differs from the best one by a layer or two, until `swift_trials` were tried:
    both say what follows each of the last `swift_window` new tokens, and the one that promises more tokens a second
    stays. With `swift_remember` what was found outlives the prompt, as in the paper.
    """

    def __init__(
        self,
        pair: Any,
        swift_skip: float = 0.5,
        swift_trials: int = 100,
        swift_window: int = 32,
        swift_remember: bool = True,
    ) -> None:
        self._pair, self.count = pair, pair.target.model.num_layers
        self.trials, self.window, self.remember = swift_trials, swift_window, swift_remember
        self.start = evenly(self.count, swift_skip)
        self.found = Search(self.start)
        self._drafters: dict[Layers, ModelDrafter] = {}

    @classmethod
    def build(cls, pair: Any, values: abc.Mapping[str, Any]) -> Self:
        if not pair.has("layers"):
            raise UserError(pair.lack("layers"))
        return cls(pair, **values)

    def begin(self, seq: Sequence) -> None:
        found = self.found if self.remember else Search(self.start)
        seq.drafting[self] = Search(found.layers, found.tried)
        self._of(found.layers).begin(seq)

    def drafting(self, seq: Sequence, gamma: GammaController, limit: int) -> Asking[Proposal]:
        return (yield from self._of(seq.drafting[self].layers).drafting(seq, gamma, limit))

    def observe(self, seq: Sequence, round: Round) -> None:
        search: Search = seq.drafting[self]
        self._of(search.layers).observe(seq, round)
        if search.tried < self.trials and seq.new_tokens >= self.window and self.count > 1 and seq.reason is None:
            search.tried += 1
            self._try(seq, search, neighbour(search.layers, self.count, seq.draws))
        if seq.reason is not None and self.remember and search.tried > self.found.tried:
            self.found = search

    def adopt(self, earlier: Drafter) -> None:
        if isinstance(earlier, SwiftDrafter) and self.remember and earlier.found.layers[-1] < self.count:
            self.found = Search(earlier.found.layers, earlier.found.tried)

    def memory(self) -> str:
        if not self.remember or not self.found.tried:
            return ""
        return f"{len(self.found.layers)} of {self.count} layers, the best of {self.found.tried + 1} sets"

    def cost(self, layers: Layers) -> float:
        """What a forward through these layers reads of what one through all of them reads."""
        whole, part = (Traffic.of(model) for model in (self._pair.target.model, self._model(layers)))
        return part.weights / whole.weights if whole and part else len(layers) / self.count

    @torch.inference_mode()
    def agreement(self, seq: Sequence, layers: Layers) -> float:
        """Which share of the last `swift_window` tokens these layers would have drafted, one right and one wrong added.

        As many tokens before them are read as well, and nothing of the text before those.
        """
        text = seq.tokens[-2 * self.window - 1 :]
        runner = ModelRunner(self._model(layers), self._pair.target.vocab_size)
        said: list[int] = argmax(runner.forward(text[:-1], rows=self.window).logits).tolist()
        right = sum(one == other for one, other in zip(said, text[-self.window :], strict=True))
        return (right + 1) / (self.window + 2)

    def _try(self, seq: Sequence, search: Search, other: Layers) -> None:
        best, tried = (promise(self.agreement(seq, one), self.cost(one)) for one in (search.layers, other))
        if tried > best:
            search.layers = other
            self._of(other).begin(seq)

    def _of(self, layers: Layers) -> ModelDrafter:
        if layers not in self._drafters:
            pair = self._pair
            runner: Runners = pair.target.on(self._model(layers))
            self._drafters[layers] = ModelDrafter(pair.share(runner) if pair.share else runner)
        return self._drafters[layers]

    def _model(self, layers: Layers) -> Any:
        return self._pair.target.model.through(layers)


def evenly(count: int, skip: float) -> Layers:
    """Of so many layers all but the share `skip`, the first and the last among them where two are left.

    Example: 6 layers, 0.5 -> (0, 2, 5).
    """
    kept = max(1, round(count * (1.0 - skip)))
    return tuple(place * (count - 1) // max(1, kept - 1) for place in range(kept))


def neighbour(layers: Layers, count: int, draws: Draws) -> Layers:
    """Another set, never an empty one: a layer drawn at random changes sides, and in every other trial a second one."""
    numbers: list[float] = draws.within().uniform((3,), torch.float64, "draft").tolist()
    first, second = (int(number * count) for number in numbers[:2])
    changed = {first, second} if numbers[2] < 0.5 else {first}
    return tuple(sorted({*layers} ^ changed)) or (first,)


def promise(agreement: float, cost: float) -> float:
    """Tokens a second over plain decoding's, with the best draft length of up to 8.

    A draft is right at the rate of `agreement`, whatever came before, and costs `cost` forwards; verifying costs one.
    """
    tokens = seconds = 1.0
    best = 0.0
    for length in range(1, _LONGEST + 1):
        tokens += agreement**length
        seconds += cost
        best = max(best, tokens / seconds)
    return best

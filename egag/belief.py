"""What a drafter believes of the next token, as the rules read it: from its logits, or from a record of them."""

from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from egag.entropy import entropy

Token = Tensor | int


class Belief(Protocol):
    """The drafter's raw distribution at temperature 1 for one draft.

    size: of the vocabulary. entropy: nats. top: the probability of the most likely token. chance: that of a token.
    """

    @property
    def size(self) -> int: ...
    @property
    def entropy(self) -> float: ...
    @property
    def top(self) -> float: ...
    def chance(self, token: Token) -> float: ...


class Logits:
    """The belief that raw logits `[V]` stand for; each figure is computed when it is first asked for."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    @property
    def size(self) -> int:
        return self.logits.shape[-1]

    @cached_property
    def entropy(self) -> float:
        return entropy(self.logits).item()

    @cached_property
    def top(self) -> float:
        return self._probs.max().item()

    def chance(self, token: Token) -> float:
        return self._probs[token].item()

    @cached_property
    def _probs(self) -> Tensor:
        return torch.softmax(self.logits.float(), dim=-1)

"""The drafter's distribution of the next token, as rules read it: from its logits or from a record."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from egag.entropy import entropy
from utils.errors import UserError

Token = Tensor | int


class DraftDistribution(Protocol):
    """The drafter's raw distribution at temperature 1 for one draft.

    size: the size of the vocabulary. entropy: nats. top: the probability of the most probable token. chance: the
    probability of a token. acceptance: the acceptance that the drafter's head predicts for the draft; None without such
    a head.
    """

    @property
    def size(self) -> int: ...
    @property
    def entropy(self) -> float: ...
    @property
    def top(self) -> float: ...
    @property
    def acceptance(self) -> float | None: ...
    def chance(self, token: Token) -> float: ...


class LogitsDistribution:
    """The distribution of raw logits `[V]`; each value is computed at its first use.

    acceptance: `[1]`, or None.
    """

    def __init__(self, logits: Tensor, acceptance: Tensor | None = None) -> None:
        self.logits, self._acceptance = logits, acceptance

    @property
    def size(self) -> int:
        return self.logits.shape[-1]

    @cached_property
    def entropy(self) -> float:
        return entropy(self.logits, self._probs).item()

    @cached_property
    def top(self) -> float:
        return self._probs.max().item()

    @cached_property
    def acceptance(self) -> float | None:
        return None if self._acceptance is None else self._acceptance.item()

    def chance(self, token: Token) -> float:
        if isinstance(token, Tensor):  # token as an index would cost a second device read
            return self._probs.index_select(0, token.view(1)).item()
        return self._probs[token].item()

    @cached_property
    def _probs(self) -> Tensor:
        return torch.softmax(self.logits.float(), dim=-1)


@dataclass(frozen=True, slots=True)
class RecordedDistribution:
    """A recorded distribution: its values, and the probability of the drafted token."""

    size: int
    entropy: float
    top: float
    token: int
    token_chance: float
    acceptance: float | None = None

    def chance(self, token: Token) -> float:
        """Raises `UserError` for any token other than the drafted one, whose probability alone was recorded."""
        if int(token) != self.token:
            raise UserError(f"the record holds the chance of the draft {self.token}, not of {int(token)}")
        return self.token_chance

"""The drafter's distribution of the next token, as rules read it: from its logits or from a record."""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from egag.entropy import entropy
from utils.errors import UserError

Token = Tensor | int


def drafted_logits(logits: Tensor, draft_ids: Tensor | None) -> Tensor:
    """Logits `[..., D]` of the tokens that have a chance, of all `[..., V]`. draft_ids: see `LogitsDistribution`."""
    return logits if draft_ids is None else logits.index_select(-1, draft_ids)


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
    """The distribution of raw logits `[V]`; each value is computed at its first use, while the logits are there.

    acceptance: `[1]`, or None. draft_ids: `[D]`, ascending, outside of which no token has a chance; None: any has.
    """

    def __init__(self, logits: Tensor, acceptance: Tensor | None = None, draft_ids: Tensor | None = None) -> None:
        self.logits, self._acceptance, self._draft_ids = logits, acceptance, draft_ids

    @property
    def size(self) -> int:
        return self.logits.shape[-1]

    @cached_property
    def nats(self) -> Tensor:
        """The entropy on the device, `[]`."""
        return entropy(self._likely, self._probs)

    @cached_property
    def entropy(self) -> float:
        return self.nats.item()

    @cached_property
    def top(self) -> float:
        return self._probs.max().item()

    @cached_property
    def acceptance(self) -> float | None:
        return None if self._acceptance is None else self._acceptance.item()

    def chance(self, token: Token) -> float:
        # The probability is read on the device: a token as an index would cost a second read.
        place = torch.as_tensor(token, device=self.logits.device).view(1)
        if self._draft_ids is None:
            return self._probs.index_select(0, place).item()
        ids = self._draft_ids
        at = torch.searchsorted(ids, place).clamp(max=len(ids) - 1)
        return (self._probs.index_select(0, at) * (ids.index_select(0, at) == place)).item()

    @cached_property
    def _likely(self) -> Tensor:
        """The logits of the tokens that have a chance."""
        return drafted_logits(self.logits, self._draft_ids)

    @cached_property
    def _probs(self) -> Tensor:
        return torch.softmax(self._likely.float(), dim=-1)


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

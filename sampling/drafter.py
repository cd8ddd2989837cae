"""The contract of a drafter, and the drafter that drafts nothing (= plain autoregression)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from egag.controller import GammaController
from sampling.events import Step
from sampling.proposal import Proposal
from utils.logits_processor import LogitsProcessor

if TYPE_CHECKING:
    from sampling.forward.runner import ModelRunner


@dataclass(slots=True)
class Context:
    """One sequence, whole: what a drafter may read.

    tokens: prompt and output so far; where an encoder read the prompt (`source`), what the decoder began with
    and the output. target: the runner, with the sequence's cache. logits `[n + 1, V]` are the target's raw
    rows of the round just judged (row 0 = root, row i + 1 = after draft i), and `hidden` maps each layer of
    `needs_hidden` to the states `[m, H]` of the positions just committed.
    """

    tokens: list[int]
    prompt_length: int
    target: "ModelRunner"
    processor: LogitsProcessor
    rng: torch.Generator
    logits: Tensor | None = None
    hidden: dict[int, Tensor] = field(default_factory=dict)
    source: tuple[int, ...] = ()

    @property
    def text(self) -> list[int]:
        """What can be copied from: all tokens, behind the source where there is one."""
        return [*self.source, *self.tokens] if self.source else self.tokens

    @property
    def device(self) -> torch.device:
        """Where proposals, probabilities and the generator live."""
        return self.target.device


class Drafter(ABC):
    """Proposes what the target may say next. State is the drafter's own and starts anew in `begin`."""

    needs_hidden: tuple[int, ...] = ()

    @classmethod
    @abstractmethod
    def build(cls, pair: Any, values: Mapping[str, Any]) -> Self:
        """The drafter for a loaded pair of models with the given parameters."""

    def begin(self, ctx: Context) -> None:  # noqa: B027
        """A new prompt: forget the last one, read `ctx.tokens[:-1]` if that helps. Timed as prefill."""

    @abstractmethod
    def propose(self, ctx: Context, gamma: GammaController, limit: int) -> Proposal:
        """At most `min(gamma.gamma, limit)` drafts deep; an empty proposal makes the round plain AR."""

    def observe(self, ctx: Context, step: Step) -> None:  # noqa: B027
        """Learn from a judged round; `ctx.tokens` already ends with `step.emitted`."""

    def finish(self, ctx: Context) -> None:  # noqa: B027
        """The text is whole, after its last `observe`. Not called for a run that was abandoned."""

    def adopt(self, earlier: "Drafter") -> None:  # noqa: B027
        """Go on with what `earlier`, of the same kind, remembers of earlier prompts, as far as it fits."""

    def memory(self) -> str:
        """What is kept of earlier prompts and how much room it takes, in words; empty where nothing is."""
        return ""


class NullDrafter(Drafter):
    """Drafts nothing: plain autoregression through the same loop."""

    @classmethod
    def build(cls, pair: Any, values: Mapping[str, Any]) -> Self:
        return cls()

    def propose(self, ctx: Context, gamma: GammaController, limit: int) -> Proposal:
        return Proposal.empty(ctx.device)

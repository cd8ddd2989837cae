"""EAGLE and MTP draft: a block continues the target's hidden states."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from sampling.drafter import Context
from sampling.drafters.draft_tree import TreeShape
from sampling.drafters.steps import StepDrafter
from sampling.events import Step
from sampling.forward.int8 import Int8Linear
from sampling.heads.inference import RecurrentForward, RecurrentRunner


class RecurrentDrafter(StepDrafter):
    """Row t of its cache joins the state of position t with token t + 1; drafts continue its own states.

    Rows of drafts never outlive their round: when the target has judged, its own states take their place.
    """

    method: str

    def __init__(
        self, forward: RecurrentForward, features: Sequence[int], shape: TreeShape | None = None, cached: bool = True
    ) -> None:
        self.needs_hidden = tuple(features)
        self.shape = shape
        self._runner, self._cached = RecurrentRunner(forward), cached
        self._features: list[Tensor] = []
        self._known = 0

    @classmethod
    def build(cls, pair: Any, values: Mapping[str, Any]) -> Self:
        head, target = pair.head(cls.method), pair.target.model
        forward = RecurrentForward.of(head, target)
        if pair.drafts_in_int8(cls.method, values["draft_weights"]):
            forward = forward.with_kernel(Int8Linear)
        return cls(forward, head.config.features, TreeShape.of(head.config, values), pair.cached)

    def begin(self, ctx: Context) -> None:
        self._runner.crop(0)
        self._features, self._known = [], 0
        self._learn(ctx)
        if self._cached and self._known > 1 and self.room(ctx) > 0:
            self._read_prompt(ctx.tokens)

    def observe(self, ctx: Context, step: Step) -> None:
        self._learn(ctx)

    def room(self, ctx: Context) -> int:
        return self._runner.window - len(ctx.tokens) if self._known else 0

    def root(self, ctx: Context) -> Tensor:
        if not self._cached:
            self._runner.crop(0)
        feature = torch.cat(self._features)
        if self._cached:
            self._features = []
        start = self._runner.length
        tokens = torch.tensor(ctx.tokens[start + 1 :], device=feature.device)
        return self._runner.feed(tokens, feature)

    def step(self, tokens: Tensor, parents: Sequence[int]) -> Tensor:
        return self._runner.branch(tokens, parents)

    def _read_prompt(self, tokens: Sequence[int]) -> None:
        """All rows of the prompt but the last, from which the first draft comes."""
        feature = torch.cat(self._features)
        self._runner.read(torch.tensor(tokens[1:-1], device=feature.device), feature[:-1])
        self._features = [feature[-1:]]

    def _learn(self, ctx: Context) -> None:
        """Take the states of the positions that were just committed."""
        if ctx.hidden and len(ctx.hidden[self.needs_hidden[0]]):
            states = [ctx.hidden[layer] for layer in self.needs_hidden]
            self._features.append(self._runner.forward.read(states))
            self._known += len(states[0])


class EagleDrafter(RecurrentDrafter):
    """EAGLE (arXiv 2401.15077), also over the states of several layers (EAGLE-3, 2503.01840)."""

    method = "eagle"


class MtpDrafter(RecurrentDrafter):
    """The multi-token prediction module of DeepSeek-V3 (arXiv 2412.19437), fed back into itself."""

    method = "mtp"

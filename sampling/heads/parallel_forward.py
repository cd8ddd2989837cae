"""The arithmetic of Medusa and Hydra heads as they draft: several places ahead from one state of the target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.causal_model import CausalModel
from sampling.forward.kernels.linear import Kernel, Linear
from sampling.forward.kernels.probe import make_linear
from sampling.heads.config import HeadConfig
from sampling.heads.head_files import Head
from sampling.heads.inference import output_matrix, placed


@dataclass(frozen=True)
class MedusaForward:
    """The arithmetic of `MedusaHead`: y = x + SiLU(W x + b), layer after layer, and an output matrix.

    residual: the layers of each step. outputs: the output matrix of each step, or one that all of them share.
    """

    config: HeadConfig
    embedding: Tensor
    residual: tuple[tuple[Linear, ...], ...]
    outputs: tuple[Linear, ...]

    @classmethod
    def of(cls, head: Head, target: CausalModel) -> Self:
        """The head's weights on its target, with the target's output rows unless it brings its own."""
        return cls(*_parts(head, target, placed(head, target)))

    def with_kernel(self, kernel: Kernel) -> Self:
        """The same head whose output matrices are computed by another kernel.

        What reads the target's states is never rounded: a few of their entries are so large that nothing would be
        left of the others.
        """
        return replace(self, outputs=tuple(output.with_kernel(kernel) for output in self.outputs))

    def logits(self, state: Tensor, paths: Tensor, states: Tensor | None = None) -> Tensor:
        """Raw logits `[k, V]` behind paths of tokens `[k, d]`, which follow states `[m, H]`.

        states: `[k]`, which state each follows; None: all follow the only one.
        """
        step = paths.shape[1] - 1
        ahead = self.output(step)(self.deepened(step, state))
        return ahead.expand(len(paths), -1) if states is None else ahead.index_select(0, states)

    def logits_ahead(self, steps: Sequence[int], states: Sequence[Tensor]) -> Tensor:
        """Raw logits `[n, V]` of states `[1, H]`, each at its step; a matrix that they share is read once."""
        rows = [self.deepened(step, state) for step, state in zip(steps, states, strict=True)]
        if len(self.outputs) == 1:
            return self.outputs[0](torch.cat(rows))
        return torch.cat([self.outputs[step](row) for step, row in zip(steps, rows, strict=True)])

    def output(self, step: int) -> Linear:
        """The output matrix of a step."""
        return self.outputs[step if len(self.outputs) > 1 else 0]

    def deepened(self, step: int, x: Tensor) -> Tensor:
        """What the output matrix of a step reads of `x` `[n, H]`."""
        for layer in self.residual[step]:
            x = x + F.silu(layer(x))
        return x


@dataclass(frozen=True)
class HydraForward(MedusaForward):
    """The arithmetic of `HydraHead`, which reads the embeddings of the tokens between as well."""

    joins: tuple[Linear, ...]
    residuals: tuple[Linear, ...]

    @classmethod
    def of(cls, head: Head, target: CausalModel) -> Self:
        weights, steps = placed(head, target), range(head.config.steps)
        joins, residuals = (
            tuple(_linear(weights, f"{name}.{step}") for step in steps) for name in ("joins", "residuals")
        )
        return cls(*_parts(head, target, weights), joins, residuals)

    def logits(self, state: Tensor, paths: Tensor, states: Tensor | None = None) -> Tensor:
        step = paths.shape[1] - 1
        between = F.embedding(paths, self.embedding).flatten(1)
        above = state.expand(len(paths), -1) if states is None else state.index_select(0, states)
        joined = torch.cat([above, between], dim=1)
        first = self.residuals[step](joined) + F.silu(self.joins[step](joined))
        return self.output(step)(self.deepened(step, first))


def _parts(
    head: Head, target: CausalModel, weights: Mapping[str, Tensor]
) -> tuple[HeadConfig, Tensor, tuple[tuple[Linear, ...], ...], tuple[Linear, ...]]:
    config = head.config
    residual = tuple(
        tuple(_linear(weights, f"heads.{step}.{layer}.linear") for layer in range(config.layers))
        for step in range(config.steps)
    )
    outputs = [_linear(weights, f"outputs.{step}") for step in range(config.steps)] if config.own_output else None
    return config, target.embedding, residual, tuple(outputs or [output_matrix(head, target)])


def _linear(weights: Mapping[str, Tensor], name: str) -> Linear:
    """A layer of the head, with its bias where it has one."""
    return make_linear(weights[f"{name}.weight"], weights.get(f"{name}.bias"))

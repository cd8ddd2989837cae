"""Medusa and Hydra draft: heads that look several places ahead from one state of the target."""

from abc import abstractmethod
from collections import abc
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.drafters.draft_tree import TreeShape
from sampling.drafters.forward_drafter import ForwardDrafter
from sampling.events import Round
from sampling.forward.int8 import Int8Linear
from sampling.forward.kernels import make_linear
from sampling.forward.linear import Kernel, Linear
from sampling.forward.runner import CausalModel
from sampling.heads.head_files import Head
from sampling.heads.inference import output_matrix
from sampling.sequence import Sequence


@dataclass(frozen=True, slots=True)
class _Weights:
    """Where a drafter's layers come from: the head's weights, the target that it drafts for, a kernel.

    The kernel is the output matrices'. What reads the target's states is never rounded: a few of their entries are
    so large that nothing would be left of the others.
    """

    head: Head
    target: CausalModel
    kernel: Kernel = make_linear

    def linear(self, name: str) -> Linear:
        """A layer of the head, with its bias where it has one."""
        bias, like = self.head.weights.get(f"{name}.bias"), self.target.embedding
        return make_linear(self.head.weights[f"{name}.weight"].to(like), None if bias is None else bias.to(like))

    def linears(self, name: str) -> list[Linear]:
        """One layer of this name for each step."""
        return [self.linear(f"{name}.{step}") for step in range(self.head.config.steps)]


class _Residual:
    """x + SiLU(W x + b), block after block."""

    def __init__(self, weights: _Weights, prefix: str) -> None:
        self._layers = [weights.linear(f"{prefix}.{place}.linear") for place in range(weights.head.config.layers)]

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self._layers:
            x = x + F.silu(layer(x))
        return x


class _Outputs:
    """The output matrix of each step: the target's rows, or one that each head brings."""

    def __init__(self, weights: _Weights) -> None:
        own = weights.head.config.own_output
        self._own = [layer.with_kernel(weights.kernel) for layer in weights.linears("outputs")] if own else []
        self._shared = None if own else output_matrix(weights.head, weights.target).with_kernel(weights.kernel)

    def __call__(self, step: int, x: Tensor) -> Tensor:
        return self._own[step](x) if self._shared is None else self._shared(x)


@dataclass(slots=True)
class _Ahead:
    """What is kept for a sequence: the target's last state `[1, H]`, the token behind it, and the path to every draft.

    known: how many positions of the text have shown their states. unseen: tokens of the text behind the last, which
    are followed like drafts.
    """

    state: Tensor | None = None
    known: int = 0
    last: int = 0
    unseen: list[int] = field(default_factory=list)
    paths: list[list[int]] = field(default_factory=list)


class _ParallelDrafter(ForwardDrafter):
    """Looks ahead from the target's last state."""

    method: str

    def __init__(self, weights: _Weights, shape: TreeShape | None = None) -> None:
        self.config, self.shape = weights.head.config, shape
        self.needs_hidden = (weights.target.num_layers,)
        self._residual = [_Residual(weights, f"heads.{step}") for step in range(self.config.steps)]
        self._outputs = _Outputs(weights)

    @classmethod
    def build(cls, pair: Any, values: abc.Mapping[str, Any]) -> Self:
        head, target = pair.head(cls.method), pair.target.model
        rough = pair.drafts_in_int8(cls.method, values["draft_weights"])
        return cls(_Weights(head, target, Int8Linear if rough else make_linear), TreeShape.of(head.config, values))

    def begin(self, seq: Sequence) -> None:
        states = seq.hidden.get(self.needs_hidden[0], ())
        seq.drafting[self] = _Ahead(known=len(seq.tokens) - 1 - len(states))
        self._learn(seq)

    def observe(self, seq: Sequence, round: Round) -> None:
        self._learn(seq)

    def mark(self, seq: Sequence) -> abc.Callable[[], None]:
        ahead: _Ahead = seq.drafting[self]
        state, known = ahead.state, ahead.known

        def forget() -> None:
            ahead.state, ahead.known = state, known

        return forget

    def room(self, seq: Sequence) -> int:
        ahead: _Ahead = seq.drafting[self]
        return self.config.steps - (len(seq.tokens) - 1 - ahead.known) if ahead.state is not None else 0

    def root(self, seq: Sequence) -> Tensor:
        ahead: _Ahead = seq.drafting[self]
        ahead.paths = []
        ahead.last, *ahead.unseen = seq.tokens[ahead.known :]
        return self._logits(ahead, [ahead.unseen])

    def feed(self, seq: Sequence, tokens: Tensor, parents: abc.Sequence[int]) -> Tensor:
        ahead: _Ahead = seq.drafting[self]
        above = [ahead.unseen if parent < 0 else ahead.paths[parent] for parent in parents]
        ahead.paths += [[*path, token] for path, token in zip(above, tokens.tolist(), strict=True)]
        return self._logits(ahead, ahead.paths[len(ahead.paths) - len(parents) :])

    @abstractmethod
    def _logits(self, ahead: _Ahead, paths: abc.Sequence[abc.Sequence[int]]) -> Tensor:
        """Raw logits `[k, V]` behind paths of equal length."""

    def _learn(self, seq: Sequence) -> None:
        (layer,) = self.needs_hidden
        if seq.hidden and len(seq.hidden[layer]):
            ahead: _Ahead = seq.drafting[self]
            ahead.state = seq.hidden[layer][-1:]
            ahead.known += len(seq.hidden[layer])


class MedusaDrafter(_ParallelDrafter):
    """Medusa (arXiv 2401.10774): what stands k places ahead, whatever stands between."""

    method = "medusa"

    def _logits(self, ahead: _Ahead, paths: abc.Sequence[abc.Sequence[int]]) -> Tensor:
        step = len(paths[0])
        assert ahead.state is not None
        return self._outputs(step, self._residual[step](ahead.state)).expand(len(paths), -1)


class HydraDrafter(_ParallelDrafter):
    """Hydra (arXiv 2402.05109): a draft depends on the drafts before it."""

    method = "hydra"

    def __init__(self, weights: _Weights, shape: TreeShape | None = None) -> None:
        super().__init__(weights, shape)
        self._embedding = weights.target.embedding
        self._joins, self._residuals = weights.linears("joins"), weights.linears("residuals")

    def _logits(self, ahead: _Ahead, paths: abc.Sequence[abc.Sequence[int]]) -> Tensor:
        step = len(paths[0])
        assert ahead.state is not None
        tokens = torch.tensor([[ahead.last, *path] for path in paths], device=self._embedding.device)
        between = F.embedding(tokens, self._embedding).flatten(1)
        joined = torch.cat([ahead.state.expand(len(paths), -1), between], dim=1)
        first = self._residuals[step](joined) + F.silu(self._joins[step](joined))
        return self._outputs(step, self._residual[step](first))

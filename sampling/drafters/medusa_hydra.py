"""Medusa and Hydra draft: heads that look several places ahead from one state of the target."""

from abc import abstractmethod
from collections import abc
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.drafters.best_first import BestFirst
from sampling.drafters.draft_tree import TreeShape
from sampling.drafters.forward_drafter import ForwardDrafter
from sampling.forward.asked import Ask, Asking
from sampling.forward.kernels.int8 import Int8Linear
from sampling.forward.kernels.linear import Kernel, Linear
from sampling.forward.kernels.probe import make_linear
from sampling.forward.runner import CausalModel
from sampling.heads.head_files import Head
from sampling.heads.inference import output_matrix
from sampling.pair.drafting_pair import DraftingPair
from sampling.sequence import Sequence
from utils.device.graphed import Graphed
from utils.device.sent import sent
from utils.events import Round


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

    def each(self, steps: abc.Sequence[int], rows: abc.Sequence[Tensor]) -> Tensor:
        """Raw logits `[n, V]` of rows `[1, H]`, each at its step; a matrix that they share is read once."""
        if self._shared is not None:
            return self._shared(torch.cat(list(rows)))
        return torch.cat([self._own[step](row) for step, row in zip(steps, rows, strict=True)])


@dataclass(slots=True)
class _Ahead:
    """What is kept for a sequence: the target's last state `[1, H]`, and what the drafts of a round follow.

    known: how many positions of the text have shown their states. paths: `[k, d]`, for each draft that was fed last the
    tokens from behind that state to itself; before the first draft those of the text. fed: how many were fed.
    """

    state: Tensor | None = None
    known: int = 0
    paths: Tensor = field(default_factory=lambda: torch.empty(1, 0, dtype=torch.long))
    fed: int = 0


class _Step:
    """One step of the heads for all sequences that ask for it.

    logits: see `_ParallelDrafter._logits`. graph: the same with a graph for each shape, for one sequence.
    """

    def __init__(self, logits: abc.Callable[[Tensor, Tensor, Tensor | None], Tensor], graph: Graphed | None) -> None:
        self._logits, self._graph = logits, graph

    @torch.inference_mode()
    def run(self, feeds: abc.Sequence[tuple[Tensor, Tensor]]) -> abc.Sequence[Tensor]:
        """See `BatchExecutor.run`; each feeds its state and its paths."""
        if len(feeds) == 1:
            return [self._logits(*feeds[0], None)] if self._graph is None else self._graph(*feeds[0])
        states, paths = zip(*feeds, strict=True)
        counts = [len(path) for path in paths]
        of = sent([number for number, count in enumerate(counts) for _ in range(count)], states[0].device)
        logits: tuple[Tensor, ...] = self._logits(torch.cat(states), torch.cat(paths), of).split(counts)
        return logits


class _AllSteps:
    """Several heads at once, for one sequence or many: heads that read nothing but the state."""

    def __init__(self, residual: abc.Sequence[_Residual], outputs: _Outputs, device: torch.device | None) -> None:
        self._residual, self._outputs = residual, outputs
        self._graph = None if device is None else Graphed(self._shaped, device)

    @torch.inference_mode()
    def run(self, feeds: abc.Sequence[tuple[Tensor, range]]) -> abc.Sequence[Tensor]:
        """See `BatchExecutor.run`; each feeds its state and the steps that it looks at."""
        if self._graph is not None and len(feeds) == 1:
            state, steps = feeds[0]
            return self._graph(state, state.new_empty(steps.start, len(steps)))
        return self._looked(feeds)

    def _looked(self, feeds: abc.Sequence[tuple[Tensor, range]]) -> abc.Sequence[Tensor]:
        rows = [self._residual[step](state) for state, steps in feeds for step in steps]
        logits = self._outputs.each([step for _, steps in feeds for step in steps], rows)
        each: tuple[Tensor, ...] = logits.split([len(steps) for _, steps in feeds])
        return each

    def _shaped(self, state: Tensor, places: Tensor) -> tuple[Tensor]:
        """The heads from the first to the last of some, whose numbers are the shape of `places` `[first, depth]`."""
        first, depth = places.shape
        (logits,) = self._looked([(state, range(first, first + depth))])
        return (logits,)


class _ParallelDrafter(ForwardDrafter):
    """Looks ahead from the target's last state."""

    method: str

    def __init__(self, weights: _Weights, shape: TreeShape | BestFirst | None = None, graphs: bool = False) -> None:
        self.config, self.shape = weights.head.config, shape
        graph = Graphed(self._alone, weights.target.device) if graphs else None
        self._steps = [_Step(self._logits, graph) for _ in range(self.config.steps + 1)]
        self.needs_hidden = (weights.target.num_layers,)
        self._residual = [_Residual(weights, f"heads.{step}") for step in range(self.config.steps)]
        self._outputs = _Outputs(weights)

    @classmethod
    def build(cls, pair: DraftingPair, values: abc.Mapping[str, Any]) -> Self:
        head, target = pair.head(cls.method), pair.target.model
        rough = pair.drafts_in_int8(cls.method, values["draft_weights"])
        weights = _Weights(head, target, Int8Linear if rough else make_linear)
        return cls(weights, cls.shape_of(head.config, values), pair.target.fixed_shapes)

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

    def root(self, seq: Sequence) -> Asking[Tensor]:
        ahead: _Ahead = seq.drafting[self]
        assert ahead.state is not None
        ahead.paths, ahead.fed = sent(seq.tokens[ahead.known :], ahead.state.device).unsqueeze(0), 0
        return (yield from self._look(ahead))

    def feed(self, seq: Sequence, tokens: Tensor, parents: Tensor | None = None) -> Asking[Tensor]:
        ahead: _Ahead = seq.drafting[self]
        assert ahead.state is not None
        first = ahead.fed - len(ahead.paths) if ahead.fed else -1
        above = ahead.paths[-1:] if parents is None else ahead.paths.index_select(0, parents - first)
        ahead.paths, ahead.fed = torch.cat([above, tokens.unsqueeze(1)], dim=1), ahead.fed + len(tokens)
        return (yield from self._look(ahead))

    def _look(self, ahead: _Ahead) -> Asking[Tensor]:
        """Raw logits `[k, V]` behind the paths of a sequence."""
        logits: Tensor = yield Ask(self._steps[ahead.paths.shape[1]], (ahead.state, ahead.paths))
        return logits

    def _alone(self, state: Tensor, paths: Tensor) -> tuple[Tensor]:
        """`_logits` of one sequence, as a graph takes it."""
        return (self._logits(state, paths).contiguous(),)

    @abstractmethod
    def _logits(self, state: Tensor, paths: Tensor, of: Tensor | None = None) -> Tensor:
        """Raw logits `[k, V]` behind paths of tokens `[k, d]`, which follow states `[m, H]`.

        of: `[k]`, which state each follows; None: all follow the only one.
        """

    def _learn(self, seq: Sequence) -> None:
        (layer,) = self.needs_hidden
        if seq.hidden and len(seq.hidden[layer]):
            ahead: _Ahead = seq.drafting[self]
            ahead.state = seq.hidden[layer][-1:]
            ahead.known += len(seq.hidden[layer])


class MedusaDrafter(_ParallelDrafter):
    """Medusa (arXiv 2401.10774): what stands k places ahead, whatever stands between."""

    method = "medusa"

    def __init__(self, weights: _Weights, shape: TreeShape | BestFirst | None = None, graphs: bool = False) -> None:
        super().__init__(weights, shape, graphs)
        self._ahead = _AllSteps(self._residual, self._outputs, weights.target.device if graphs else None)

    def ahead(self, seq: Sequence, depth: int) -> Asking[Tensor]:
        ahead: _Ahead = seq.drafting[self]
        assert ahead.state is not None
        first = len(seq.tokens) - 1 - ahead.known
        logits: Tensor = yield Ask(self._ahead, (ahead.state, range(first, first + depth)))
        return logits

    def _logits(self, state: Tensor, paths: Tensor, of: Tensor | None = None) -> Tensor:
        step = paths.shape[1] - 1
        ahead = self._outputs(step, self._residual[step](state))
        return ahead.expand(len(paths), -1) if of is None else ahead.index_select(0, of)


class HydraDrafter(_ParallelDrafter):
    """Hydra (arXiv 2402.05109): a draft depends on the drafts before it."""

    method = "hydra"

    def __init__(self, weights: _Weights, shape: TreeShape | BestFirst | None = None, graphs: bool = False) -> None:
        super().__init__(weights, shape, graphs)
        self._embedding = weights.target.embedding
        self._joins, self._residuals = weights.linears("joins"), weights.linears("residuals")

    def _logits(self, state: Tensor, paths: Tensor, of: Tensor | None = None) -> Tensor:
        step = paths.shape[1] - 1
        between = F.embedding(paths, self._embedding).flatten(1)
        above = state.expand(len(paths), -1) if of is None else state.index_select(0, of)
        joined = torch.cat([above, between], dim=1)
        first = self._residuals[step](joined) + F.silu(self._joins[step](joined))
        return self._outputs(step, self._residual[step](first))

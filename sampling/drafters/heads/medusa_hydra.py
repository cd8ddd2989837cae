"""Medusa and Hydra drafting: heads that predict several positions ahead from one state of the target."""

from collections import abc
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from sampling.drafters.best_first import BestFirst
from sampling.drafters.draft_tree import TreeShape
from sampling.drafters.forward_drafter import ForwardDrafter
from sampling.forward.graphs.shared_graphs import filled, width_for
from sampling.forward.requests import ForwardRequest, StepGenerator
from sampling.heads.parallel_forward import HydraForward, MedusaForward
from sampling.heads.runner import parted
from sampling.pair.drafting_pair import DraftingPair
from sampling.sequence import Sequence
from utils.device.graphed import Graphed
from utils.device.sent import sent
from utils.events import Round


@dataclass(slots=True)
class _Ahead:
    """The state for a sequence: the target's last state `[1, H]`, and the drafts of the round.

    known: the number of positions whose target states have been received. paths: `[k, d]`, for each draft that was fed
    last the tokens after that state up to the draft; before the first draft those of the text. fed: the number of
    drafts that were fed.
    """

    state: Tensor | None = None
    known: int = 0
    paths: Tensor = field(default_factory=lambda: torch.empty(1, 0, dtype=torch.long))
    fed: int = 0


class _Step:
    """One step of the heads for all sequences of a batch.

    logits: see `MedusaForward.logits`. graph, many: the same as a GPU graph per shape, for one sequence, for several.
    """

    def __init__(
        self,
        logits: abc.Callable[[Tensor, Tensor, Tensor | None], Tensor],
        graph: Graphed | None,
        many: Graphed | None,
    ) -> None:
        self._logits, self._graph, self._many = logits, graph, many

    @torch.inference_mode()
    def run(self, feeds: abc.Sequence[tuple[Tensor, Tensor]]) -> abc.Sequence[Tensor]:
        """See `BatchExecutor.run`; each feed is a state and its paths."""
        if len(feeds) == 1:
            return [self._logits(*feeds[0], None)] if self._graph is None else self._graph(*feeds[0])
        states, paths = zip(*feeds, strict=True)
        counts = [len(path) for path in paths]
        of = sent([number for number, count in enumerate(counts) for _ in range(count)], states[0].device)
        rows = torch.cat(states), torch.cat(paths), of
        if self._many is None:
            return parted(self._logits(*rows), counts)
        (logits,) = self._many(*(filled(each, width_for(len(each))) for each in rows))
        return parted(logits[: len(of)], counts)


class _AllSteps:
    """Several heads in one call, for one sequence or many: heads that read the state alone."""

    def __init__(self, forward: MedusaForward, graphs: bool) -> None:
        self._forward = forward
        device = forward.embedding.device
        self._graph = Graphed(partial(_steps_of, forward), device) if graphs else None
        self._many = Graphed(partial(_steps_of_many, forward), device) if graphs else None

    @torch.inference_mode()
    def run(self, feeds: abc.Sequence[tuple[Tensor, range]]) -> abc.Sequence[Tensor]:
        """See `BatchExecutor.run`; each feed is a state and the range of its steps."""
        if self._graph is not None and len(feeds) == 1:
            state, steps = feeds[0]
            return self._graph(state, state.new_empty(steps.start, len(steps)))
        steps = feeds[0][1]
        if self._many is None or any(other != steps for _, other in feeds):
            return _looked(self._forward, feeds)
        states = torch.cat([state for state, _ in feeds])
        (logits,) = self._many(filled(states, width_for(len(states))), states.new_empty(steps.start, len(steps)))
        return parted(logits[: len(feeds) * len(steps)], [len(steps)] * len(feeds))


def _looked(forward: MedusaForward, feeds: abc.Sequence[tuple[Tensor, range]]) -> tuple[Tensor, ...]:
    """Logits of the heads of each feed's steps."""
    looks = [(step, state) for state, steps in feeds for step in steps]
    logits = forward.logits_ahead([step for step, _ in looks], [state for _, state in looks])
    each: tuple[Tensor, ...] = logits.split([len(steps) for _, steps in feeds])
    return each


def _steps_of(forward: MedusaForward, state: Tensor, places: Tensor) -> tuple[Tensor, ...]:
    """The heads of a range of steps, for a GPU graph: the shape of `places`, `[first, depth]`, encodes the range."""
    first, depth = places.shape
    return _looked(forward, [(state, range(first, first + depth))])


def _steps_of_many(forward: MedusaForward, states: Tensor, places: Tensor) -> tuple[Tensor]:
    """The same for states `[n, H]`, one behind the other: `[n * depth, V]`."""
    first, depth = places.shape
    return (torch.cat(_looked(forward, [(state, range(first, first + depth)) for state in states.split(1)])),)


def _of_many(forward: MedusaForward, states: Tensor, paths: Tensor, of: Tensor) -> tuple[Tensor]:
    """The logits of several sequences, in the form of a GPU graph."""
    return (forward.logits(states, paths, of).contiguous(),)


def _alone(forward: MedusaForward, state: Tensor, paths: Tensor) -> tuple[Tensor]:
    """The logits of one sequence, in the form of a GPU graph."""
    return (forward.logits(state, paths).contiguous(),)


class Heads:
    """Heads with what runs them: step by step, or several in one call. graphs: whether as graphs."""

    def __init__(self, forward: MedusaForward, graphs: bool = False) -> None:
        self.config = forward.config
        device = forward.embedding.device
        graph = Graphed(partial(_alone, forward), device) if graphs else None
        many = Graphed(partial(_of_many, forward), device) if graphs else None
        self.steps = [_Step(forward.logits, graph, many) for _ in range(self.config.steps + 1)]
        self.ahead = _AllSteps(forward, graphs)


class _ParallelDrafter(ForwardDrafter):
    """The base of drafters that predict from the target's last state."""

    method: ClassVar[str]
    forward: ClassVar[type[MedusaForward]]

    def __init__(self, heads: Heads, layer: int, shape: TreeShape | BestFirst | None = None) -> None:
        self.config, self.shape = heads.config, shape
        self.needs_hidden = (layer,)
        self._heads = heads

    @classmethod
    def build(cls, pair: DraftingPair, values: abc.Mapping[str, Any]) -> Self:
        heads = pair.kept_head(cls.method, cls.forward, values["draft_weights"], Heads)
        return cls(heads, pair.target.model.num_layers, cls.shape_of(heads.config, values))

    def begin(self, seq: Sequence) -> None:
        states = seq.hidden.get(self.needs_hidden[0], ())
        seq.drafter_state[self] = _Ahead(known=len(seq.tokens) - 1 - len(states))
        self._learn(seq)

    def observe(self, seq: Sequence, round: Round) -> None:
        self._learn(seq)

    def mark(self, seq: Sequence) -> abc.Callable[[], None]:
        ahead: _Ahead = seq.drafter_state[self]
        state, known = ahead.state, ahead.known

        def forget() -> None:
            ahead.state, ahead.known = state, known

        return forget

    def room(self, seq: Sequence) -> int:
        ahead: _Ahead = seq.drafter_state[self]
        return self.config.steps - (len(seq.tokens) - 1 - ahead.known) if ahead.state is not None else 0

    def root(self, seq: Sequence) -> StepGenerator[Tensor]:
        ahead: _Ahead = seq.drafter_state[self]
        assert ahead.state is not None
        ahead.paths, ahead.fed = sent(seq.tokens[ahead.known :], ahead.state.device).unsqueeze(0), 0
        return (yield from self._look(ahead))

    def feed(self, seq: Sequence, tokens: Tensor, parents: Tensor | None = None) -> StepGenerator[Tensor]:
        ahead: _Ahead = seq.drafter_state[self]
        assert ahead.state is not None
        first = ahead.fed - len(ahead.paths) if ahead.fed else -1
        above = ahead.paths[-1:] if parents is None else ahead.paths.index_select(0, parents - first)
        ahead.paths, ahead.fed = torch.cat([above, tokens.unsqueeze(1)], dim=1), ahead.fed + len(tokens)
        return (yield from self._look(ahead))

    def _look(self, ahead: _Ahead) -> StepGenerator[Tensor]:
        """Raw logits `[k, V]` after the paths of a sequence."""
        logits: Tensor = yield ForwardRequest(self._heads.steps[ahead.paths.shape[1]], (ahead.state, ahead.paths))
        return logits

    def _learn(self, seq: Sequence) -> None:
        (layer,) = self.needs_hidden
        if seq.hidden and len(seq.hidden[layer]):
            ahead: _Ahead = seq.drafter_state[self]
            ahead.state = seq.hidden[layer][-1:]
            ahead.known += len(seq.hidden[layer])


class MedusaDrafter(_ParallelDrafter):
    """Medusa (arXiv 2401.10774): predicts the token k positions ahead, independent of the drafts between."""

    method = "medusa"
    forward = MedusaForward

    def ahead(self, seq: Sequence, depth: int) -> StepGenerator[Tensor]:
        ahead: _Ahead = seq.drafter_state[self]
        assert ahead.state is not None
        first = len(seq.tokens) - 1 - ahead.known
        logits: Tensor = yield ForwardRequest(self._heads.ahead, (ahead.state, range(first, first + depth)))
        return logits


class HydraDrafter(_ParallelDrafter):
    """Hydra (arXiv 2402.05109): each draft depends on the drafts before it."""

    method = "hydra"
    forward = HydraForward

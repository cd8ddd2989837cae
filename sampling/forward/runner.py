"""One model and the rows of one sequence: tokens in, logits out, and back again.

A model is a `CausalModel`, be it a transformers model behind an adapter (`models/adapter.py`) or the lean Llama-family
forward (`models/lean.py`). A runner holds what one sequence has of it: the rows of its cache.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol, Self, TypeGuard, cast, runtime_checkable

import torch
from torch import Tensor

from sampling.forward.caches.cache import KeptCache, Rows, SequenceCache, seen_by_branches
from sampling.forward.causal_model import CausalModel, Output, PromptReading, Shareable, as_ids
from sampling.forward.graphs.one_width import OneWidthGraphs
from sampling.forward.graphs.sequence_graphs import SequenceGraphs
from sampling.forward.requests import RequestingRunner, StepGenerator, run_single
from utils.device.spare import with_room

PREFILL_CHUNK = 512


class ModelHolder(Protocol):
    """A model with what it keeps of one sequence, or of several."""

    @property
    def model(self) -> CausalModel: ...

    @property
    def window(self) -> int: ...

    @property
    def device(self) -> torch.device: ...


@runtime_checkable
class Runner(ModelHolder, Protocol):
    """A model on one sequence. `vocab_size` may be lower than the model's: the tokens a pair has in common."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def length(self) -> int:
        """Tokens of the sequence that were fed and count."""
        ...

    @property
    def generation(self) -> int:
        """How many texts were begun on it, by `read`: who began an earlier one has no rows left."""
        ...

    def crop(self, length: int) -> None:
        """Forget the tokens from `length` on."""
        ...

    def keep(self, base: int, path: Sequence[int]) -> None:
        """Of a judged proposal fed from row `base` on, keep the root and the accepted drafts."""
        ...

    def read(self, prompt: Sequence[int]) -> PromptReading:
        """Forget the sequence and take in a prompt (ids), or a source that another model has read."""
        ...

    def forward(
        self,
        tokens: Tensor | Sequence[int],
        parents: Sequence[int] | None = None,
        hidden: Sequence[int] = (),
        rows: int | None = None,
    ) -> Output:
        """Feed n tokens behind those that count, and count them.

        tokens: `[n]`. parents: for a tree, the n - 1 parents of tokens[1:], as in a proposal; None = a
        chain. rows: how many rows of logits, from the end (default all n).
        """
        ...

    def fork(self, tokens: Sequence[int], base: int, lines: Tensor) -> Output:
        """Feed n tokens side by side, each the next one of a text of its own, and count them.

        The texts share the first `base` rows. lines: `[n, m]` on the CPU, the m rows behind them that lead to
        each token; all tokens have position base + m. Logits `[n, V]`. Their rows are the next n of the cache.
        Example: 14 rows, base 10, lines ((10, 12), (10, 13)) -> rows 14 and 15, both at position 12.
        """
        ...


class Runners(ModelHolder, Protocol):
    """A model for any number of sequences."""

    def another(self) -> Runner:
        """A runner for one more sequence."""
        ...


class WholeRunner(Runner, Protocol):
    """A runner that shares nothing with others, so that it can make more of its kind.

    fixed_shapes: whether its forwards have fixed shapes and addresses, which are captured where it is on CUDA.
    """

    @property
    def fixed_shapes(self) -> bool: ...

    def on(self, model: CausalModel) -> Self:
        """A runner for another model of the same vocabulary."""
        ...

    def another(self) -> Self:
        """A runner of the same model for another sequence."""
        ...


def request_forward(
    runner: Runner,
    tokens: Tensor | Sequence[int],
    parents: Sequence[int] | None = None,
    hidden: Sequence[int] = (),
    rows: int | None = None,
) -> StepGenerator[Output]:
    """`Runner.forward`, shared with what other sequences ask for where the runner can."""
    if isinstance(runner, RequestingRunner):
        output: Output = yield runner.request(tokens, parents, hidden, rows)
        return output
    return runner.forward(tokens, parents, hidden, rows)


def catch_up(runner: Runner, tokens: Sequence[int], hidden: Sequence[int] = ()) -> Output:
    """Feed the tokens of a sequence that the runner lacks; logits `[1, V]` after the last one.

    Raises `ValueError` when nothing is missing: there is no row to return.
    """
    return run_single(request_catch_up(runner, tokens, hidden))


def request_catch_up(runner: Runner, tokens: Sequence[int], hidden: Sequence[int] = ()) -> StepGenerator[Output]:
    """`catch_up`, shared with what other sequences ask for where the runner can."""
    if runner.length >= len(tokens):
        raise ValueError(f"{runner.length} of {len(tokens)} tokens are cached: nothing to feed")
    return (yield from request_forward(runner, tokens[runner.length :], hidden=hidden, rows=1))


def prefill(runner: Runner, tokens: Sequence[int], hidden: Sequence[int] = ()) -> dict[int, Tensor]:
    """Start a new sequence with these tokens; hidden states `[len(tokens), H]` of the asked layers."""
    runner.crop(0)
    return feed(runner, tokens, hidden)


def feed(runner: Runner, tokens: Sequence[int], hidden: Sequence[int] = ()) -> dict[int, Tensor]:
    """Feed tokens behind those that count; hidden states `[len(tokens), H]` of the asked layers.

    Many go through in chunks, so that masks and activations stay small.
    """
    parts = [
        runner.forward(tokens[i : i + PREFILL_CHUNK], hidden=hidden, rows=0).hidden
        for i in range(0, len(tokens), PREFILL_CHUNK)
    ]
    return {layer: torch.cat([part[layer] for part in parts]) for layer in hidden} if parts else {}


@runtime_checkable
class KVTransferable(Runner, Protocol):
    """A runner whose rows can be taken out and put into another of the same model."""

    @property
    def kept(self) -> KeptCache:
        """Its cache."""
        ...

    def adopt(self, rows: Mapping[int, Rows], count: int) -> None:
        """Forget the sequence, and count copies of these `count` rows of each layer as fed."""
        ...


class CachedRunner(ABC):
    """What runners have in common that feed one model and hold its rows in a cache."""

    def __init__(self, model: CausalModel, vocab_size: int | None) -> None:
        self.vocab_size = vocab_size or model.vocab_size
        self.window, self.device = model.window, model.device
        self._read = model.read
        self.generation = 0

    @property
    @abstractmethod
    def cache(self) -> SequenceCache:
        """Where the rows are."""

    @property
    def kept(self) -> KeptCache:
        """See `KVTransferable.kept`; of a model that keeps rows."""
        return cast(KeptCache, self.cache)

    @property
    def length(self) -> int:
        """See `Runner.length`."""
        return self.cache.length

    def crop(self, length: int) -> None:
        """See `Runner.crop`."""
        self.cache.crop(length)

    def keep(self, base: int, path: Sequence[int]) -> None:
        """See `Runner.keep`."""
        self.cache.keep(base, path)

    @torch.inference_mode()
    def read(self, prompt: Sequence[int]) -> PromptReading:
        """See `Runner.read`."""
        self.crop(0)
        self.generation += 1
        reading = self._read(prompt)
        self.cache.memory = reading.memory
        return reading


class ModelRunner(CachedRunner):
    """A model with the cache of one sequence. graphs: captures its forwards, where their shapes are fixed."""

    def __init__(self, model: CausalModel, vocab_size: int | None = None, graphs: SequenceGraphs | None = None) -> None:
        super().__init__(model, vocab_size)
        self.model, self.graphs = model, graphs
        self._cache = model.new_cache() if graphs is None else graphs.cache

    @classmethod
    def with_graphs(cls, model: Shareable, vocab_size: int | None = None) -> "ModelRunner":
        """A runner whose forwards have fixed shapes. An output holds until the next forward."""
        return cls(model, vocab_size, SequenceGraphs(model))

    @classmethod
    def with_one_width(cls, model: Shareable, vocab_size: int | None = None) -> "ModelRunner":
        """A runner whose every forward computes as many rows: see `OneWidthGraphs`."""
        return cls(model, vocab_size, OneWidthGraphs(model))

    @property
    def fixed_shapes(self) -> bool:
        """See `WholeRunner.fixed_shapes`."""
        return self.graphs is not None

    @property
    def cache(self) -> SequenceCache:
        """See `CachedRunner.cache`."""
        return self._cache

    @torch.inference_mode()
    def adopt(self, rows: Mapping[int, Rows], count: int) -> None:
        """See `KVTransferable.adopt`."""
        self.kept.fill(rows, count)

    def on(self, model: CausalModel) -> "ModelRunner":
        """See `WholeRunner.on`."""
        return type(self)(model, self.vocab_size, self.graphs and self.graphs.of(cast(Shareable, model)))

    def another(self) -> "ModelRunner":
        """See `WholeRunner.another`; it takes over the cache and the graphs of one that is gone."""
        return type(self)(self.model, self.vocab_size, self.graphs and self.graphs.another())

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor | Sequence[int],
        parents: Sequence[int] | None = None,
        hidden: Sequence[int] = (),
        rows: int | None = None,
    ) -> Output:
        """See `Runner.forward`."""
        count = len(tokens)
        wanted = count if rows is None else rows
        if self.graphs is not None and self.graphs.can_replay(count):
            here = self.device if isinstance(tokens, Tensor) else torch.device("cpu")  # a graph sends its inputs
            return self._output(count, *self.graphs.replay(as_ids(tokens, here), parents, hidden, wanted))
        ids = as_ids(tokens, self.device)
        positions, mask = self._cache.lay_out(count, parents)
        return self._eager(ids, positions, mask, hidden, wanted)

    @torch.inference_mode()
    def fork(self, tokens: Sequence[int], base: int, lines: Tensor) -> Output:
        """See `Runner.fork`."""
        count = len(tokens)
        positions = torch.full((count,), base + lines.shape[1], device=self.device)
        seen = seen_by_branches(self.length, base, lines).to(self.device)
        mask = self._cache.lay_out_seen(positions, seen, base)
        return self._eager(as_ids(tokens, self.device), positions, mask, (), count)

    def _eager(self, ids: Tensor, positions: Tensor, mask: Tensor | None, hidden: Sequence[int], rows: int) -> Output:
        forward = partial(self.model.forward, ids, positions, mask, self._cache.storage, hidden, rows)
        logits, states = forward() if self.graphs is None else with_room(forward)
        return self._output(ids.shape[0], logits, states)

    def _output(self, count: int, logits: Tensor, states: dict[int, Tensor]) -> Output:
        self._cache.advance(count)
        return Output(logits[:, : self.vocab_size], states)


def has_one_width(runner: Runner) -> TypeGuard[ModelRunner]:
    """Whether all forwards of a runner compute as many rows."""
    return isinstance(runner, ModelRunner) and isinstance(runner.graphs, OneWidthGraphs)

"""One model and one cache: rows in, logits out, and back again.

A model here is anything with the `CausalModel` forward below: a transformers model behind an adapter
(`sampling/forward/adapter.py`) or the lean Llama-family forward (`sampling/forward/lean.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from sampling.forward.cache import RollbackCache
from sampling.forward.tree import ancestor_mask, depths

PREFILL_CHUNK = 512


class CausalModel(Protocol):
    """What a runner asks of a model. `window` is its context length, `vocab_size` its rows of logits."""

    @property
    def num_layers(self) -> int: ...

    @property
    def window(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def embedding(self) -> Tensor:
        """`[V, H]`."""
        ...

    def output_rows(self, ids: Tensor) -> Tensor:
        """Rows `[m, H]` of the output matrix for the token ids `[m]`."""
        ...

    def landmarks(self) -> dict[str, Tensor]:
        """Weights that tell this model from others: the embedding and every norm."""
        ...

    def read(self, prompt: Sequence[int]) -> "Reading":
        """What the model makes of a prompt (ids).

        A decoder-only model makes nothing of it: its text begins with the prompt. An encoder passes over it
        once, and the reading's model is the decoder that has what the encoder found.
        """
        ...

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: RollbackCache,
        hidden: Sequence[int],
        rows: int,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Logits `[rows, V]` of the last `rows` of the tokens `[n]`, and the asked hidden states `[n, H]`.

        positions: `[n]`. mask: additive, `[n, cache.length + n]` in the model's dtype; None when n is 1 or
        when `rows` see everything. Keys and values go into the cache behind `cache.length`, which the
        caller advances. Layer numbers count as transformers' `hidden_states` do: 0 is the embedding, i the
        output of layer i, the last one after the final norm.
        """
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """A prompt as read: the model that goes on from there, and the ids that its text begins with.

    source: what an encoder read, which is no part of the text; empty for a decoder-only model.
    """

    model: CausalModel
    tokens: list[int]
    source: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """logits `[rows, V]` in the model's dtype; hidden `{layer: [n, H]}` for the layers asked for."""

    logits: Tensor
    hidden: dict[int, Tensor] = field(default_factory=dict)


class ModelRunner:
    """A model with the cache of one sequence. `vocab_size` may be lowered to a pair's common vocabulary."""

    def __init__(self, model: CausalModel, vocab_size: int | None = None) -> None:
        self.model = model
        self.vocab_size = vocab_size or model.vocab_size
        self.window = model.window
        self.device = model.device
        self.forwards = 0
        self._cache = RollbackCache(model.num_layers)

    def on(self, model: CausalModel) -> "ModelRunner":
        """A runner of this kind for another model of the same vocabulary."""
        return type(self)(model, self.vocab_size)

    @property
    def length(self) -> int:
        """Tokens whose keys and values are in the cache."""
        return self._cache.length

    @property
    def cache(self) -> RollbackCache:
        """Keys and values of the sequence, for who copies them."""
        return self._cache

    def crop(self, length: int) -> None:
        """Forget the tokens from `length` on."""
        self._cache.crop(length)

    def keep(self, base: int, path: Sequence[int]) -> None:
        """Of a judged proposal fed from row `base` on, keep the root and the accepted drafts."""
        self._cache.keep(base, path)

    @torch.inference_mode()
    def read(self, prompt: Sequence[int]) -> Reading:
        """Forget the sequence and take in a prompt (ids), or a source that another model has read."""
        self.crop(0)
        reading = self.model.read(prompt)
        self.model = reading.model
        return reading

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor | Sequence[int],
        parents: Sequence[int] | None = None,
        hidden: Sequence[int] = (),
        rows: int | None = None,
    ) -> Output:
        """Feed n tokens behind the cached ones and count them as cached.

        tokens: `[n]`. parents: for a tree, the n - 1 parents of tokens[1:], as in a proposal; None = a
        chain. rows: how many rows of logits, from the end (default all n).
        """
        ids = self._ids(tokens)
        start = self._cache.length
        offsets = _offsets(ids.shape[0], parents)
        mask = self._mask(start, ids.shape[0], parents)
        output = self._run(ids, offsets + start, mask, self._cache, hidden, rows)
        self._cache.advance(ids.shape[0])
        return output

    @torch.inference_mode()
    def fork(self, tokens: Sequence[int], base: int, lines: Tensor) -> Output:
        """Feed n tokens side by side, each the next one of a text of its own, and count them as cached.

        The texts share the first `base` rows. lines: `[n, m]` on the CPU, the m rows behind them that lead to
        each token; all tokens have position base + m. Logits `[n, V]`. Their rows are the next n of the cache.
        Example: 14 rows, base 10, lines ((10, 12), (10, 13)) -> rows 14 and 15, both at position 12.
        """
        start, count = self.length, len(tokens)
        own = torch.arange(start, start + count)
        seen = torch.zeros(count, start + count, dtype=torch.bool)
        seen[:, :base] = True
        seen.scatter_(1, torch.cat([lines, own.unsqueeze(1)], dim=1), True)
        positions = torch.full((count,), base + lines.shape[1])
        output = self._run(self._ids(tokens), positions, self._additive(seen), self._cache, (), None)
        self._cache.advance(count)
        return output

    def catch_up(self, tokens: Sequence[int], hidden: Sequence[int] = ()) -> Output:
        """Feed the tokens of a sequence that the cache lacks; logits `[1, V]` after the last one.

        Raises `ValueError` when nothing is missing: there is no row to return.
        """
        if self.length >= len(tokens):
            raise ValueError(f"{self.length} of {len(tokens)} tokens are cached: nothing to feed")
        return self.forward(tokens[self.length :], hidden=hidden, rows=1)

    def prefill(self, tokens: Sequence[int], hidden: Sequence[int] = ()) -> dict[int, Tensor]:
        """Start a new sequence with these tokens; hidden states `[len(tokens), H]` of the asked layers.

        Long prompts go through in chunks, so that masks and activations stay small.
        """
        self.crop(0)
        parts = [
            self.forward(tokens[i : i + PREFILL_CHUNK], hidden=hidden, rows=0).hidden
            for i in range(0, len(tokens), PREFILL_CHUNK)
        ]
        return {layer: torch.cat([part[layer] for part in parts]) for layer in hidden} if parts else {}

    def _ids(self, tokens: Tensor | Sequence[int]) -> Tensor:
        if isinstance(tokens, Tensor):
            return tokens.to(self.device)
        return torch.tensor(tokens, dtype=torch.long, device=self.device)

    def _mask(self, start: int, count: int, parents: Sequence[int] | None) -> Tensor | None:
        """Additive mask `[count, start + count]`: all committed rows, and among the new ones the ancestors."""
        if count == 1:
            return None
        seen = torch.ones(count, start + count, dtype=torch.bool)
        seen[:, start:] = seen[:, start:].tril() if parents is None else ancestor_mask(parents)
        return self._additive(seen)

    def _additive(self, seen: Tensor) -> Tensor:
        mask = torch.zeros(seen.shape, dtype=self.model.dtype).masked_fill_(~seen, torch.finfo(self.model.dtype).min)
        return mask.to(self.device)

    def _run(
        self,
        ids: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        cache: RollbackCache,
        hidden: Sequence[int],
        rows: int | None,
    ) -> Output:
        self.forwards += 1
        count = ids.shape[0] if rows is None else rows
        logits, states = self.model.forward(ids, positions.to(self.device), mask, cache, hidden, count)
        return Output(logits[:, : self.vocab_size], states)


class RecomputingRunner(ModelRunner):
    """The same runner without a cache: every forward starts from the first token. Slow, and trivially right.

    A source is read anew as well.
    """

    def __init__(self, model: CausalModel, vocab_size: int | None = None) -> None:
        super().__init__(model, vocab_size)
        self._fed = torch.empty(0, dtype=torch.long, device=self.device)
        self._source: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        return self._fed.shape[0]

    def crop(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot crop {self.length} rows to {length}")
        self._fed = self._fed[:length]

    def keep(self, base: int, path: Sequence[int]) -> None:
        rows = [*range(base + 1), *(base + 1 + row for row in path)]
        self._fed = self._fed[torch.tensor(rows, device=self.device)]

    def read(self, prompt: Sequence[int]) -> Reading:
        reading = super().read(prompt)
        self._source = reading.source
        return reading

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor | Sequence[int],
        parents: Sequence[int] | None = None,
        hidden: Sequence[int] = (),
        rows: int | None = None,
    ) -> Output:
        if self._source:
            self.model = self.model.read(self._source).model
        new = self._ids(tokens)
        start, count = self.length, new.shape[0]
        ids = torch.cat([self._fed, new])
        positions = torch.cat([torch.arange(start), _offsets(count, parents) + start])
        whole = None if parents is None else [*range(-1, start - 1), *(start + parent for parent in parents)]
        mask = self._mask(0, start + count, whole)
        scratch = RollbackCache(self.model.num_layers)
        output = self._run(ids, positions, mask, scratch, hidden, count if rows is None else rows)
        self._fed = ids
        return Output(output.logits, {layer: states[start:] for layer, states in output.hidden.items()})

    @torch.inference_mode()
    def fork(self, tokens: Sequence[int], base: int, lines: Tensor) -> Output:
        """Each text from its first token on, one after the other."""
        new = self._ids(tokens)
        rows = torch.cat([torch.arange(base).expand(len(lines), -1), lines], dim=1).to(self.device)
        texts = torch.cat([self._fed[rows], new.unsqueeze(1)], dim=1)
        self._fed = torch.cat([self._fed, new])
        return Output(torch.cat([self._alone(text) for text in texts]))

    def _alone(self, ids: Tensor) -> Tensor:
        count = ids.shape[0]
        scratch = RollbackCache(self.model.num_layers)
        return self._run(ids, torch.arange(count), self._mask(0, count, None), scratch, (), 1).logits


def _offsets(count: int, parents: Sequence[int] | None) -> Tensor:
    """Position of each fed row behind the cached ones: the root at 0, a draft at its depth."""
    return torch.arange(count) if parents is None else torch.tensor([0, *depths(parents)])

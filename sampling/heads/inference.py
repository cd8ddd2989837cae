"""A recurrent head as it drafts: one lean block with a cache of its own that rolls back like the target's.

A P-EAGLE head is the same arithmetic with rows that have no token, and maybe more blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.asked import Asking, alone
from sampling.forward.blocks import Attending, Blocks, fuse, rotary_table
from sampling.forward.cache import RollbackCache
from sampling.forward.kernels import make_linear
from sampling.forward.lean import LeanModel
from sampling.forward.linear import Kernel, Linear, LowRank, ReducedOutput
from sampling.forward.runner import PREFILL_CHUNK, CausalModel
from sampling.forward.steps import BlockShape, Norm
from sampling.heads.block import frequencies
from sampling.heads.config import HeadConfig
from sampling.heads.head_files import Head

LOW_RANK = "output_down.weight", "output_up.weight"
# In place of a token: a row that reads what `masks` has.
MASK = -1


@dataclass(frozen=True)
class RecurrentForward:
    """The arithmetic of `RecurrentHead` on lean layers. Shapes are `[n, H]`; see there for what a row means.

    masks: embedding and feature `[H]` of rows without a token (`ParallelEagleHead`).
    """

    config: HeadConfig
    embedding: Tensor
    state_norms: tuple[Norm, ...]
    feature: Linear | None
    embed_norm: Norm | None
    feature_norm: Norm | None
    fc: Linear | None
    blocks: Blocks
    norm: Norm | None
    output: Linear
    window: int
    masks: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(cls, head: Head, target: CausalModel) -> "RecurrentForward":
        """The head's weights, with the target's embedding and, unless it brings its own, output rows."""
        config = head.config
        weights = _placed(head, target)

        def norm(name: str) -> Norm | None:
            weight = weights.get(f"{name}.weight")
            return None if weight is None else Norm(weight, config.rms_norm_eps)

        def linear(name: str) -> Linear | None:
            weight = weights.get(f"{name}.weight")
            return None if weight is None else make_linear(weight, weights.get(f"{name}.bias"))

        feature, hidden, masks = linear("feature"), weights.get("mask_hidden"), None
        if hidden is not None:
            masks = weights["mask_embedding"], hidden if feature is None else feature(hidden.unsqueeze(0))[0]
        later = [f"later.{place}." for place in range(config.layers - 1) if hidden is not None]
        return cls(
            config,
            weights.get("embedding.weight", target.embedding),
            tuple(one for place in range(len(config.features)) if (one := norm(f"state_norms.{place}"))),
            feature,
            norm("embed_norm"),
            norm("feature_norm"),
            linear("fc"),
            _blocks(config, weights, target, ["block.", *later]),
            norm("norm"),
            output_matrix(head, target),
            min(config.window, target.window),
            masks,
        )

    def with_kernel(self, kernel: Kernel) -> "RecurrentForward":
        """The same head, block and output computed by another kernel.

        What reads the target's states stays: a few of their entries are so large that rounding leaves nothing of
        the others, unless a norm stands between.
        """
        joined = self.fc.with_kernel(kernel) if self.fc and self.feature_norm else self.fc
        return replace(self, fc=joined, blocks=self.blocks.with_kernel(kernel), output=self.output.with_kernel(kernel))

    def new_cache(self) -> RollbackCache:
        """An empty cache for one sequence."""
        return RollbackCache(len(self.blocks.layers), self.embedding.device, self.embedding.dtype)

    def read(self, states: Sequence[Tensor]) -> Tensor:
        """The feature of the target's states, one a layer."""
        each = self.config.state_norm == "each"
        joined = torch.cat(
            [norm(one) for norm, one in zip(self.state_norms, states, strict=True)] if each else list(states), dim=-1
        )
        if self.config.state_norm == "joined":
            joined = self.state_norms[0](joined)
        return joined if self.feature is None else self.feature(joined)

    def run(self, tokens: Tensor, feature: Tensor, positions: Tensor, mask: Tensor | None, cache: Attending) -> Tensor:
        """States of the rows; keys and values go behind `cache.length`, which the caller advances."""
        embedded, feature = self._entering(tokens, feature)
        left = embedded if self.embed_norm is None else self.embed_norm(embedded)
        right = feature if self.feature_norm is None else self.feature_norm(feature)
        joined = torch.cat([left, right], dim=-1)
        base = right if self.config.normed_residual else feature
        x, read = (base, joined) if self.fc is None else (self.fc(joined), None)
        *_, state = self.blocks.run(x, positions, mask, cache, read)
        return self._normed(state) if self.config.normed_feedback else state

    def logits(self, state: Tensor) -> Tensor:
        """Raw logits `[n, V]`."""
        return self.output(state if self.config.normed_feedback else self._normed(state))

    def _entering(self, tokens: Tensor, feature: Tensor) -> tuple[Tensor, Tensor]:
        """Embedding and feature of the rows; those of a row without a token are the head's own."""
        if self.masks is None:
            return F.embedding(tokens, self.embedding), feature
        masked, (embedded, hidden) = (tokens == MASK).unsqueeze(1), self.masks
        return (
            torch.where(masked, embedded, F.embedding(tokens.clamp(min=0), self.embedding)),
            torch.where(masked, hidden, feature),
        )

    def _normed(self, state: Tensor) -> Tensor:
        return state if self.norm is None else self.norm(state)


def _placed(head: Head, target: CausalModel) -> dict[str, Tensor]:
    """The head's weights on the target's device, in its dtype."""
    return {name: weight.to(target.device, target.dtype) for name, weight in head.weights.items()}


def _blocks(config: HeadConfig, weights: dict[str, Tensor], target: CausalModel, prefixes: Sequence[str]) -> Blocks:
    """The blocks in the lean form, which takes their weights out, and a rotary table as long as both windows allow."""
    cos, sin = rotary_table(*frequencies(config), min(config.window, target.window), target.embedding)
    layers = tuple(fuse(weights, prefix, config.rms_norm_eps) for prefix in prefixes)
    return Blocks(layers, cos, sin, BlockShape(config.heads, config.kv_heads, config.head_dim))


def small_model(head: Head, target: CausalModel) -> LeanModel:
    """A distilled drafter as a causal model: its own blocks between the target's embedding and output rows."""
    config, weights = head.config, _placed(head, target)
    return LeanModel(
        target.embedding,
        _blocks(config, weights, target, [f"blocks.{place}." for place in range(config.layers)]),
        Norm(weights["norm.weight"], config.rms_norm_eps),
        output_matrix(head, target),
        min(config.window, target.window),
        config.vocab_size,
        tied=False,
    )


def output_matrix(head: Head, target: CausalModel) -> Linear:
    """The output over the head's draft vocabulary: matrices of its own or the target's rows."""
    ids = head.draft_ids.to(target.device)
    if head.config.output_rank:
        down, up = (head.weights[name].to(target.device, target.dtype) for name in LOW_RANK)
        return ReducedOutput(LowRank(make_linear(down), make_linear(up)), ids, target.vocab_size)
    own = head.weights.get("output.weight")
    weight = target.output_rows(ids) if own is None else own.to(target.device, target.dtype)
    return ReducedOutput(make_linear(weight), ids, target.vocab_size)


class Rows(Protocol):
    """What a runner asks of its cache."""

    length: int

    def crop(self, length: int) -> None: ...
    def advance(self, rows: int) -> None: ...


class RecurrentRunner:
    """The sequence of one head: rows that the target's states stand behind, then rows of the drafts under way.

    Drafts are numbered in the order they are fed. As long as each follows the one before, their rows are a chain like
    those of a text; from the first tree on a table says which of them each draft sees.
    """

    def __init__(self, forward: RecurrentForward) -> None:
        self.forward = forward
        self.window = forward.window
        self._cache: Rows = forward.new_cache()
        self._base = 0
        self._states: list[Tensor] = []
        self._seen: Tensor | None = None

    @property
    def length(self) -> int:
        """Rows behind which the target's own states stand."""
        return self._base

    def crop(self, length: int) -> None:
        """Forget the drafts, and the rows from `length` on."""
        self._cache.crop(length)
        self._base, self._states, self._seen = length, [], None

    def read(self, tokens: Tensor, feature: Tensor) -> None:
        """Rows of a prompt, behind which nothing is drafted, in chunks, so that masks stay small."""
        for chunk in zip(tokens.split(PREFILL_CHUNK), feature.split(PREFILL_CHUNK), strict=True):
            alone(self._text(*chunk, rows=0))

    def feed(self, tokens: Tensor, feature: Tensor) -> Asking[Tensor]:
        """n rows of the target's own states; raw logits `[1, V]` behind the last of them."""
        state, logits = yield from self._text(tokens, feature, rows=1)
        self._states = [state[-1:].clone()]
        return logits

    def ahead(self, tokens: Tensor, feature: Tensor, masks: int) -> Asking[Tensor]:
        """n rows of the target's own states and so many mask rows behind them, which are forgotten at once.

        Raw logits behind the last row of the text, where there is one, and behind each mask row, `[.., V]`.
        """
        self.crop(self._base)
        fed, above = F.pad(tokens, (0, masks), value=MASK), F.pad(feature, (0, 0, 0, masks))
        _, logits = yield from self._asked(fed, above, None, masks + min(1, len(tokens)))
        self._cache.advance(len(fed))
        self.crop(self._base + len(tokens))
        return logits

    def branch(self, tokens: Tensor, parents: Tensor | None = None) -> Asking[Tensor]:
        """Rows of k drafts; raw logits `[k, V]` behind each.

        parents: `[k]`, numbers of drafts fed before, -1 = the text. None: one draft, behind the last row that was fed.
        """
        count = len(tokens)
        if parents is None:
            above, seen = self._states[-1][-1:], self._behind_the_last()
        else:
            above, seen = torch.cat(self._states).index_select(0, parents + 1), self._below(parents)
        state, logits = yield from self._asked(tokens, above, seen, count)
        self._cache.advance(count)
        self._states.append(state.clone())
        return logits

    def _text(self, tokens: Tensor, feature: Tensor, rows: int) -> Asking[tuple[Tensor, Tensor]]:
        """Rows of the text, behind all others."""
        self.crop(self._base)
        found = yield from self._asked(tokens, feature, None, rows)
        self._cache.advance(len(tokens))
        self._base += len(tokens)
        return found

    def _behind_the_last(self) -> Tensor | None:
        """What one more draft of a chain sees."""
        if self._seen is None:
            return None
        last = self._seen.shape[0] - 2
        return self._below(torch.full((1,), last, device=self._seen.device))

    def _below(self, parents: Tensor) -> Tensor:
        """Which drafts k new ones see, `[k, fed + k]` bool: what their parents see, and themselves."""
        count, fed, device = len(parents), self._cache.length - self._base, parents.device
        if self._seen is None:
            self._seen = torch.ones(fed + 1, fed, dtype=torch.bool, device=device).tril(-1)
        own = torch.eye(count, dtype=torch.bool, device=device)
        new = torch.cat([self._seen.index_select(0, parents + 1), own], dim=1)
        self._seen = torch.cat([F.pad(self._seen, (0, count)), new])
        return new

    def _asked(self, tokens: Tensor, above: Tensor, seen: Tensor | None, rows: int) -> Asking[tuple[Tensor, Tensor]]:
        """`_forward`, as a part of one for many where the cache is shared."""
        yield from ()
        return self._forward(tokens, above, seen, rows)

    def _forward(self, tokens: Tensor, above: Tensor, seen: Tensor | None, rows: int) -> tuple[Tensor, Tensor]:
        """States `[n, H]` of n more rows, and raw logits of the last `rows` of them; nothing is counted yet.

        above: `[n, H]`, what each continues. seen: which of the drafts, these included, each sees; None = a chain.
        """
        cache, count = self._cache, len(tokens)
        assert isinstance(cache, RollbackCache)
        if seen is None:
            positions, mask = cache.positions(count), cache.mask(count)
        else:
            positions = seen.sum(1) + (self._base - 1)
            mask = cache.additive(F.pad(seen, (self._base, 0), value=True))
        state = self.forward.run(tokens, above, positions, mask, cache)
        return state, self.forward.logits(state[count - rows :])

"""A recurrent head as it drafts: one lean block with a cache of its own that rolls back like the target's."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.blocks import Blocks, fuse, rotary_table
from sampling.forward.cache import RollbackCache
from sampling.forward.kernels import make_linear
from sampling.forward.lean import LeanModel
from sampling.forward.linear import Kernel, Linear, ReducedOutput
from sampling.forward.runner import PREFILL_CHUNK, CausalModel
from sampling.forward.steps import BlockShape, Norm
from sampling.forward.tree import ancestor_mask, depths
from sampling.heads.block import frequencies
from sampling.heads.config import HeadConfig
from sampling.heads.head_files import Head
from utils.sent import moved, sent


@dataclass(frozen=True)
class RecurrentForward:
    """The arithmetic of `RecurrentHead` on lean layers. Shapes are `[n, H]`; see there for what a row means."""

    config: HeadConfig
    embedding: Tensor
    feature: Linear | None
    embed_norm: Norm | None
    feature_norm: Norm | None
    fc: Linear | None
    blocks: Blocks
    norm: Norm | None
    output: Linear
    window: int

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

        return cls(
            config,
            weights.get("embedding.weight", target.embedding),
            linear("feature"),
            norm("embed_norm"),
            norm("feature_norm"),
            linear("fc"),
            _blocks(config, weights, target, ["block."]),
            norm("norm"),
            output_matrix(head, target),
            min(config.window, target.window),
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
        joined = torch.cat(list(states), dim=-1)
        return joined if self.feature is None else self.feature(joined)

    def run(
        self, tokens: Tensor, feature: Tensor, positions: Tensor, mask: Tensor | None, cache: RollbackCache
    ) -> Tensor:
        """States of the rows; keys and values go behind `cache.length`, which the caller advances."""
        embedded = F.embedding(tokens, self.embedding)
        left = embedded if self.embed_norm is None else self.embed_norm(embedded)
        right = feature if self.feature_norm is None else self.feature_norm(feature)
        joined = torch.cat([left, right], dim=-1)
        base = right if self.config.normed_residual else feature
        x, read = (base, joined) if self.fc is None else (self.fc(joined), None)
        (state,) = self.blocks.run(x, positions, mask, cache, read)
        return self._normed(state) if self.config.normed_feedback else state

    def logits(self, state: Tensor) -> Tensor:
        """Raw logits `[n, V]`."""
        return self.output(state if self.config.normed_feedback else self._normed(state))

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
    """The output over the head's draft vocabulary: its own matrix or the target's rows."""
    ids = head.draft_ids.to(target.device)
    own = head.weights.get("output.weight")
    weight = target.output_rows(ids) if own is None else own.to(target.device, target.dtype)
    return ReducedOutput(make_linear(weight), ids, target.vocab_size)


class RecurrentRunner:
    """The sequence of one head: rows that the target's states stand behind, then rows of the drafts under way."""

    def __init__(self, forward: RecurrentForward) -> None:
        self.forward = forward
        self.window = forward.window
        self._cache = forward.new_cache()
        self._base = 0
        self._parents: list[int] = []
        self._states: Tensor = torch.empty(0)

    @property
    def length(self) -> int:
        """Rows behind which the target's own states stand."""
        return self._base

    def crop(self, length: int) -> None:
        """Forget the drafts, and the rows from `length` on."""
        self._cache.crop(length)
        self._base, self._parents = length, []

    def read(self, tokens: Tensor, feature: Tensor) -> None:
        """Rows of a prompt, behind which nothing is drafted, in chunks, so that masks stay small."""
        for chunk in zip(tokens.split(PREFILL_CHUNK), feature.split(PREFILL_CHUNK), strict=True):
            self._run(*chunk)

    def feed(self, tokens: Tensor, feature: Tensor) -> Tensor:
        """n rows of the target's own states; raw logits `[1, V]` behind the last of them."""
        state = self._run(tokens, feature)
        self._root, self._states = state[-1:], state[:0]
        return self.forward.logits(self._root)

    def _run(self, tokens: Tensor, feature: Tensor) -> Tensor:
        self.crop(self._base)
        count = len(tokens)
        state = self.forward.run(tokens, feature, self._cache.positions(count), self._cache.mask(count), self._cache)
        self._cache.advance(count)
        self._base += count
        return state

    def branch(self, tokens: Tensor, parents: Sequence[int]) -> Tensor:
        """Rows of k drafts; raw logits `[k, V]` behind each. parents: numbers of drafts fed before, -1 = the text."""
        count, fed = len(tokens), len(self._parents)
        above = torch.cat([self._root, self._states]).index_select(
            0, sent([parent + 1 for parent in parents], self._root.device)
        )
        self._parents += parents
        seen = ancestor_mask(self._parents)[fed + 1 :, 1:]
        whole = torch.cat([torch.ones(count, self._base, dtype=torch.bool), seen], dim=1)
        mask = None if whole.all() else self._cache.additive(moved(whole, above.device))
        depth = sent(depths(self._parents)[fed:], above.device)
        state = self.forward.run(tokens, above, depth + self._base - 1, mask, self._cache)
        self._cache.advance(count)
        self._states = torch.cat([self._states, state])
        return self.forward.logits(state)

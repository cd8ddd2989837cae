"""The arithmetic of a recurrent head as it drafts: lean blocks on rows of their own.

A P-EAGLE head is the same arithmetic with rows that have no token. A block with a window keeps all rows, and hides
those before the window.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.causal_model import CausalModel
from sampling.forward.cpp.block import places_of
from sampling.forward.cpp.whole import Ends, Joins, NativeForward, native_forward
from sampling.forward.kernels.linear import CandidateLinear, Kernel, Linear, LowRank, ReducedOutput
from sampling.forward.kernels.probe import make_linear
from sampling.forward.kernels.scores import Scores
from sampling.forward.models.blocks import Attending, Blocks, rotary_table
from sampling.forward.models.decoders.description import DecoderLayer
from sampling.forward.models.decoders.fusing import fuse
from sampling.forward.models.lean import LeanModel
from sampling.forward.models.steps import BlockShape, Norm
from sampling.heads.block import frequencies
from sampling.heads.config import HeadConfig
from sampling.heads.head_files import Head
from sampling.heads.recurrent import CANDIDATES

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
        weights = placed(head, target)

        def norm(name: str) -> Norm | None:
            weight = weights.get(f"{name}.weight")
            return None if weight is None else Norm(weight, config.rms_norm_eps)

        def linear(name: str) -> Linear | None:
            weight = weights.get(f"{name}.weight")
            return None if weight is None else make_linear(weight, weights.get(f"{name}.bias"))

        feature, hidden, masks = linear("feature"), weights.get("mask_hidden"), None
        if hidden is not None:
            masks = weights["mask_embedding"], hidden if feature is None else feature(hidden.unsqueeze(0))[0]
        later = [f"later.{place}." for place in range(config.layers - 1)]
        return cls(
            config,
            weights.get("embedding.weight", target.embedding),
            tuple(normed for place in range(len(config.features)) if (normed := norm(f"state_norms.{place}"))),
            feature,
            norm("embed_norm"),
            norm("feature_norm"),
            linear("fc"),
            _blocks(head, weights, target, ["block.", *later]),
            norm("norm"),
            output_matrix(head, target),
            head.positions(target.window),
            masks,
        )

    def with_kernel(self, kernel: Kernel) -> "RecurrentForward":
        """The same head, block and output computed by another kernel.

        What reads the target's states stays: a few of their entries are so large that rounding leaves nothing of
        the others, unless a norm stands between.
        """
        joined = self.fc.with_kernel(kernel) if self.fc and self.feature_norm else self.fc
        return replace(self, fc=joined, blocks=self.blocks.with_kernel(kernel), output=self.output.with_kernel(kernel))

    def read(self, states: Sequence[Tensor]) -> Tensor:
        """The feature of the target's states, one a layer."""
        each = self.config.state_norm == "each"
        parts = [norm(state) for norm, state in zip(self.state_norms, states, strict=True)] if each else list(states)
        joined = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        if self.config.state_norm == "joined":
            joined = self.state_norms[0](joined)
        return joined if self.feature is None else self.feature(joined)

    @cached_property
    def native(self) -> NativeForward | None:
        """The same head in one call of C++: see `native_forward`."""
        config = self.config
        joins = Joins(self.masks, self.embed_norm, self.feature_norm, self.fc, config.normed_residual)
        ends = Ends(self.embedding, self.norm, self.output, config.normed_feedback, joins)
        return native_forward(self.blocks, ends, lambda blocks: replace(self, blocks=blocks)._stepwise)

    def rows(
        self, tokens: Tensor, feature: Tensor, positions: Tensor, cache: Attending, which: int | Tensor
    ) -> tuple[Tensor, Tensor]:
        """States of the rows `[n, H]`, and raw logits `[m, V]` behind the last so many, or behind which `[m]`.

        Keys and values go where the cache has laid the rows out.
        """
        if self.native is not None and (places := places_of(cache)) is not None:
            return self.native.run(tokens, feature, positions, places, which, {})
        return self._stepwise(tokens, feature, positions, cache, which)

    def _stepwise(
        self, tokens: Tensor, feature: Tensor | None, positions: Tensor, cache: Attending, which: int | Tensor
    ) -> tuple[Tensor, Tensor]:
        """The same, an operation after the other."""
        assert feature is not None
        embedded, feature = self._entering(tokens, feature)
        left = embedded if self.embed_norm is None else self.embed_norm(embedded)
        right = feature if self.feature_norm is None else self.feature_norm(feature)
        joined = torch.cat([left, right], dim=-1)
        base = right if self.config.normed_residual else feature
        x, read = (base, joined) if self.fc is None else (self.fc(joined), None)
        state = self.blocks.run(x, positions, None, cache, read)[len(self.blocks.layers)]
        if self.config.normed_feedback:
            state = self._normed(state)
        asked = state[len(state) - which :] if isinstance(which, int) else state.index_select(0, which)
        return state, self.output(asked if self.config.normed_feedback else self._normed(asked))

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


def placed(head: Head, target: CausalModel) -> dict[str, Tensor]:
    """The head's weights on the target's device, in its dtype."""
    return {name: weight.to(target.device, target.dtype) for name, weight in head.weights.items()}


def _blocks(head: Head, weights: dict[str, Tensor], target: CausalModel, prefixes: Sequence[str]) -> Blocks:
    """The blocks in the lean form, which takes their weights out, and a rotary table for the positions of the head."""
    config = head.config
    table = rotary_table(*frequencies(config), head.positions(target.window), target.embedding)
    windows = config.attention_windows or [0] * len(prefixes)
    scores = [Scores(window=window or None) for window in windows]
    layers = tuple(
        fuse(weights, prefix, config.rms_norm_eps, layer=DecoderLayer(sees))
        for prefix, sees in zip(prefixes, scores, strict=True)
    )
    return Blocks(layers, (table,), BlockShape(config.heads, config.kv_heads, config.head_dim))


def small_model(head: Head, target: CausalModel) -> LeanModel:
    """A distilled drafter as a causal model: its own blocks between the target's embedding and output rows."""
    config, weights = head.config, placed(head, target)
    return LeanModel(
        target.embedding,
        _blocks(head, weights, target, [f"blocks.{place}." for place in range(config.layers)]),
        Norm(weights["norm.weight"], config.rms_norm_eps),
        output_matrix(head, target),
        head.positions(target.window),
        config.vocab_size,
        tied=False,
    )


def output_matrix(head: Head, target: CausalModel) -> Linear:
    """The output over the head's draft vocabulary: matrices of its own or the target's rows."""
    ids = head.draft_ids.to(target.device)

    def low_rank(names: Sequence[str]) -> Linear:
        down, up = (make_linear(head.weights[name].to(target.device, target.dtype)) for name in names)
        return LowRank(down, up)

    if head.config.output_rank:
        return ReducedOutput(low_rank(LOW_RANK), ids, target.vocab_size)
    output_weight = head.weights.get("output.weight")
    weight = target.output_rows(ids) if output_weight is None else output_weight.to(target.device, target.dtype)
    if head.config.candidate_rank:
        found = CandidateLinear(low_rank(CANDIDATES), weight, head.config.candidates)
        return ReducedOutput(found, ids, target.vocab_size)
    return ReducedOutput(make_linear(weight), ids, target.vocab_size)

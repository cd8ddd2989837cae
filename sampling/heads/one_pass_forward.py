"""A one-pass head as it drafts: lean blocks, and a cache that holds nothing but rows of the text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from sampling.forward.caches.attention_metadata import QueryRows
from sampling.forward.caches.rows_slot import RowsSlot
from sampling.forward.causal_model import CausalModel
from sampling.forward.kernels.linear import Kernel, Linear
from sampling.forward.kernels.probe import make_linear
from sampling.forward.models.blocks import Attending, Blocks, rotary_table
from sampling.forward.models.decoders.fusing import fuse
from sampling.forward.models.steps import BlockShape, Norm
from sampling.forward.requests import ForwardRequest, StepGenerator
from sampling.heads.block import frequencies
from sampling.heads.config import HeadConfig
from sampling.heads.head_files import Head
from sampling.heads.inference import output_matrix
from sampling.heads.runner import HeadRunner, joined

Injected = list[tuple[Tensor, Tensor]]
"""Keys and values `[n, kv_heads, D]` of n rows of the text, a layer each."""


@dataclass(frozen=True)
class Markov:
    """W1 `[V, r]`, and the rows of W2 of the draft vocabulary `[D]`."""

    before: Tensor
    after: Linear
    ids: Tensor

    def __call__(self, tokens: Tensor) -> Tensor:
        """What the tokens before add to raw logits, `[k, V]`; nothing where a token is never drafted."""
        added = self.after(F.embedding(tokens, self.before))
        whole = added.new_zeros(len(tokens), len(self.before))
        return whole.index_copy_(1, self.ids, added)


@dataclass(frozen=True)
class OnePassForward:
    """The arithmetic of `OnePassHead` on lean layers. Shapes are `[n, H]`; see there for what a row means.

    mask: `[H]`. inject: keys and values of all layers, side by side, in one product. confidence: of the log odds.
    """

    config: HeadConfig
    embedding: Tensor
    mask: Tensor
    feature: Linear
    feature_norm: Norm
    inject: Linear
    blocks: Blocks
    norm: Norm
    output: Linear
    markov: Markov | None
    confidence: Linear | None
    window: int

    @classmethod
    def of(cls, head: Head, target: CausalModel) -> "OnePassForward":
        """The head's weights, with the target's embedding and, unless it brings its own, output rows."""
        config, ids = head.config, head.draft_ids.to(target.device)
        weights = {name: weight.to(target.device, target.dtype) for name, weight in head.weights.items()}
        embedding, eps = weights.get("embedding.weight", target.embedding), config.rms_norm_eps
        inject = _inject(config, weights)
        layers = tuple(fuse(weights, f"blocks.{place}.", eps) for place in range(config.layers))
        window = head.positions(target.window)
        table = rotary_table(*frequencies(config), window + config.steps + 1, target.embedding)
        markov = None
        if config.markov_rank:
            after = make_linear(weights["markov_out.weight"].index_select(0, ids))
            markov = Markov(weights["markov_in.weight"], after, ids)
        confidence = None
        if config.confidence != "none":
            confidence = make_linear(weights["confidence.weight"], weights.get("confidence.bias"))
        return cls(
            config,
            embedding,
            weights["mask"] if config.mask_token < 0 else embedding[config.mask_token],
            make_linear(weights["feature.weight"]),
            Norm(weights["feature_norm.weight"], eps),
            inject,
            Blocks(layers, (table,), BlockShape(config.heads, config.kv_heads, config.head_dim)),
            Norm(weights["norm.weight"], eps),
            output_matrix(head, target),
            markov,
            confidence,
            window,
        )

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.config.steps + self.config.fills

    def with_kernel(self, kernel: Kernel) -> "OnePassForward":
        """The same head, blocks and output computed by another kernel; what reads the target's states stays."""
        return replace(self, blocks=self.blocks.with_kernel(kernel), output=self.output.with_kernel(kernel))

    def read(self, states: Sequence[Tensor]) -> Tensor:
        """What the layers read of the target's states, one a layer."""
        return self.feature_norm(self.feature(torch.cat(list(states), dim=-1)))

    def injected(self, text: Tensor, positions: Tensor) -> Injected:
        """Keys and values of rows of the text, from what `read` gave."""
        blocks, shape = self.blocks, self.blocks.shape
        ((cos, sin),) = blocks.turns(positions)
        both = self.inject(text).view(len(text), len(blocks.layers), 2, shape.kv_heads, shape.head_dim)
        injected_rows = []
        for place, layer in enumerate(blocks.layers):
            keys = both[:, place, 0] if layer.k_norm is None else layer.k_norm(both[:, place, 0])
            injected_rows.append(
                (torch.addcmul(keys * cos, keys.roll(shape.head_dim // 2, -1), sin), both[:, place, 1])
            )
        return injected_rows

    def run(self, tokens: Tensor, positions: Tensor, mask: Tensor | None, cache: Attending) -> Tensor:
        """States `[m * steps, H]` behind the last norm, of the blocks that begin with these tokens `[m]`.

        positions: of all rows. Keys and values go behind the cache's rows, which are not counted.
        """
        first = F.embedding(tokens, self.embedding).unsqueeze(1)
        x = torch.cat([first, self.mask.expand(len(tokens), self.rows - 1, -1)], dim=1).flatten(0, 1)
        state = self.blocks.run(x, positions, mask, cache)[len(self.blocks.layers)]
        normed = self.norm(state)
        return normed.view(len(tokens), self.rows, -1)[:, 1:].flatten(0, 1) if self.config.fills else normed

    def acceptance(self, state: Tensor, before: Tensor) -> Tensor | None:
        """What the confidence head says of drafts with these states `[k, H]` behind these tokens `[k]`: `[k]`."""
        if self.confidence is None:
            return None
        read = state.expand(len(before), -1)
        if self.config.confidence == "markov" and self.markov is not None:
            read = torch.cat([read, F.embedding(before, self.markov.before)], dim=-1)
        return torch.sigmoid(self.confidence(read).squeeze(-1).float())


def _inject(config: HeadConfig, weights: dict[str, Tensor]) -> Linear:
    """The key and value projections of all layers as one product of what is read of the text."""
    names = [f"blocks.{place}.self_attn.{letter}_proj" for place in range(config.layers) for letter in "kv"]
    weight = torch.cat([weights[f"{name}.weight"] for name in names])
    biases = [weights.get(f"{name}.bias", weight.new_zeros(len(weights[f"{name}.weight"]))) for name in names]
    return make_linear(weight, torch.cat(biases) if any(f"{name}.bias" in weights for name in names) else None)


@dataclass(frozen=True, slots=True)
class BlockFeed:
    """The block of one sequence, and the token `[1]` that it begins with."""

    rows: QueryRows
    token: Tensor


class OnePassRunner(HeadRunner[OnePassForward]):
    """A one-pass head and the rows of all sequences that draft with it."""

    def another(self) -> "OnePassSlot":
        """See `HeadRunner.another`."""
        return OnePassSlot(self)

    @torch.inference_mode()
    def run(self, feeds: Sequence[BlockFeed]) -> Sequence[Tensor]:
        """States `[steps, H]` of the block of each."""
        positions = self.cache.lay_out([feed.rows for feed in feeds])
        states = self.forward.run(joined([feed.token for feed in feeds]), positions, None, self.cache)
        blocks: tuple[Tensor, ...] = states.split(self.forward.config.steps)
        return blocks

    @torch.inference_mode()
    def inject(self, rows: RowsSlot, text: Tensor) -> None:
        """Rows of one sequence behind its others, from what `OnePassForward.read` gave `[n, H]`."""
        positions = self.cache.lay_out_writes(QueryRows(rows, len(text)))
        for layer, (keys, values) in zip(self.cache.layers, self.forward.injected(text, positions), strict=True):
            layer.write(keys, values)
        rows.advance(len(text))


class OnePassSlot:
    """The rows of one sequence: those of the text, behind which a block stands for as long as its forward takes."""

    def __init__(self, runner: OnePassRunner) -> None:
        self._runner, self._rows = runner, RowsSlot(runner.cache)

    @property
    def length(self) -> int:
        """Rows of the text that were injected."""
        return self._rows.length

    def crop(self, length: int) -> None:
        """Forget the rows from `length` on."""
        self._rows.crop(length)

    def inject(self, text: Tensor) -> None:
        """See `OnePassRunner.inject`."""
        self._runner.inject(self._rows, text)

    def block(self, token: Tensor) -> StepGenerator[Tensor]:
        """States `[steps, H]` of the block that begins with this token `[1]`, which follows the rows of the text."""
        count, length = self._runner.forward.rows, self.length
        positions = torch.arange(length, length + count, device=token.device)
        seen = torch.ones(count, length + count, dtype=torch.bool, device=token.device)
        state: Tensor = yield ForwardRequest(
            self._runner, BlockFeed(QueryRows(self._rows, count, positions, seen), token)
        )
        return state

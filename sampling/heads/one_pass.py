"""A one-pass head: a block of rows, all masked but the first, is filled at once (DSpark, arXiv 2607.05147).

The backbone is DFlash's (2602.06036): states of several target layers are fused, and every layer reads them as keys
and values of the text; the rows of a block see the text and each other. Row 0 is the last token of the text, whose
state the target has not computed yet. What the backbone says of a draft does not depend on the drafts before it; a
matrix of low rank that is looked up by the token before (the Markov head) makes a chain of the rows: q_k =
softmax(U_k + W1[x_{k-1}] W2). A confidence head tells how likely the target accepts a draft.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sampling.heads.block import Block, Rows, rotations, turned
from sampling.heads.config import HeadConfig


class OnePassHead(nn.Module):
    """The trainable form. The rows of W1 and W2 are those of the whole vocabulary, whatever is drafted."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        size, eps, rank = config.hidden_size, config.rms_norm_eps, config.markov_rank
        self.feature = nn.Linear(len(config.features) * (config.target_size or size), size, bias=False)
        self.feature_norm = nn.RMSNorm(size, eps)
        self.mask = nn.Parameter(torch.zeros(size)) if config.mask_token < 0 else None
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(size, eps)
        self.markov_in = nn.Linear(rank, config.vocab_size, bias=False) if rank else None
        self.markov_out = nn.Linear(rank, config.vocab_size, bias=False) if rank else None
        read = size + (rank if config.confidence == "markov" else 0)
        self.confidence = None if config.confidence == "none" else nn.Linear(read, 1)

    def read(self, states: Sequence[Tensor]) -> Tensor:
        """What the layers read of the text, `[..., H]`, from the target's states `[..., H]`, one a layer."""
        y: Tensor = self.feature_norm(self.feature(torch.cat(list(states), dim=-1)))
        return y

    def forward(self, text: Tensor, first: Tensor, anchors: Tensor) -> Tensor:
        """States `[B, A, steps, H]` of A blocks a text, all of them in one pass.

        text: `[B, T, H]`, see `read`. anchors: `[A]`, where the blocks begin; the rows of one see the text before its
        anchor and the block, and no row of another block. first: `[B, A, H]`, the embeddings of the tokens there.
        """
        config, rows = self.config, self.config.steps + self.config.fills
        assert self.mask is not None, "a head with a mask token of the target is not trained here"
        masked = self.mask.expand(*first.shape[:2], rows - 1, -1)
        x = torch.cat([first.unsqueeze(2), masked], dim=2)
        places = (anchors.unsqueeze(1) + torch.arange(rows, device=anchors.device)).flatten()
        there = rotations(config, torch.arange(text.shape[1], device=text.device))
        rotation_here = rotations(config, places)
        hidden = torch.arange(text.shape[1], device=text.device) >= anchors.repeat_interleave(rows).unsqueeze(1)
        for block in self.blocks:
            x = _through(cast(Block, block), x, text, there, rotation_here, hidden)
        y: Tensor = self.norm(x)
        return y[:, :, 1:] if config.fills else y

    def before(self, tokens: Tensor) -> Tensor:
        """W1's rows `[..., r]` of tokens."""
        assert self.markov_in is not None
        return F.embedding(tokens, self.markov_in.weight)

    def told(self, state: Tensor, before: Tensor | None) -> Tensor:
        """Log odds `[...]` that drafts are accepted, from their states `[..., H]` and W1's rows `[..., r]`."""
        assert self.confidence is not None
        read = (
            torch.cat([state, before], dim=-1) if self.config.confidence == "markov" and before is not None else state
        )
        y: Tensor = self.confidence(read).squeeze(-1)
        return y


def _through(block: Block, x: Tensor, text: Tensor, there: Rows, rows_here: Rows, hidden: Tensor) -> Tensor:
    """One layer for all blocks `[B, A, g, H]`; hidden: `[A * g, T]` bool, rows of the text that a row does not see."""
    assert block.input_layernorm is not None
    read = block.input_layernorm(x)
    x = x + _attention(block, read, text, there, rows_here, hidden)
    y: Tensor = x + block.mlp(block.post_attention_layernorm(x))
    return y


def _attention(block: Block, read: Tensor, text: Tensor, there: Rows, rows_here: Rows, hidden: Tensor) -> Tensor:
    """Each row attends to the text before its block and to its block, under one softmax."""
    attention = block.self_attn
    batch, anchors, rows, _ = read.shape
    flat, group = read.flatten(1, 2), attention.heads // attention.kv_heads

    def heads(projection: nn.Linear, of: Tensor, count: int, rotation: Rows | None) -> Tensor:
        """`[B, heads, n, D]`, a key or value head as often as queries read it."""
        made = projection(of).view(batch, -1, count, attention.dim)
        made = made if rotation is None else turned(made, rotation)
        return made.repeat_interleave(attention.heads // count, 2).transpose(1, 2)

    kv_heads = attention.kv_heads
    query = heads(attention.q_proj, flat, attention.heads, rows_here) * attention.dim**-0.5
    keys, values = heads(attention.k_proj, text, kv_heads, there), heads(attention.v_proj, text, kv_heads, None)
    beside, meant = heads(attention.k_proj, flat, kv_heads, rows_here), heads(attention.v_proj, flat, kv_heads, None)
    blocks = (batch, group * kv_heads, anchors, rows, attention.dim)
    above = (query @ keys.transpose(-1, -2)).masked_fill(hidden, float("-inf"))
    across = (query.view(blocks) @ beside.view(blocks).transpose(-1, -2)).flatten(2, 3)
    weights = torch.softmax(torch.cat([above, across], dim=-1), dim=-1)
    seen, inside = weights.split([text.shape[1], rows], dim=-1)
    out = seen @ values + (inside.view(*blocks[:4], rows) @ meant.view(blocks)).flatten(2, 3)
    y: Tensor = attention.o_proj(out.transpose(1, 2).reshape(batch, anchors, rows, -1))
    return y

"""P-EAGLE head: an EAGLE-like block that fills several places in one forward (arXiv 2602.01469).

A row of the text is EAGLE's: row t joins the state of position t with the embedding of token t + 1 and predicts token
t + 2. Mask row d behind it has neither: it reads an embedding and a state that all mask rows share, stands at position
t + d, sees the text's rows up to t and the mask rows between, itself included, and predicts token t + 2 + d.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sampling.heads.block import Block, Rows, rotations
from sampling.heads.config import HeadConfig


class ParallelEagleHead(nn.Module):
    """The trainable form: a `RecurrentHead` with `layers` blocks that is never fed back, and what mask rows read.

    mask_embedding: `[H]`, in a token's place. mask_hidden: `[features * target_size]`, in the states' place.
    """

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        size, eps = config.hidden_size, config.rms_norm_eps
        wide = config.fuse == "attention"
        many, theirs = len(config.features), config.target_size or size
        self.feature = nn.Linear(many * theirs, size, bias=False) if many > 1 or theirs != size else None
        self.embed_norm = nn.RMSNorm(size, eps) if config.normed else None
        self.feature_norm = nn.RMSNorm(size, eps) if config.normed else None
        self.fc = None if wide else nn.Linear(2 * size, size, bias=False)
        self.block = Block(config, 2 * size if wide else size, config.input_norm and not wide)
        self.later = nn.ModuleList(Block(config) for _ in range(config.layers - 1))
        self.norm = nn.RMSNorm(size, eps) if config.final_norm else None
        self.mask_embedding = nn.Parameter(torch.zeros(size))
        self.mask_hidden = nn.Parameter(torch.zeros(many * theirs))

    def read(self, states: Sequence[Tensor]) -> Tensor:
        """The feature `[..., H]` of the target's states `[..., H]`, one a layer."""
        joined = torch.cat(list(states), dim=-1)
        return joined if self.feature is None else self.feature(joined)

    def text(self, embedded: Tensor, feature: Tensor) -> tuple[Tensor, list[Rows]]:
        """Rows of the text, `[B, T, H]` each -> what the output matrix reads `[B, T, H]`, and each block's rows."""
        return self._pass(embedded, feature, 0, ())

    def masks(self, depth: int, past: Sequence[Sequence[Rows]]) -> tuple[Tensor, list[Rows]]:
        """The mask row of this depth behind every row of the text; past: what `text` and each depth before gave."""
        keys, _ = past[0][0]
        shape = keys.shape[0], keys.shape[2], -1
        return self._pass(self.mask_embedding.expand(shape), self.read([self.mask_hidden]).expand(shape), depth, past)

    def _pass(
        self, embedded: Tensor, feature: Tensor, first: int, past: Sequence[Sequence[Rows]]
    ) -> tuple[Tensor, list[Rows]]:
        positions = torch.arange(first, first + embedded.shape[1], device=embedded.device)
        rotation = rotations(self.config, positions)
        left = embedded if self.embed_norm is None else self.embed_norm(embedded)
        right = feature if self.feature_norm is None else self.feature_norm(feature)
        joined = torch.cat([left, right], dim=-1)
        before = [rows[0] for rows in past]
        if self.fc is None:
            base = right if self.config.normed_residual else feature
            state, own = self.block(base, rotation, before, read=joined)
        else:
            state, own = self.block(self.fc(joined), rotation, before)
        found = [own]
        for number, block in enumerate(self.later, start=1):
            state, own = block(state, rotation, [rows[number] for rows in past])
            found.append(own)
        return state if self.norm is None else self.norm(state), found

"""P-EAGLE head: an EAGLE-like block that fills several places in one forward (arXiv 2602.01469).

A row of the text is EAGLE's: row t joins the state of position t with the embedding of token t + 1 and predicts token
t + 2. Mask row d behind it has neither: it reads an embedding and a state that all mask rows share, stands at position
t + d, sees the text's rows up to t and the mask rows between, itself included, and predicts token t + 2 + d.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sampling.heads.block import Rows
from sampling.heads.config import HeadConfig
from sampling.heads.recurrent import JoiningHead


class ParallelEagleHead(JoiningHead):
    """The trainable form: a head of `layers` blocks that is never fed back, and what mask rows read.

    mask_embedding: `[H]`, in a token's place. mask_hidden: `[features * target_size]`, in the states' place.
    """

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config)
        self.mask_embedding = nn.Parameter(torch.zeros(config.hidden_size))
        self.mask_hidden = nn.Parameter(torch.zeros(len(config.features) * (config.target_size or config.hidden_size)))

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
        state, rows = self.through(embedded, feature, first, past)
        return self._normed(state), rows

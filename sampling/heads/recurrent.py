"""EAGLE, MTP and P-EAGLE heads: blocks that continue the target's hidden states.

Row t joins the state of position t with the embedding of token t + 1 and gives a state from which token t + 2
is predicted. Only the first block reads both. While an EAGLE or MTP head drafts, its own states take the place of the
target's, which it has not seen yet. EAGLE: arXiv 2401.15077; states of several layers, and training on own states:
EAGLE-3, 2503.01840. MTP: DeepSeek-V3, 2412.19437.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sampling.heads.block import Block, Rows, rotations
from sampling.heads.config import HeadConfig

CANDIDATES = "candidates_down.weight", "candidates_up.weight"


def state_norm_widths(config: HeadConfig) -> list[int]:
    """How wide each norm in front of `feature` is."""
    many, theirs = len(config.features), config.target_size or config.hidden_size
    return {"none": [], "each": [theirs] * many, "joined": [many * theirs]}[config.state_norm]


class JoiningHead(nn.Module):
    """Blocks, and what joins states and embeddings in front of the first. `feature` joins the states of several layers.

    later: blocks behind the first, which read what the one before gives.
    """

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        size, eps = config.hidden_size, config.rms_norm_eps
        wide = config.fuse == "attention"
        many, theirs = len(config.features), config.target_size or size
        self.state_norms = nn.ModuleList(nn.RMSNorm(width, eps) for width in state_norm_widths(config))
        self.feature = nn.Linear(many * theirs, size, bias=False) if many > 1 or theirs != size else None
        self.embed_norm = nn.RMSNorm(size, eps) if config.normed else None
        self.feature_norm = nn.RMSNorm(size, eps) if config.normed else None
        self.fc = None if wide else nn.Linear(2 * size, size, bias=False)
        first, *others = config.attention_windows or [0] * config.layers
        self.block = Block(config, 2 * size if wide else size, config.input_norm and not wide, first)
        self.later = nn.ModuleList(Block(config, window=window) for window in others)
        self.norm = nn.RMSNorm(size, eps) if config.final_norm else None

    def read(self, states: Sequence[Tensor]) -> Tensor:
        """The feature `[..., H]` of the target's states `[..., H]`, one a layer."""
        joined = torch.cat(self.normed(states), dim=-1)
        return joined if self.feature is None else self.feature(joined)

    def normed(self, states: Sequence[Tensor]) -> list[Tensor]:
        """The states behind their norms."""
        if self.config.state_norm == "joined":
            return [self.state_norms[0](torch.cat(list(states), dim=-1))]
        if self.config.state_norm == "each":
            return [norm(state) for norm, state in zip(self.state_norms, states, strict=True)]
        return list(states)

    def entering(self, embedded: Tensor, feature: Tensor) -> tuple[Tensor, Tensor | None]:
        """What the first block adds to, and what its attention reads where that is something else."""
        left = embedded if self.embed_norm is None else self.embed_norm(embedded)
        right = feature if self.feature_norm is None else self.feature_norm(feature)
        joined = torch.cat([left, right], dim=-1)
        if self.fc is None:
            return right if self.config.normed_residual else feature, joined
        return self.fc(joined), None

    def through(
        self, embedded: Tensor, feature: Tensor, first: int, past: Sequence[Sequence[Rows]]
    ) -> tuple[Tensor, list[Rows]]:
        """One pass of rows `[B, T, H]` through all blocks: states `[B, T, H]`, and keys and values of each block.

        first: position of row 0. past: what the passes before gave, of each block.
        """
        rotation = rotations(self.config, torch.arange(first, first + embedded.shape[1], device=embedded.device))
        x, read = self.entering(embedded, feature)
        state, rows = self.block(x, rotation, [blocks[0] for blocks in past], read)
        each = [rows]
        for number, block in enumerate(self.later, start=1):
            state, rows = block(state, rotation, [blocks[number] for blocks in past])
            each.append(rows)
        return state, each

    def _normed(self, state: Tensor) -> Tensor:
        return state if self.norm is None else self.norm(state)


class RecurrentHead(JoiningHead):
    """The trainable form. `fuse` joins state and embedding."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config)
        size, rank = config.hidden_size, config.output_rank
        self.output_down = nn.Linear(size, rank, bias=False) if rank else None
        self.output_up = nn.Linear(rank, config.draft_vocab, bias=False) if rank else None
        rough = config.candidate_rank
        self.candidates_down = nn.Linear(size, rough, bias=False) if rough else None
        self.candidates_up = nn.Linear(rough, config.draft_vocab, bias=False) if rough else None

    def forward(
        self, embedded: Tensor, feature: Tensor, first: int, past: Sequence[Sequence[Rows]] = ()
    ) -> tuple[Tensor, list[Rows]]:
        """See `through`; the states are those that the next pass reads."""
        state, rows = self.through(embedded, feature, first, past)
        return self._normed(state) if self.config.normed_feedback else state, rows

    def output(self, state: Tensor) -> Tensor:
        """What the output matrix reads, `[..., H]`."""
        return state if self.config.normed_feedback else self._normed(state)

    def logits(self, rows: Tensor, output: Tensor) -> Tensor:
        """Raw logits `[..., D]` of what `output` gave; output: rows of the target's output matrix `[D, H]`."""
        if self.output_down is None or self.output_up is None:
            return rows @ output.T
        logits: Tensor = self.output_up(self.output_down(rows))
        return logits

    def rough(self, rows: Tensor) -> Tensor | None:
        """Logits `[..., D]` by which candidates are found; None where the head finds none."""
        if self.candidates_down is None or self.candidates_up is None:
            return None
        logits: Tensor = self.candidates_up(self.candidates_down(rows))
        return logits

    def drafted(self, rows: Tensor, output: Tensor) -> Tensor:
        """As `logits`, as they are while it drafts: the lowest finite one for tokens that are no candidates."""
        logits, rough = self.logits(rows, output), self.rough(rows)
        if rough is None:
            return logits
        found = rough.topk(self.config.candidates, dim=-1).indices
        return torch.full_like(logits, torch.finfo(logits.dtype).min).scatter(-1, found, logits.gather(-1, found))


class ParallelEagleHead(JoiningHead):
    """P-EAGLE (arXiv 2602.01469): never fed back, it fills several places in one forward.

    A row of the text is EAGLE's. Mask row d behind row t has neither token nor state: it reads an embedding and a state
    that all mask rows share, stands at position t + d, sees the text's rows up to t and the mask rows between, itself
    included, and predicts token t + 2 + d.

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

"""A proposal: drafts that follow the last committed token, as a chain or a tree."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sampling.forward.tree import Parents, rows_of, seen_in_tree
from utils.device.graph_pool import Tensors
from utils.events import Round

_PARTS = ("draft_probs", "first_entropy", "point_mass_check")


@dataclass(frozen=True, slots=True)
class Proposal:
    """n drafts, parents before children.

    tokens: `[n]` int64. parents: n row numbers, -1 = the last committed token, on the host or as `Parents` on a device.
    None means a chain: row i follows row i - 1. draft_probs: `[n, V]` float32, the distribution q from which each token
    was drawn. Siblings are drawn without replacement, so earlier siblings have probability 0 in q. None means point
    masses: the drafter gives its token probability 1, as an n-gram match does. first_entropy: `[]`, of the raw
    distribution of the first draft, nats; None without one. point_mass_check: `[n]`, for point masses from
    logits: 1, or NaN if the logits are NaN or infinite. inner: the rounds of a drafter model that itself decodes
    speculatively, otherwise empty. source: see `Round`.

    Example: the tree root -> a, root -> b, a -> c is tokens [a, b, c], parents (-1, -1, 0).
    """

    tokens: Tensor
    parents: Sequence[int] | None = None
    draft_probs: Tensor | None = None
    first_entropy: Tensor | None = None
    point_mass_check: Tensor | None = None
    inner: tuple[Round, ...] = ()
    source: str = ""

    def __len__(self) -> int:
        return self.tokens.shape[0]

    @classmethod
    def empty(cls, device: torch.device) -> "Proposal":
        """A proposal without drafts: the round is plain autoregression."""
        return cls(torch.empty(0, dtype=torch.long, device=device))

    @property
    def parent_rows(self) -> tuple[int, ...]:
        """The parent of every row, also for a chain."""
        return tuple(range(-1, len(self) - 1)) if self.parents is None else tuple(self.parents)

    def parents_on(self, device: torch.device) -> Tensor:
        """The parent of every row, `[n]`, on a device, without a read of the device."""
        if self.parents is None:
            return torch.arange(-1, len(self) - 1, device=device)
        return rows_of(self.parents, device)

    def seen_on(self, device: torch.device) -> Tensor:
        """Which drafts each draft of a tree attends to, `[n, n]` bool: itself and its ancestors."""
        assert self.parents is not None
        return seen_in_tree(self.parents, device)[1:, 1:]


@dataclass(frozen=True, slots=True)
class ProposalForm:
    """The parts that a proposal has, for functions of tensors that take or give one."""

    tree: bool
    parts: tuple[str, ...]

    @classmethod
    def of(cls, proposal: Proposal) -> "ProposalForm":
        return cls(proposal.parents is not None, tuple(name for name in _PARTS if getattr(proposal, name) is not None))

    def tensors(self, proposal: Proposal, device: torch.device) -> Tensors:
        """The parts as tensors on a device."""
        parents = [proposal.parents_on(device)] if self.tree else []
        return proposal.tokens, *parents, *(getattr(proposal, name).to(device) for name in self.parts)

    def proposal(self, tokens: Tensor, *rest: Tensor, laid_out: tuple[Tensor, Tensor] | None = None) -> Proposal:
        """The proposal of these tensors. laid_out: see `Parents`."""
        parents = Parents(rest[0], laid_out) if self.tree else None
        parts: dict[str, Any] = dict(zip(self.parts, rest[self.tree :], strict=True))
        return Proposal(tokens, parents, **parts)

"""Suffix decoding (arXiv 2411.04975): trees of this text and of earlier responses say what may come next."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch

from egag.controller import GammaController
from ngram_assisted.suffix_memory import Recollection, ResponseTree
from ngram_assisted.suffix_text import TextTree
from ngram_assisted.suffix_tree import After, Draft, Limits, best_draft
from sampling.drafter import Context, Drafter
from sampling.proposal import Proposal


class SuffixDrafter(Drafter):
    """Drafts the continuation that the longest good match promises most of; a draft is a point mass.

    Two trees: `text` of prompt and output, which starts anew with each prompt, and `memory_tree` of the
    responses of earlier runs that came to their end, which outlives them (`Engine.forget` drops it).

    Drafts, scores and match lengths are those of the reference implementation, arctic-inference, but for
    continuations that occurred equally often and for the running response, which it has in the memory too.
    That package is not the tree itself: it comes as source only, and to build it takes a C++ compiler, CMake
    and torch on every machine, to save less than 0.1 ms a round on ordinary text (scripts/lookup_cost.py).
    """

    def __init__(
        self,
        max_tree_depth: int = 64,
        max_cached_requests: int = -1,
        max_spec_factor: float = 1.0,
        min_token_prob: float = 0.1,
        use_tree_spec: bool = False,
    ) -> None:
        self.depth, self.tree = max_tree_depth, use_tree_spec
        self.factor, self.min_prob = max_spec_factor, min_token_prob
        self.text = TextTree(max_tree_depth)
        self.memory_tree = ResponseTree(max_tree_depth, max_cached_requests)
        self.recollection = Recollection(self.memory_tree)

    @classmethod
    def build(cls, pair: Any, values: Mapping[str, Any]) -> Self:
        return cls(**values)

    def begin(self, ctx: Context) -> None:
        self.text = TextTree(self.depth)
        self.recollection = Recollection(self.memory_tree)
        self._read(ctx.text)

    def propose(self, ctx: Context, gamma: GammaController, limit: int) -> Proposal:
        if limit < 1 or not gamma.before(0, None):
            return Proposal.empty(ctx.device)
        draft = self.draft(ctx.text, gamma.gamma, limit)
        tokens = torch.tensor(draft.tokens, dtype=torch.long, device=ctx.device)
        return Proposal(tokens, draft.parents if self.tree else None)

    def draft(self, tokens: Sequence[int], budget: int, room: int) -> Draft:
        """The better of both trees' drafts by score, `budget` tokens in all and `room` deep at most.

        `tokens` begins with what was read before; what is new is read now.
        """
        self._read(tokens)
        limits = Limits(budget, min(room, budget), self.factor, self.min_prob, self.tree)
        here = best_draft(self.text, limits)
        earlier = best_draft(self.recollection, limits, here.score)
        return earlier if earlier.tokens else here

    def continuation(self, ctx: Context, pending: Sequence[int], limit: int) -> Sequence[int]:
        """The best path after text and `pending` drafts, which count as matched where a tree knows them."""
        self._read(ctx.text)
        if limit < 1:
            return []
        limits = Limits(limit, limit, self.factor, self.min_prob)
        here = best_draft(After(self.text, pending), limits)
        earlier = best_draft(After(self.recollection, pending), limits, here.score)
        return earlier.tokens or here.tokens

    def finish(self, ctx: Context) -> None:
        self.memory_tree.add(ctx.tokens[ctx.prompt_length :])

    def adopt(self, earlier: Drafter) -> None:
        if isinstance(earlier, SuffixDrafter):
            self.memory_tree.add_all(earlier.memory_tree)

    def memory(self) -> str:
        size = (self.memory_tree.memory_bytes + self.text.memory_bytes) / 1e6
        nodes = self.memory_tree.nodes + self.text.nodes
        return f"{self.memory_tree.responses:,} responses, {nodes:,} nodes, about {size:.1f} MB"

    def _read(self, tokens: Sequence[int]) -> None:
        new = tokens[len(self.text) :]
        self.text.extend(new)
        self.recollection.extend(new)

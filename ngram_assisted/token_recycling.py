"""Token Recycling (arXiv 2408.08696): the target's other candidates of earlier rounds become later drafts."""

import heapq
from collections import abc
from functools import lru_cache
from itertools import pairwise
from typing import Any, Self

from egag.length_rule import LengthRule
from sampling.drafter import Drafter
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.device.sent import sent
from utils.events import Round

# The accuracy by rank, for the shape of the tree: the first candidate is right about half of the time.
_RANKS = (0.5, 0.15, 0.08, 0.05, 0.03, 0.02, 0.02, 0.01)
_DEEPEST = 6
Table = dict[int, list[int]]


@lru_cache(maxsize=64)
def template(nodes: int, width: int) -> tuple[tuple[int, int, int], ...]:
    """The static tree: (parent, rank, depth) of each node, parent -1 = the text, most probable first.

    Every prefix of the list is a tree too. Example: 4 nodes, width 2 -> (-1, 0, 1), (0, 0, 2), (-1, 1, 1), (1, 0, 3).
    """
    tree: list[tuple[int, int, int]] = []
    waiting = [(-_RANKS[rank], rank, -1, 1) for rank in range(width)]
    while waiting and len(tree) < nodes:
        chance, rank, parent, depth = heapq.heappop(waiting)
        tree.append((parent, rank, depth))
        if depth < _DEEPEST:
            for below in range(width):
                heapq.heappush(waiting, (chance * _RANKS[below], below, len(tree) - 1, depth + 1))
    return tuple(tree)


class TokenRecyclingDrafter(Drafter):
    """Keeps the target's last `recycling_top_k` candidates after each token, and drafts a static tree of them.

    Every judged token updates its candidates, also a rejected draft. A prompt is not judged: its tokens start with the
    tokens that followed them there, latest first. With `recycling_remember` the table is kept for later prompts, as in
    the paper. A draft is a point mass.
    """

    def __init__(self, recycling_top_k: int = 8, recycling_remember: bool = True) -> None:
        self.width, self.remember = recycling_top_k, recycling_remember
        self.table: Table = {}

    @classmethod
    def build(cls, pair: object, values: abc.Mapping[str, Any]) -> Self:
        return cls(**values)

    def begin(self, seq: Sequence) -> None:
        if not self.remember:
            self.table = {}
        seq.drafter_state[self] = self.table
        text = seq.text
        for token, following in pairwise(text):
            others = [other for other in self.table.get(token, ()) if other != following]
            self.table[token] = [following, *others][: self.width]

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> Proposal:
        """The first `gamma` nodes of the tree, at most `limit` levels, as far as the table has candidates."""
        if limit < 1 or not gamma.before(0, None):
            return Proposal.empty(seq.device)
        table: Table = seq.drafter_state[self]
        tokens, parents, rows = list[int](), list[int](), {-1: -1}
        chances: list[float] = []
        for node, (parent, rank, depth) in enumerate(template(gamma.gamma, self.width)):
            if parent not in rows or depth > limit:
                continue
            above = rows[parent]
            known = table.get(seq.tokens[-1] if above < 0 else tokens[above], ())
            if rank < len(known):
                rows[node] = len(tokens)
                tokens.append(known[rank])
                parents.append(above)
                chances.append(_RANKS[rank] * (1.0 if above < 0 else chances[above]))
        there, kin = seq.allowed_rows(tokens, parents)
        kept = gamma.truncation.truncate([chances[row] for row in there], 0, kin)
        ids = sent([tokens[row] for row in there[:kept]], seq.device)
        return Proposal(ids, kin[:kept] if kept else None)

    def observe(self, seq: Sequence, round: Round) -> None:
        if seq.logits is None:
            return
        root = seq.tokens[-len(round.emitted) - 1]
        best: list[list[int]] = seq.logits.topk(min(self.width, seq.logits.shape[-1]), dim=-1).indices.tolist()
        seq.drafter_state[self].update(zip((root, *round.drafts), best, strict=True))

    def adopt(self, earlier: Drafter, share: bool = False) -> None:
        if isinstance(earlier, TokenRecyclingDrafter) and self.remember:
            self.table = {token: known[: self.width] for token, known in earlier.table.items()}

    def memory(self) -> str:
        return f"candidates behind {len(self.table):,} tokens" if self.remember and self.table else ""

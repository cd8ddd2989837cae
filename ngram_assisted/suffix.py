"""Suffix decoding (arXiv 2411.04975): trees of this text and of earlier responses predict the next tokens."""

from collections import abc
from dataclasses import dataclass
from typing import Any, Self

from egag.length_rule import LengthRule
from ngram_assisted.suffix_memory import Recollection, ResponseTree
from ngram_assisted.suffix_text import TextTree
from ngram_assisted.suffix_tree import Draft, Limits, LookaheadTree, best_draft
from sampling.drafter import Drafter
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.device.sent import sent

# The least depth of the tree of responses, so that drafters of smaller depths can share one tree.
_DEPTH = 64


@dataclass(frozen=True, slots=True)
class _Trees:
    """The state for a sequence: the tree of its text, and its suffixes in the tree of earlier responses."""

    text: TextTree
    recollection: Recollection

    def read(self, tokens: abc.Sequence[int]) -> None:
        """Add the new tokens of the text, which begins with the tokens read before."""
        new = tokens[len(self.text) :]
        self.text.extend(new)
        self.recollection.extend(new)


class SuffixDrafter(Drafter):
    """Drafts the continuation of the match with the best score; a draft is a point mass.

    There are two trees. One holds the prompt and the output of the sequence. The other, `memory_tree`, holds the
    responses of earlier finished runs and lasts until `Engine.forget`.

    Drafts, scores and match lengths equal those of the reference implementation, arctic-inference, with two exceptions.
    Ties between equally frequent continuations may differ. The reference also keeps the running response in its memory,
    which changes most scores and hardly any accepted drafts (docs/algorithms/suffix.md). The reference package is not
    used here. It has no binary release, and a build needs a C++ compiler, CMake and torch. It would save less than 0.1
    ms per round on ordinary text (scripts/lookup_cost.py).
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
        self.memory_tree = ResponseTree(max(max_tree_depth, _DEPTH), max_cached_requests)

    @classmethod
    def build(cls, pair: object, values: abc.Mapping[str, Any]) -> Self:
        return cls(**values)

    def begin(self, seq: Sequence) -> None:
        trees = seq.drafter_state[self] = _Trees(TextTree(self.depth), Recollection(self.memory_tree, self.depth))
        trees.read(seq.text)

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> Proposal:
        if limit < 1 or not gamma.before(0, None):
            return Proposal.empty(seq.device)
        draft = self.draft(seq, gamma.gamma, limit)
        kept = gamma.truncation.truncate(draft.probs, draft.match_length, draft.parents if self.tree else None)
        tokens = sent(draft.tokens[:kept], seq.device)
        return Proposal(tokens, draft.parents[:kept] if self.tree else None)

    def draft(self, seq: Sequence, budget: int, room: int) -> Draft:
        """The draft with the better score of both trees, at most `budget` tokens in total and `room` levels."""
        trees: _Trees = seq.drafter_state[self]
        trees.read(seq.text)
        limits = Limits(budget, min(room, budget), self.factor, self.min_prob, self.tree)
        here = best_draft(trees.text, limits)
        earlier = best_draft(trees.recollection, limits, here.score)
        draft = earlier if earlier.tokens else here
        return draft if seq.grammar is None else draft.only(*seq.allowed_rows(draft.tokens, draft.parents))

    def continuation(self, seq: Sequence, pending: abc.Sequence[int], limit: int) -> abc.Sequence[int]:
        """The best path after the text and the `pending` drafts, which count as matched if a tree has them."""
        trees: _Trees = seq.drafter_state[self]
        trees.read(seq.text)
        if limit < 1:
            return []
        limits = Limits(limit, limit, self.factor, self.min_prob)
        here = best_draft(LookaheadTree(trees.text, pending), limits)
        earlier = best_draft(LookaheadTree(trees.recollection, pending), limits, here.score)
        return seq.allowed(earlier.tokens or here.tokens, pending)

    def finish(self, seq: Sequence) -> None:
        self.memory_tree.add(seq.tokens[seq.prompt_length :])

    def adopt(self, earlier: Drafter, share: bool = False) -> None:
        if not isinstance(earlier, SuffixDrafter):
            return
        known, mine = earlier.memory_tree, self.memory_tree
        if share and known.max_responses == mine.max_responses and known.depth >= mine.depth:
            self.memory_tree = known
        else:
            mine.add_all(known)

    def memory(self) -> str:
        tree = self.memory_tree
        return f"{tree.responses:,} responses, {tree.nodes:,} nodes, about {tree.memory_bytes / 1e6:.1f} MB"

"""Prompt lookup (arXiv 2304.04487): find the last tokens earlier in the text, and copy what followed."""

from collections import abc
from typing import Any, Self

from egag.length_rule import LengthRule
from sampling.drafter import Drafter
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.device.sent import sent

Gram = tuple[int, ...]


class GramIndex:
    """Where each n-gram of a growing text ended, its last n-gram of every size left out.

    It is left out because a text's end is always found at the end, where nothing follows. One dictionary
    entry an n-gram: a look-up does not depend on the length of the text.
    """

    def __init__(self, sizes: abc.Sequence[int], latest: bool = True) -> None:
        self.sizes, self.latest = sizes, latest
        self._ends: dict[Gram, int] = {}
        self._read = 0

    def read(self, tokens: abc.Sequence[int]) -> None:
        """Index what is new in the text, which begins with what was read before."""
        for end in range(max(1, self._read), len(tokens)):
            for size in self.sizes:
                if size <= end:
                    gram = tuple(tokens[end - size : end])
                    if self.latest or gram not in self._ends:
                        self._ends[gram] = end
        self._read = len(tokens)

    def find(self, tokens: abc.Sequence[int]) -> tuple[int, int] | None:
        """Index of what followed the end of the text at the place it was found, longest end first, and that length.

        Example: sizes 3, 2, 1 in the text 5 6 7 8 5 6 find the pair 5 6, which 7 at index 2 followed: (2, 2).
        """
        for size in self.sizes:
            end = self._ends.get(tuple(tokens[-size:])) if size < len(tokens) else None
            if end is not None:
                return end, size
        return None


class PromptLookupDrafter(Drafter):
    """Copies what followed the last n tokens, n from `max_ngram_size` down to `min_ngram_size`.

    The copy ends with the text at the latest, as in transformers and vLLM: it does not read its own
    drafts. A draft is a point mass.
    """

    def __init__(self, max_ngram_size: int = 3, min_ngram_size: int = 1, lookup_occurrence: str = "latest") -> None:
        self.sizes = range(max_ngram_size, min_ngram_size - 1, -1)
        self.latest = lookup_occurrence == "latest"

    @classmethod
    def build(cls, pair: object, values: abc.Mapping[str, Any]) -> Self:
        return cls(**values)

    def begin(self, seq: Sequence) -> None:
        index = seq.drafter_state[self] = GramIndex(self.sizes, self.latest)
        index.read(seq.text)

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> Proposal:
        if not gamma.before(0, None):
            return Proposal.empty(seq.device)
        copied, match = self.found(seq, min(gamma.gamma, limit))
        kept = copied[: gamma.truncation.truncate((1.0,) * len(copied), match)]
        return Proposal(sent(kept, seq.device))

    def continuation(self, seq: Sequence, pending: abc.Sequence[int], limit: int) -> abc.Sequence[int]:
        """What followed the end of text and `pending` drafts; a copy may run on into the drafts."""
        return self.found(seq, limit, pending)[0]

    def found(self, seq: Sequence, limit: int, pending: abc.Sequence[int] = ()) -> tuple[abc.Sequence[int], int]:
        """The same, and how many tokens of the text it was found by."""
        text, index = seq.text, seq.drafter_state[self]
        index.read(text)
        place = index.find([*text[-self.sizes[0] - 1 :], *pending])
        if place is None or limit < 1:
            return [], 0
        start, match = place
        copied = text[start : start + limit]
        return [*copied, *pending[: limit - len(copied)]], match

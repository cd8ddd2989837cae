"""Prompt lookup (arXiv 2304.04487): finds the last tokens earlier in the text and copies the continuation."""

from collections import abc
from typing import Any, Self

from egag.length_rule import LengthRule
from sampling.drafter import Drafter
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.device.sent import sent
from utils.device.spare import attempt

Gram = tuple[int, ...]


class GramIndex:
    """The end position of each n-gram of a growing text, without the last n-gram of every size.

    The last n-gram is left out because it would match itself, and nothing follows it. One dictionary entry per n-gram
    makes the look-up time independent of the text's length.
    """

    def __init__(self, sizes: abc.Sequence[int], latest: bool = True) -> None:
        self.sizes, self.latest = sizes, latest
        self._ends: dict[Gram, int] = {}
        self._read = 0

    def read(self, tokens: abc.Sequence[int]) -> None:
        """Index the new tokens of the text, which begins with the tokens read before."""
        for end in range(max(1, self._read), len(tokens)):
            for size in self.sizes:
                if size <= end:
                    gram = tuple(tokens[end - size : end])
                    if self.latest or gram not in self._ends:
                        self._ends[gram] = end
        self._read = len(tokens)

    def find(self, tokens: abc.Sequence[int]) -> tuple[int, int] | None:
        """(index after the match of the text's end, length of the match), for the longest match; None without a match.

        Example: sizes 3, 2, 1 in the text 5 6 7 8 5 6 find the pair 5 6, which 7 at index 2 followed: (2, 2).
        """
        for size in self.sizes:
            end = self._ends.get(tuple(tokens[-size:])) if size < len(tokens) else None
            if end is not None:
                return end, size
        return None


class PromptLookupDrafter(Drafter):
    """Copies the continuation of the last n tokens, n from `max_ngram_size` down to `min_ngram_size`.

    The copy stops at the end of the text, as in transformers and vLLM, and does not run into its own drafts. A draft is
    a point mass.
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
        return Proposal(sent(self._copied(seq, gamma, limit), seq.device))

    def propose_together(self, seqs: abc.Sequence[Sequence]) -> abc.Sequence[Proposal | None]:
        """All copies are sent at once. A text whose look-up fails is asked by itself, and fails there."""
        found = [attempt(self._copied, seq, seq.rule, seq.room) for seq in seqs]
        copies = [[] if isinstance(one, Exception) else one for one in found]
        if not copies:
            return []
        tokens = sent([token for copied in copies for token in copied], seqs[0].device)
        parts = tokens.split([len(copied) for copied in copies])
        return [None if isinstance(one, Exception) else Proposal(part) for one, part in zip(found, parts, strict=True)]

    def _copied(self, seq: Sequence, gamma: LengthRule, limit: int) -> abc.Sequence[int]:
        """The tokens that are drafted."""
        if not gamma.before(0, None):
            return []
        copied, match = self.found(seq, min(gamma.gamma, limit))
        return copied[: gamma.truncation.truncate((1.0,) * len(copied), match)]

    def continuation(self, seq: Sequence, pending: abc.Sequence[int], limit: int) -> abc.Sequence[int]:
        """The continuation of the text and the `pending` drafts; a copy may run into the drafts."""
        return self.found(seq, limit, pending)[0]

    def found(self, seq: Sequence, limit: int, pending: abc.Sequence[int] = ()) -> tuple[abc.Sequence[int], int]:
        """The same, and the number of matched tokens."""
        text, index = seq.text, seq.drafter_state[self]
        index.read(text)
        place = index.find([*text[-self.sizes[0] - 1 :], *pending])
        if place is None or limit < 1:
            return [], 0
        start, match = place
        copied = text[start : start + limit]
        return seq.allowed([*copied, *pending[: limit - len(copied)]], pending), match

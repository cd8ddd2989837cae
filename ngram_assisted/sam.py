"""SAM decoding (arXiv 2411.10666): a suffix automaton finds the longest end of the text that stood before."""

from collections import abc
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Self

from egag.controller import GammaController
from ngram_assisted.suffix_automaton import Reader, SuffixAutomaton
from sampling.drafter import Drafter
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.sent import sent

# Between responses: no token, so that no match runs from one into the next.
_BETWEEN = -1
Copy = tuple[abc.Sequence[int], int]


@dataclass(frozen=True, slots=True)
class _Automata:
    """What is kept for a sequence: the automaton of its text, and its end as earlier responses know it."""

    text: SuffixAutomaton
    earlier: Reader

    def read(self, tokens: abc.Sequence[int]) -> None:
        """Take in what is new in the text, which begins with what was read before."""
        new = tokens[len(self.text) :]
        self.text.extend(new)
        self.earlier.extend(new)

    def copies(self, pending: abc.Sequence[int], limit: int) -> abc.Iterator[Copy]:
        """What followed the longest end of text and `pending`, here and in earlier responses, each with its length."""
        if here := self.text.find(pending):
            copied = self.text.copied(here, limit)
            yield [*copied, *pending[: limit - len(copied)]], here.length
        if there := self.earlier.ahead(pending).found():
            copied = self.earlier.automaton.copied(there, limit)
            yield copied[: copied.index(_BETWEEN)] if _BETWEEN in copied else copied, there.length


class SamDrafter(Drafter):
    """Copies what followed the longest end of the text that stood before, however long it is; a draft is a point mass.

    With `sam_remember` the responses of earlier runs that came to their end are one more text to copy from: the longer
    match is taken, and this text's of two that are as long.
    """

    def __init__(self, lookup_occurrence: str = "latest", sam_remember: bool = True) -> None:
        self.latest, self.remember = lookup_occurrence == "latest", sam_remember
        self.responses = SuffixAutomaton(self.latest)

    @classmethod
    def build(cls, pair: Any, values: abc.Mapping[str, Any]) -> Self:
        return cls(**values)

    def begin(self, seq: Sequence) -> None:
        automata = seq.drafting[self] = _Automata(SuffixAutomaton(self.latest), Reader(self.responses))
        automata.read(seq.text)

    def propose(self, seq: Sequence, gamma: GammaController, limit: int) -> Proposal:
        if not gamma.before(0, None):
            return Proposal.empty(seq.device)
        copied, match = self.found(seq, min(gamma.gamma, limit))
        kept = copied[: gamma.keep((1.0,) * len(copied), match)]
        return Proposal(sent(kept, seq.device))

    def continuation(self, seq: Sequence, pending: abc.Sequence[int], limit: int) -> abc.Sequence[int]:
        """What followed the end of text and `pending` drafts; a copy may run on into the drafts."""
        return self.found(seq, limit, pending)[0]

    def found(self, seq: Sequence, limit: int, pending: abc.Sequence[int] = ()) -> Copy:
        """The same, and how many tokens of the text it was found by."""
        automata: _Automata = seq.drafting[self]
        automata.read(seq.text)
        copies = automata.copies(pending, max(0, limit))
        return max(filter(itemgetter(0), copies), key=itemgetter(1), default=([], 0))

    def finish(self, seq: Sequence) -> None:
        if self.remember:
            self.responses.extend([*seq.tokens[seq.prompt_length :], _BETWEEN])

    def adopt(self, earlier: Drafter) -> None:
        if isinstance(earlier, SamDrafter) and self.remember:
            self.responses.extend(earlier.responses.tokens)

    def memory(self) -> str:
        known = self.responses
        if not len(known):
            return ""
        return f"responses of {len(known):,} tokens, {known.nodes:,} states, about {known.memory_bytes / 1e6:.1f} MB"

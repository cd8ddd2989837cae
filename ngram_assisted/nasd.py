"""NASD: n-gram assisted speculative decoding. Counts of the text so far predict the next tokens."""

from collections import abc
from copy import copy, deepcopy
from itertools import islice
from typing import Any, Self

from egag.length_rule import LengthRule
from ngram_assisted.ngram_storage import NGramStorage
from sampling.drafter import Drafter
from sampling.methods.choices import STORAGES
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.device.sent import sent
from utils.events import Round


class NgramDrafter(Drafter):
    """Drafts the most frequent continuation until a context is unknown; a draft is a point mass.

    The storage counts the prompt and then the emitted tokens. At every position of the accepted path it also counts the
    target's other top `top_k_filler` candidates. `top_k_filler` 1 counts the emitted token only (the NAPD method). With
    `reset` each sequence has its own counts, and `storage` is that of the last sequence. Without `reset` all sequences
    share the counts of `storage`.
    """

    def __init__(self, storage: NGramStorage, top_k_filler: int = 3, reset: bool = True) -> None:
        self.storage, self.top_k_filler, self.reset = storage, top_k_filler, reset

    @classmethod
    def build(cls, pair: object, values: abc.Mapping[str, Any]) -> Self:
        chosen = values["set_ngramstorage"]
        storage = STORAGES[chosen.name].load()(*chosen.arguments)
        return cls(storage, values["top_k_filler"], values["reset_in_between"])

    def begin(self, seq: Sequence) -> None:
        if self.reset:
            self.storage = copy(self.storage)
            self.storage.reset()
        seq.drafter_state[self] = self.storage
        self.storage.initialize(seq.text)

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> Proposal:
        drafts: list[int] = []
        following = self._following(seq.drafter_state[self], seq.tokens)
        while len(drafts) < limit and gamma.before(len(drafts), None):
            token = next(following, None)
            if token is None:
                break
            drafts.append(token)
            if not gamma.after(len(drafts), None, None):
                break
        drafts = [*seq.allowed(drafts)]
        kept = drafts[: gamma.truncation.truncate((1.0,) * len(drafts))]
        return Proposal(sent(kept, seq.device))

    def continuation(self, seq: Sequence, pending: abc.Sequence[int], limit: int) -> abc.Sequence[int]:
        """The most frequent tokens after the text and the `pending` drafts, until a context is unknown."""
        storage: NGramStorage = seq.drafter_state[self]
        text = [*seq.tokens[1 - storage.n :], *pending]
        return seq.allowed(list(islice(self._following(storage, text), max(0, limit))), pending)

    def fallback(self, tokens: abc.Sequence[int]) -> int | None:
        """The draft after an unknown context of this text; None ends the draft."""
        return None

    def _following(self, storage: NGramStorage, tokens: abc.Sequence[int]) -> abc.Iterator[int]:
        """Repeatedly the most frequent next token, until a context is unknown."""
        order, fallback = storage.n - 1, self.fallback(tokens)
        window = list(tokens[-order:])
        while True:
            known = storage.next_token(window)
            token = fallback if known is None else known
            if token is None:
                return
            yield token
            window = [*window, token][-order:]

    def observe(self, seq: Sequence, round: Round) -> None:
        storage: NGramStorage = seq.drafter_state[self]
        rows = [0, *(row + 1 for row in round.path)][: len(round.emitted)]
        candidates = self._candidates(seq, rows)
        start = len(seq.tokens) - len(round.emitted)
        for place, token in enumerate(round.emitted):
            at = start + place
            context = seq.tokens[max(0, at - storage.n + 1) : at]
            storage.update(context, token)
            for other in candidates[place]:
                if other != token:
                    storage.update(context, other)

    def adopt(self, earlier: Drafter, share: bool = False) -> None:
        """Take over the counts of a storage of the same class and order."""
        if isinstance(earlier, NgramDrafter) and (type(earlier.storage), earlier.storage.n) == (
            type(self.storage),
            self.storage.n,
        ):
            self.storage = earlier.storage if share else deepcopy(earlier.storage)

    def memory(self) -> str:
        return f"{len(self.storage):,} contexts counted"

    def _candidates(self, seq: Sequence, rows: list[int]) -> list[list[int]]:
        """The target's `top_k_filler` most probable tokens at each judged position."""
        if self.top_k_filler == 1 or seq.logits is None:
            return [[] for _ in rows]
        judged = seq.logits.index_select(0, sent(rows, seq.logits.device))
        top: list[list[int]] = judged.topk(min(self.top_k_filler, judged.shape[-1]), dim=-1).indices.tolist()
        return top

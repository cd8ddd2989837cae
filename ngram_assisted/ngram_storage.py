"""Counts of n-grams: the most frequent token after each context."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import index
from typing import Any, Self

from utils.errors import UserError
from utils.text import quoted
from utils.token_ids import Ids, OneOrMore, known, one_or_more, token_ids

Gram = tuple[int, ...]


class NGramStorage:
    """Counts of k-grams of every order k in [2, n]; the longest known context decides.

    A context is the k - 1 tokens before a token. Its prediction is the token with the highest count. On a tie the token
    that reached the count first wins. Updates and look-ups take O(n). Ids come as a list, or as a tensor `[n]` or `[1,
    n]`.

    vocab_size: if given, the upper bound of all ids. Raises `UserError` (a `ValueError`) for a larger id, for an order
    below 2, and for arguments that are no list of ids.
    """

    def __init__(self, n: int, vocab_size: int | None = None) -> None:
        self.n = _at_least("n-gram order", n, 2)
        self.vocab_size = None if vocab_size is None else _at_least("vocab_size", vocab_size, 1)
        self.orders: Sequence[int] = range(self.n, 1, -1)
        self.reset()

    @classmethod
    def build(cls, pair: object, values: Mapping[str, Any]) -> Self:
        """The storage of the given order; it needs no model."""
        return cls(**values)

    def reset(self) -> None:
        """Forget every count."""
        self._counts: dict[Gram, dict[int, int]] = {}
        self._best: dict[Gram, int] = {}

    def initialize(self, tokens: Ids) -> None:
        """Count every n-gram of a text. If an id is invalid, nothing is counted."""
        ids = self._known(token_ids("tokens", tokens))
        for place in range(1, len(ids)):
            self._add(ids[max(0, place - self.n + 1) : place], ids[place])

    def update(self, context: Ids, token: OneOrMore) -> None:
        """Count `token` after the last k - 1 tokens of `context`, for every order k that the context fills.

        token: an id, or several alternatives, which are all counted. If an id is invalid, nothing is counted.
        """
        before, following = token_ids("context", context)[-self.n + 1 :], one_or_more("token", token)
        self._known([*before, *following])
        for following_id in following:
            self._add(before, following_id)

    def next_token(self, context: Ids) -> int | None:
        """The most frequent token after the longest known end of `context`; None when none is known."""
        ids = token_ids("context", context)
        for order in self._filled(ids):
            best = self._best.get(tuple(ids[len(ids) - order + 1 :]))
            if best is not None:
                return best
        return None

    def has_gram(self, gram: Ids) -> bool:
        """Whether the n-gram (a context and its token) has been counted."""
        ids = token_ids("gram", gram)
        return bool(ids) and ids[-1] in self._counts.get(tuple(ids[:-1]), {})

    def __len__(self) -> int:
        """The number of known contexts."""
        return len(self._best)

    def contexts(self) -> Iterator[tuple[Gram, list[tuple[int, int]]]]:
        """Each context with its tokens and their counts; the prediction comes first."""
        for context, counts in self._counts.items():
            best = self._best[context]
            yield context, [(best, counts[best]), *((t, c) for t, c in counts.items() if t != best)]

    def restore(self, contexts: Iterable[tuple[Gram, Sequence[tuple[int, int]]]]) -> None:
        """Replace all counts; the first token of a context is its prediction.

        If an id is invalid, the old counts stay.
        """
        contexts = list(contexts)
        for context, counts in contexts:
            self._known((*context, *(token for token, _ in counts)))
        self.reset()
        for context, counts in contexts:
            self._counts[context] = dict(counts)
            self._best[context] = counts[0][0]

    def _known(self, ids: Sequence[int]) -> Sequence[int]:
        """The ids unchanged. Raises `UserError` for an id outside the vocabulary, if a size is given."""
        return ids if self.vocab_size is None else known("token", ids, self.vocab_size)

    def _filled(self, context: Sequence[int]) -> Sequence[int]:
        """The orders, highest first, whose contexts are no longer than this one."""
        return self.orders[max(0, self.n - 1 - len(context)) :]

    def _add(self, context: Sequence[int], token: int) -> None:
        """Count a token after a context, in every order that the context fills."""
        for order in self._filled(context):
            self._count(tuple(context[len(context) - order + 1 :]), token)

    def _count(self, context: Gram, token: int) -> None:
        counts = self._counts.setdefault(context, {})
        counts[token] = counts.get(token, 0) + 1
        best = self._best.get(context)
        if best is None or counts[token] > counts[best]:
            self._best[context] = token


class OneLevelNGramStorage(NGramStorage):
    """Counts of n-grams of order n only: shorter contexts are unknown."""

    def __init__(self, n: int, vocab_size: int | None = None) -> None:
        super().__init__(n, vocab_size)
        self.orders = (self.n,)


def _at_least(name: str, value: Any, least: int) -> int:
    """An integer of at least `least`. Raises `UserError` for other values."""
    try:
        if index(value) >= least:
            return index(value)
    except TypeError:
        pass
    raise UserError(f"{name} {quoted(value)} given; expected an integer of {least} or more")

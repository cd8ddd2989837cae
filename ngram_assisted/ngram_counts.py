"""Counts of n-grams: which token has followed a context most often."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

Gram = tuple[int, ...]


class NGramStorage:
    """Counts of k-grams of every order k in [2, n]; the longest known context answers.

    A context is the k - 1 tokens before a token. Its answer is the token with the highest count; on a tie
    the one that reached that count first. Updates and look-ups take O(n).

    vocab_size: where it is given, every id counted or restored must be below it, else `ValueError`.
    """

    def __init__(self, n: int, vocab_size: int | None = None) -> None:
        if n < 2:
            raise ValueError(f"n-gram order {n} given; expected 2 or more")
        if vocab_size is not None and vocab_size < 1:
            raise ValueError(f"vocab_size {vocab_size} given; expected 1 or more, or None for no bound")
        self.n, self.vocab_size = n, vocab_size
        self.orders: Sequence[int] = range(n, 1, -1)
        self.reset()

    @classmethod
    def build(cls, pair: Any, values: Mapping[str, Any]) -> Self:
        """The storage of the given order; it needs no model."""
        return cls(**values)

    def reset(self) -> None:
        """Forget every count."""
        self._counts: dict[Gram, dict[int, int]] = {}
        self._best: dict[Gram, int] = {}

    def initialize(self, tokens: Sequence[int]) -> None:
        """Count every n-gram of a text."""
        for index in range(1, len(tokens)):
            self.update(tokens[max(0, index - self.n + 1) : index], tokens[index])

    def update(self, context: Sequence[int], token: int) -> None:
        """Count `token` after the last k - 1 tokens of `context`, for every order k that it fills.

        Raises `ValueError` for an id outside the vocabulary, and then nothing was counted.
        """
        if self.vocab_size is not None:
            self._check((*context[-self.n + 1 :], token), self.vocab_size)
        for order in self._filled(context):
            self._count(tuple(context[len(context) - order + 1 :]), token)

    def next_token(self, context: Sequence[int]) -> int | None:
        """The most frequent token after the longest known end of `context`; None when none is known."""
        for order in self._filled(context):
            best = self._best.get(tuple(context[len(context) - order + 1 :]))
            if best is not None:
                return best
        return None

    def has_gram(self, gram: Sequence[int]) -> bool:
        """Whether the n-gram (a context and its token) was ever counted."""
        *context, token = gram
        return token in self._counts.get(tuple(context), {})

    def __len__(self) -> int:
        """Number of contexts known."""
        return len(self._best)

    def contexts(self) -> Iterator[tuple[Gram, list[tuple[int, int]]]]:
        """Each context with its tokens and their counts; the answer comes first."""
        for context, counts in self._counts.items():
            best = self._best[context]
            yield context, [(best, counts[best]), *((t, c) for t, c in counts.items() if t != best)]

    def restore(self, contexts: Iterable[tuple[Gram, Sequence[tuple[int, int]]]]) -> None:
        """Hold these counts and no others; the first token of a context is its answer.

        Raises `ValueError` for an id outside the vocabulary, and then the counts are those of before.
        """
        contexts = list(contexts)
        if self.vocab_size is not None:
            for context, counts in contexts:
                self._check((*context, *(token for token, _ in counts)), self.vocab_size)
        self.reset()
        for context, counts in contexts:
            self._counts[context] = dict(counts)
            self._best[context] = counts[0][0]

    @staticmethod
    def _check(ids: Iterable[int], vocab_size: int) -> None:
        for id in ids:
            if not 0 <= id < vocab_size:
                raise ValueError(f"token id {id} given; expected one from 0 to {vocab_size - 1} (vocab_size)")

    def _filled(self, context: Sequence[int]) -> Sequence[int]:
        """Those orders, highest first, whose contexts are no longer than this one."""
        return self.orders[max(0, self.n - 1 - len(context)) :]

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
        self.orders = (n,)

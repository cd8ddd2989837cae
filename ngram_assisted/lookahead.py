"""Lookahead decoding (arXiv 2402.02057): the target guesses far ahead in parallel, and n-grams of that are drafts."""

from collections import abc
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

from egag.controller import GammaController
from sampling.drafter import Drafter
from sampling.events import Round
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.argmax import argmax
from utils.sent import sent

# How often the latest n-gram's first token is right, what an older one's is of that, and each further token.
_LATEST, _OLDER, _FURTHER = 0.4, 0.5, 0.6
Gram = tuple[int, ...]
Pool = dict[int, list[Gram]]
Window = list[list[int]]


@cache
def template(branches: int, depth: int) -> tuple[tuple[float, int, int], ...]:
    """(chance, branch, place) of each token of n-grams side by side, the most promising first.

    Example: 2 branches, 2 deep -> (0.4, 0, 0), (0.24, 0, 1), (0.2, 1, 0), (0.12, 1, 1).
    """
    tokens = (
        (_LATEST * _OLDER**branch * _FURTHER**place, branch, place)
        for branch in range(branches)
        for place in range(depth)
    )
    return tuple(sorted(tokens, key=lambda token: (-token[0], token[1:])))


class Tree:
    """Drafts by what they hang off; those that say the same at one place are one."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self._rows: dict[tuple[int, int], int] = {}

    def row(self, parent: int, token: int) -> int | None:
        """Where a draft stands; None where it does not."""
        return self._rows.get((parent, token))

    def add(self, parent: int, token: int) -> int:
        """The row of a draft, which is new if there was none like it."""
        row = self._rows.setdefault((parent, token), len(self.tokens))
        if row == len(self.tokens):
            self.tokens.append(token)
            self.parents.append(parent)
        return row


@dataclass(slots=True)
class Trajectories:
    """What is kept for one text.

    pool: behind a token the n-grams that began with it, without it, latest first. window: guesses by level and column;
    the one at level r and column i stands i + r places behind the last token, which itself is level 0, column 0. A
    column's guesses follow each other, each from the round after the one above. fed: the rows of the last level in the
    round's proposal, -1 = the last token; none where it had no window.
    """

    window: Window
    pool: Pool = field(default_factory=dict)
    fed: list[int] = field(default_factory=list)

    def learn(self, gram: abc.Sequence[int], most: int) -> None:
        """Keep an n-gram, and as many of those with its first token in all."""
        first, rest = gram[0], tuple(gram[1:])
        others = [other for other in self.pool.get(first, ()) if other != rest]
        self.pool[first] = [rest, *others][:most]


class LookaheadDrafter(Drafter):
    """Feeds a window of guesses with each round's drafts, and drafts the n-grams that came of it.

    The window is a part of the tree: level 0 is a chain behind the last token, and off each of its rows hangs a column
    of the other levels. So each guess sees what it follows, the forward that judges also says the next guesses, and a
    guess that happens to be right is accepted as any draft is. Drafts are point masses.
    """

    def __init__(
        self,
        lookahead_window: int = 3,
        lookahead_ngram: int = 3,
        lookahead_branches: int = 5,
        lookahead_prompt: bool = True,
    ) -> None:
        self.width, self.size = lookahead_window, lookahead_ngram
        self.branches, self.from_prompt = lookahead_branches, lookahead_prompt

    @classmethod
    def build(cls, pair: Any, values: abc.Mapping[str, Any]) -> Self:
        return cls(**values)

    def begin(self, seq: Sequence) -> None:
        text = seq.text
        guesses = [text[-1 - column % len(text)] for column in range(self.width)]
        kept = seq.drafting[self] = Trajectories([guesses])
        for start in range(len(text) - self.size + 1 if self.from_prompt else 0):
            kept.learn(text[start : start + self.size], self.branches)

    def propose(self, seq: Sequence, gamma: GammaController, limit: int) -> Proposal:
        """At most `gamma` rows: the window where it fits, and n-grams behind the last token in what it leaves."""
        kept: Trajectories = seq.drafting[self]
        kept.fed = []
        if limit < 1 or not gamma.before(0, None):
            return Proposal.empty(seq.device)
        levels = len(kept.window)
        rows = self.width * levels - 1
        fits = rows <= gamma.gamma and self.width + levels - 2 <= limit
        tree = self._grams(kept.pool.get(seq.tokens[-1], ()), gamma, gamma.gamma - (rows if fits else 0), limit)
        if fits:
            kept.fed = _feed(kept.window, tree)
        return Proposal(sent(tree.tokens, seq.device), tuple(tree.parents) if tree.tokens else None)

    def _grams(self, grams: abc.Sequence[Gram], gamma: GammaController, most: int, limit: int) -> Tree:
        """N-grams side by side, at most so many rows of them."""
        whole, chances = Tree(), list[float]()
        at: dict[tuple[int, int], int] = {}
        for chance, branch, place in template(self.branches, min(self.size - 1, limit)):
            above = -1 if not place else at.get((branch, place - 1))
            if branch >= len(grams) or above is None:
                continue
            token = grams[branch][place]
            if whole.row(above, token) is None:
                if len(chances) >= most:
                    continue
                chances.append(chance)
            at[branch, place] = whole.add(above, token)
        kept, tree = gamma.keep(chances, 0, whole.parents), Tree()
        for parent, token in list(zip(whole.parents, whole.tokens, strict=True))[:kept]:
            tree.add(parent, token)
        return tree

    def observe(self, seq: Sequence, round: Round) -> None:
        kept: Trajectories = seq.drafting[self]
        if seq.logits is None or not kept.fed:
            return
        rows = sent([row + 1 for row in kept.fed], seq.device)
        said: list[int] = argmax(seq.logits.index_select(0, rows)).tolist()
        if len(kept.window) == self.size - 1:
            root = seq.tokens[-len(round.emitted) - 1]
            kept.window[0][0] = root
            for column in zip(*kept.window, said, strict=True):
                kept.learn(column, self.branches)
        kept.window = [*kept.window, said][1 - self.size :]


def _feed(window: Window, tree: Tree) -> list[int]:
    """Hang the window into a tree; the rows of its last level."""
    rows, above = list[int](), -1
    for column, guesses in enumerate(zip(*window, strict=True)):
        row = above = tree.add(above, guesses[0]) if column else -1
        for guess in guesses[1:]:
            row = tree.add(row, guess)
        rows.append(row)
    return rows

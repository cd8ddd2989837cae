"""LogitSpec (arXiv 2507.01449): the target's other candidates for the last token are guesses of the next token."""

from collections import abc
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, Self

from egag.length_rule import LengthRule
from ngram_assisted.prompt_lookup import GramIndex
from sampling.drafter import Drafter
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from utils.device.sent import sent
from utils.events import Round

_SIZES = (3, 2, 1)
# The accuracy of a token by the size of the known n-gram that ends in it (0 = none): for the target's best other
# candidate, for the first token of a copy, and for later tokens of a copy. Measured with the embedded target on the
# prompts of drafter training.
_GUESSED = (0.02, 0.04, 0.3, 0.8)
_BEGUN = (0.0, 0.2, 0.55, 0.8)
_GOES_ON = (0.0, 0.6, 0.7, 0.87)
# The factor from one rank to the next.
_RANK = 0.97


@dataclass(slots=True)
class _State:
    """The state for a sequence: the index of its n-grams, and the target's candidates for its last token."""

    index: GramIndex = field(default_factory=lambda: GramIndex(_SIZES))
    candidates: abc.Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class _Path:
    """Tokens that may follow the text, and the probability of each that it and all before it are right."""

    tokens: abc.Sequence[int]
    chances: abc.Sequence[float]


@dataclass(slots=True)
class _GuessTree:
    """The most probable nodes of several paths, with shared prefixes, in falling order."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)


class LogitSpecDrafter(Drafter):
    """Copies the continuation of the text's end, alone and extended by each of the target's guesses of the next token.

    The logits of the last token also predict the next one: the guesses are the `logitspec_top_k` best tokens except the
    chosen one. Each guess is a draft. A copy follows it if its n-gram occurred before. The tree holds the most probable
    nodes, and a draft is a point mass.
    """

    def __init__(self, logitspec_top_k: int = 32) -> None:
        self.guesses = logitspec_top_k

    @classmethod
    def build(cls, pair: object, values: abc.Mapping[str, Any]) -> Self:
        return cls(**values)

    def begin(self, seq: Sequence) -> None:
        state = seq.drafter_state[self] = _State()
        state.index.read(seq.text)

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> Proposal:
        if limit < 1 or not gamma.before(0, None):
            return Proposal.empty(seq.device)
        state: _State = seq.drafter_state[self]
        state.index.read(seq.text)
        deep, text = min(gamma.gamma, limit), seq.text
        copy, match = _copied(state.index, text, (), deep)
        guessed = (_guess(state.index, text, rank, token, deep) for rank, token in enumerate(state.candidates))
        tree = _likeliest([copy, *guessed], gamma.gamma)
        rows, parents = seq.allowed_rows(tree.tokens, tree.parents)
        kept = gamma.truncation.truncate([tree.chances[row] for row in rows], match, parents)
        tokens = sent([tree.tokens[row] for row in rows[:kept]], seq.device)
        return Proposal(tokens, parents[:kept] if kept else None)

    def observe(self, seq: Sequence, round: Round) -> None:
        if seq.logits is None or round.next_token is None:
            return
        row = seq.logits[round.path[-1] + 1 if round.path else 0]
        best: list[int] = row.topk(min(self.guesses + 1, row.shape[-1])).indices.tolist()
        others = [token for token in best if token != round.next_token]
        seq.drafter_state[self].candidates = others[: self.guesses]


def _copied(index: GramIndex, text: abc.Sequence[int], guess: abc.Sequence[int], limit: int) -> tuple[_Path, int]:
    """The continuation of text and guess earlier in the text, and the length of the match in tokens."""
    place = index.find([*text[-_SIZES[0] - 1 :], *guess])
    if place is None:
        return _Path((), ()), 0
    start, size = place
    tokens = text[start : start + limit]
    return _Path(tokens, [_BEGUN[size] * _GOES_ON[size] ** draft for draft in range(len(tokens))]), size


def _guess(index: GramIndex, text: abc.Sequence[int], rank: int, token: int, limit: int) -> _Path:
    """A guess and the copy after it."""
    copy, size = _copied(index, text, (token,), limit - 1)
    chance = _GUESSED[size] * _RANK**rank
    return _Path([token, *copy.tokens], [chance, *(chance * further for further in copy.chances)])


def _likeliest(paths: abc.Sequence[_Path], count: int) -> _GuessTree:
    """The tree of the `count` most probable nodes on these paths, whose probabilities fall."""
    tree, rows = _GuessTree(), dict[tuple[int, int], int]()
    waiting = [(-path.chances[0], number, 0, -1) for number, path in enumerate(paths) if path.tokens]
    heapify(waiting)
    while waiting and len(tree.tokens) < count:
        chance, number, depth, parent = heappop(waiting)
        path = paths[number]
        node = parent, path.tokens[depth]
        if node not in rows:
            rows[node] = len(tree.tokens)
            tree.tokens.append(node[1])
            tree.parents.append(parent)
            tree.chances.append(-chance)
        if depth + 1 < len(path.tokens):
            heappush(waiting, (-path.chances[depth + 1], number, depth + 1, rows[node]))
    return tree

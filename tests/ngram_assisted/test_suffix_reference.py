"""Our suffix trees against arctic-inference's, where that is installed (`pip install arctic-inference --no-deps`).

Between continuations of equal counts each has its own choice. No choice is left where a path must keep more
than half of the match, and in a tree, whose scores ties do not change.
"""

import random
from pathlib import Path

import pytest

from ngram_assisted.suffix_memory import Recollection, ResponseTree
from ngram_assisted.suffix_text import TextTree
from ngram_assisted.suffix_tree import Draft, Limits, best_draft

native = pytest.importorskip("arctic_inference.suffix_decoding._C")
pytestmark = pytest.mark.slow


class Tally:
    """Compares drafts, and counts those whose match lengths differ by the reference's float32 rounding."""

    def __init__(self) -> None:
        self.compared = self.rounded = self.drafted = 0

    def compare(self, ours: Draft, tree: object, context: list[int], limits: Limits) -> None:
        args = (limits.budget, limits.factor, 0.0, limits.min_prob, limits.tree)
        theirs = tree.speculate(context, *args)  # type: ignore[attr-defined]
        self.compared += 1
        self.drafted += bool(ours.tokens)
        assert theirs.score == pytest.approx(ours.score, abs=1e-5)
        if ours.tokens and theirs.match_len != ours.match_length:
            self.rounded += 1
        elif ours.tokens:
            assert sorted(theirs.probs) == pytest.approx(sorted(ours.probs), abs=1e-5)
            if not limits.tree:
                assert (theirs.token_ids, theirs.parents) == (list(ours.tokens), list(ours.parents))


def words() -> list[int]:
    """A real text: this repository's README by words."""
    text = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8").split(" ")
    names: dict[str, int] = {}
    return [names.setdefault(word, len(names)) for word in text]


def random_text(rng: random.Random) -> list[int]:
    size = rng.choice([1, 2, 3, 5, 20])
    text = [rng.randrange(size) for _ in range(rng.randint(1, 60))]
    return text[: len(text) // 3 + 1] * 3 if rng.random() < 0.5 else text


def compare_run(rng: random.Random, text: list[int], responses: list[list[int]], tally: Tally) -> None:
    """Every round of a text that grows token by token, after responses of which the oldest were evicted."""
    depth, most = rng.choice([2, 3, 5, 8, 64]), rng.choice([-1, 1, 3])
    memory, theirs, kept = ResponseTree(depth, most), native.SuffixTree(depth), []
    for number, response in enumerate(responses):
        memory.add(response)
        theirs.extend(number, response)
        kept.append(number)
        if 0 < most < len(kept):
            theirs.remove(kept.pop(0))
    ours, local, reader = TextTree(depth), native.SuffixTree(depth), Recollection(memory)
    for end in range(1, len(text) + 1):
        new = text[end - 1 : end]
        ours.extend(new)
        reader.extend(new)
        local.extend(0, new)
        tree = rng.random() < 0.5
        limits = Limits(
            rng.choice([1, 3, 10]),
            1000,
            rng.choice([0.5, 1.0, 2.0]),
            rng.choice([0.1001, 0.3001]) if tree else 0.501,
            tree,
        )
        tally.compare(best_draft(ours, limits), local, text[:end][-depth:], limits)
        tally.compare(best_draft(reader, limits), theirs, text[:end][-depth:], limits)


def test_random_texts_draft_the_same() -> None:
    tally = Tally()
    for seed in range(1500):
        rng = random.Random(seed)
        compare_run(rng, random_text(rng), [random_text(rng) for _ in range(rng.randint(0, 6))], tally)
    assert tally.drafted > tally.compared / 4
    assert tally.rounded < tally.compared / 100


def test_a_real_text_drafts_the_same() -> None:
    tally, text = Tally(), words()
    parts = [text[at : at + 60] for at in range(0, len(text), 40)]
    for seed in range(20):
        rng = random.Random(seed)
        compare_run(rng, rng.choice(parts) + text[:200], rng.sample(parts, 8), tally)
    assert tally.drafted > tally.compared / 10
    assert tally.rounded < tally.compared / 100

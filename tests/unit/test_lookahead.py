"""Lookahead decoding, on windows that are small enough to check by hand."""

import torch

from egag.controller import DraftBudget
from ngram_assisted.lookahead import LookaheadDrafter, Trajectories, Tree, template
from sampling.events import Round
from sampling.forward.tree import depths
from sampling.sequence import Sequence
from tests.conformance.toy import toy_runner
from tests.sequences import sequence

Drafts = list[tuple[int, int]]


def drafted(drafter: LookaheadDrafter, seq: Sequence, budget: int = 20, limit: int = 9) -> Drafts:
    """(token, parent) of each draft."""
    proposal = drafter.propose(seq, DraftBudget(budget), limit)
    return list(zip(proposal.tokens.tolist(), proposal.parent_rows, strict=True))


def told(drafter: LookaheadDrafter, seq: Sequence, drafts: Drafts, best: list[int]) -> None:
    """A round whose drafts are all rejected. best: what the target says behind the text, and behind each draft."""
    seq.logits = torch.nn.functional.one_hot(torch.tensor(best), 6).float()
    seq.tokens.append(best[0])
    none = tuple(0.0 for _ in drafts)
    tokens, parents = tuple(token for token, _ in drafts), tuple(parent for _, parent in drafts)
    drafter.observe(seq, Round(0, 2, 4, tokens, parents, none, none, (), best[0], None, 6))


def test_the_docstrings_template() -> None:
    expected = ((0.4, 0, 0), (0.24, 0, 1), (0.2, 1, 0), (0.12, 1, 1))
    assert [one[1:] for one in template(2, 2)] == [one[1:] for one in expected]
    assert torch.allclose(torch.tensor([one[0] for one in template(2, 2)]), torch.tensor([one[0] for one in expected]))


def test_drafts_that_say_the_same_at_one_place_are_one() -> None:
    tree = Tree()
    assert [tree.add(-1, 4), tree.add(0, 4), tree.add(-1, 4), tree.add(-1, 5)] == [0, 1, 0, 2]
    assert (tree.tokens, tree.parents) == ([4, 4, 5], [-1, 0, -1])


def test_a_prompt_brings_its_ngrams_latest_first() -> None:
    drafter, seq = LookaheadDrafter(1, 3, 2), sequence([1, 2, 3, 1, 2, 4, 1, 5, 3, 1], toy_runner(0))
    drafter.begin(seq)
    # Behind 1 came 5 3, before that 2 4; 2 3 was earlier still.
    assert drafted(drafter, seq) == [(5, -1), (3, 0), (2, -1), (4, 2)]
    assert drafted(drafter, seq, limit=1) == [(5, -1), (2, -1)]
    assert drafted(drafter, seq, budget=3) == [(5, -1), (3, 0), (2, -1)]
    assert drafted(drafter, seq, budget=0) == drafted(drafter, seq, limit=0) == []


def test_ngrams_that_begin_alike_share_their_rows() -> None:
    drafter, seq = LookaheadDrafter(1, 3, 2), sequence([1, 2, 3, 1, 2, 4, 1], toy_runner(0))
    drafter.begin(seq)
    assert drafted(drafter, seq) == [(2, -1), (4, 0), (3, 0)]


def test_a_window_grows_a_level_a_round_and_then_moves_on() -> None:
    drafter, seq = LookaheadDrafter(2, 3, 2, lookahead_prompt=False), sequence([3, 1], toy_runner(0))
    drafter.begin(seq)
    kept: Trajectories = seq.drafting[drafter]
    first = drafted(drafter, seq)
    assert first == [(3, -1)] and kept.fed == [-1, 0]
    told(drafter, seq, first, [4, 5])
    assert kept.window == [[1, 3], [4, 5]] and not kept.pool
    second = drafted(drafter, seq)
    # Level 1 of column 0 hangs off the last token, that of column 1 off the guess beside it.
    assert second == [(4, -1), (3, -1), (5, 1)] and kept.fed == [0, 2]
    told(drafter, seq, second, [2, 0, 5, 1])
    assert kept.window == [[4, 5], [0, 1]], "level 1 is level 0 now"
    assert kept.pool == {4: [(4, 0)], 3: [(5, 1)]}, "a column and what the target said behind it"


def test_what_the_window_found_is_drafted_beside_it() -> None:
    drafter, seq = LookaheadDrafter(2, 3, 2, lookahead_prompt=False), sequence([3, 1], toy_runner(0))
    drafter.begin(seq)
    kept: Trajectories = seq.drafting[drafter]
    kept.window, kept.pool = [[0, 5], [4, 2]], {1: [(4, 0)]}
    drafts = drafted(drafter, seq)
    assert drafts == [(4, -1), (0, 0), (5, -1), (2, 2)], "the guess 4 is the n-gram's first token"
    assert kept.fed == [0, 3]


def test_a_limit_without_room_for_the_window_leaves_it_as_it_is() -> None:
    drafter, seq = LookaheadDrafter(3, 3, 2), sequence([1, 2, 3, 1], toy_runner(0))
    drafter.begin(seq)
    kept: Trajectories = seq.drafting[drafter]
    kept.window = [[0, 4, 5], [4, 5, 0]]
    for budget, limit in ((4, 9), (20, 2)):
        drafts = drafted(drafter, seq, budget, limit)
        assert drafts == [(2, -1), (3, 0)] and kept.fed == []
        told(drafter, seq, drafts, [1, 0, 0])
        assert kept.window == [[0, 4, 5], [4, 5, 0]]


def test_the_window_is_as_deep_as_the_paper_says() -> None:
    """W columns and N - 1 levels: W (N - 1) rows, the last token's among them, and W + N - 3 places ahead."""
    drafter, seq = LookaheadDrafter(5, 4, 2, lookahead_prompt=False), sequence([0, 1, 2, 3, 4], toy_runner(0))
    drafter.begin(seq)
    seq.drafting[drafter].window = [[0, 1, 2, 3, 4], [5] * 5, [0] * 5]
    rows = drafted(drafter, seq)
    assert len(rows) == 5 * 3 - 1 and max(depths([parent for _, parent in rows])) == 6
    assert len(set(seq.drafting[drafter].fed)) == 5

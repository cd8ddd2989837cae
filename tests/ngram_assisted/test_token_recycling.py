"""Token Recycling, on tables that are small enough to check by hand."""

import torch

from egag.length_rule import DraftBudget
from ngram_assisted.token_recycling import TokenRecyclingDrafter, template
from sampling.sequence import Sequence
from tests.conformance.toy import toy_runner
from tests.sequences import sequence
from utils.events import Round


def drafted(drafter: TokenRecyclingDrafter, seq: Sequence, budget: int = 4, limit: int = 9) -> list[tuple[int, int]]:
    """(token, parent) of each draft."""
    proposal = drafter.propose(seq, DraftBudget(budget), limit)
    return list(zip(proposal.tokens.tolist(), proposal.parent_rows, strict=True))


def test_the_docstrings_template() -> None:
    assert template(4, 2) == ((-1, 0, 1), (0, 0, 2), (-1, 1, 1), (1, 0, 3))


def test_every_beginning_of_the_template_is_a_tree() -> None:
    whole = template(200, 8)
    assert all(parent < number for number, (parent, _, _) in enumerate(whole))
    assert len({(parent, rank) for parent, rank, _ in whole}) == 200 and max(depth for _, _, depth in whole) <= 6
    assert template(7, 8) == whole[:7]


def test_a_prompt_brings_what_followed_each_token_latest_first() -> None:
    drafter, seq = TokenRecyclingDrafter(2), sequence([1, 2, 1, 3, 1], toy_runner(0))
    drafter.begin(seq)
    # Behind 1 came 3, earlier 2; behind 3 and 2 came 1.
    assert drafted(drafter, seq) == [(3, -1), (1, 0), (2, -1), (3, 1)]
    assert drafted(drafter, seq, limit=1) == [(3, -1), (2, -1)]
    assert drafted(drafter, seq, budget=0) == drafted(drafter, seq, limit=0) == []


def test_candidates_of_rejected_drafts_are_kept() -> None:
    """The target's rows: behind the root 4, 1; behind the rejected draft 2: 5, 3."""
    drafter, seq = TokenRecyclingDrafter(2), sequence([0, 1], toy_runner(0))
    drafter.begin(seq)
    seq.logits = torch.tensor([[0.0, 2, 0, 0, 3, 0], [0.0, 0, 0, 1, 0, 2]])
    seq.tokens.append(4)
    drafter.observe(seq, Round(0, 2, 4, (2,), None, (1.0,), (0.0,), (), 4, None, 6))
    assert seq.drafter_state[drafter] == {0: [1], 1: [4, 1], 2: [5, 3]}


def test_nothing_is_known_behind_a_new_token() -> None:
    drafter, seq = TokenRecyclingDrafter(), sequence([1, 2, 3], toy_runner(0))
    drafter.begin(seq)
    assert drafted(drafter, seq) == []


def test_the_table_outlives_the_prompt_where_it_is_asked_to() -> None:
    for remember, expected in ((False, []), (True, [(2, -1)])):
        drafter = TokenRecyclingDrafter(2, remember)
        drafter.begin(sequence([1, 2], toy_runner(0)))
        later = TokenRecyclingDrafter(2, remember)
        later.adopt(drafter)
        seq = sequence([5, 1], toy_runner(0))
        later.begin(seq)
        assert drafted(later, seq, budget=1) == expected
        assert bool(later.memory()) == remember

"""LogitSpec: which row the guesses come from, and which of them and of the copies behind them make the tree."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from egag.length_rule import DraftBudget, FixedGamma
from ngram_assisted.logitspec import LogitSpecDrafter
from ngram_assisted.prompt_lookup import PromptLookupDrafter
from sampling.forward.tree import depths
from sampling.sequence import Sequence
from tests.conformance.toy import toy_runner
from tests.sequences import sequence
from utils.events import Round

# Candidates behind three rows of a vocabulary of six, the best first: 4 1 0, 5 3 2, 2 0 1.
ROWS = torch.tensor([[1.0, 2, 0, 0, 3, 0], [0.0, 0, 1, 2, 0, 3], [2.0, 1, 3, 0, 0, 0]])


def on(tokens: list[int], guesses: int = 2) -> tuple[LogitSpecDrafter, Sequence]:
    drafter, seq = LogitSpecDrafter(guesses), sequence(tokens, toy_runner(0))
    drafter.begin(seq)
    return drafter, seq


def judged(seq: Sequence, drafter: LogitSpecDrafter, path: tuple[int, ...], token: int) -> None:
    """A round of the drafts 2 and 3, as siblings, was judged by `ROWS`."""
    seq.logits = ROWS
    round = Round(0, len(seq.tokens), 4, (2, 3), (-1, -1), (1.0, 1.0), (0.0, 0.0), path, token, None, 6)
    seq.tokens.extend(round.emitted)
    drafter.observe(seq, round)


def drafted(drafter: LogitSpecDrafter, seq: Sequence, budget: int = 10, limit: int = 9) -> list[tuple[int, int]]:
    """(token, parent) of each draft."""
    proposal = drafter.propose(seq, DraftBudget(budget), limit)
    return list(zip(proposal.tokens.tolist(), proposal.parent_rows, strict=True))


@pytest.mark.parametrize(
    ("path", "token", "guesses"),
    [((), 4, [1, 0]), ((0,), 5, [3, 2]), ((1,), 2, [0, 1]), ((1,), 0, [2, 1])],
    ids=["all rejected", "the first sibling", "the second sibling", "not the best token"],
)
def test_guesses_are_the_others_of_the_row_that_the_last_token_came_from(
    path: tuple[int, ...], token: int, guesses: list[int]
) -> None:
    drafter, seq = on([1])
    judged(seq, drafter, path, token)
    assert seq.drafter_state[drafter].candidates == guesses


def test_before_a_round_was_judged_it_is_prompt_lookup() -> None:
    tokens = [1, 2, 3, 4, 5, 1, 2]
    drafter, seq = on(tokens)
    assert drafted(drafter, seq, 4) == [(3, -1), (4, 0), (5, 1), (1, 2)]
    assert drafted(*on([1, 2, 3])) == []


def test_a_guess_is_followed_by_what_followed_it_with_the_texts_end() -> None:
    """Behind 5 4 came 1 2 lately and 0 3 before; the row of 4 has 1 and 0 in second and third place."""
    drafter, seq = on([5, 4, 0, 3, 5, 4, 1, 2, 5])
    judged(seq, drafter, (), 4)
    tree = drafted(drafter, seq)
    assert tree[:2] == [(1, -1), (0, -1)]  # what was copied, and was guessed too; what was guessed
    assert {(2, 0), (3, 1)} <= set(tree) and len(set(tree)) == len(tree)
    assert (1, -1) in drafted(drafter, seq, 1) and drafted(drafter, seq, 0) == drafted(drafter, seq, limit=0) == []
    assert drafted(drafter, seq, limit=1) == [(1, -1), (0, -1)]


def test_a_guess_that_was_never_seen_here_is_one_draft() -> None:
    drafter, seq = on([2, 3])
    judged(seq, drafter, (), 4)
    assert drafted(drafter, seq) == [(1, -1), (0, -1)]


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=30),
    st.permutations(range(6)),
    st.integers(0, 12),
    st.integers(1, 5),
)
def test_the_tree_is_one_within_budget_and_room_and_holds_the_likeliest(
    tokens: list[int], guesses: list[int], budget: int, limit: int
) -> None:
    drafter, seq = on(tokens)
    seq.drafter_state[drafter].candidates = [token for token in guesses if token != tokens[-1]]
    tree, whole = drafted(drafter, seq, budget, limit), drafted(drafter, seq, 99, limit)
    assert tree == whole[:budget]
    assert len(set(tree)) == len(tree) and all(parent < row for row, (_, parent) in enumerate(tree))
    proposal = drafter.propose(seq, DraftBudget(budget), limit)
    assert max(depths(proposal.parent_rows), default=0) <= limit


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.permutations(range(6)))
def test_what_prompt_lookup_drafts_is_in_the_tree(tokens: list[int], guesses: list[int]) -> None:
    lookup, seq = PromptLookupDrafter(), sequence(tokens, toy_runner(0))
    lookup.begin(seq)
    copied = lookup.propose(seq, FixedGamma(4), 4).tokens.tolist()
    drafter, seq = on(tokens)
    seq.drafter_state[drafter].candidates = [token for token in guesses if token != tokens[-1]]
    tree, row = drafted(drafter, seq, 99, 4), -1
    for token in copied:
        row = tree.index((token, row))

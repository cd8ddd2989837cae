"""Trees against a drawn one, and the cache against a list."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sampling.forward.caches.cache import RollbackCache
from sampling.forward.tree import Parents, ancestor_mask, ancestors, depths
from sampling.proposal import Proposal
from sampling.verify.proposals import ProposalBatch
from sampling.verify.rejection import RejectionVerifier
from tests.refusals import refused
from utils.events import Round


def test_the_docstrings_tree() -> None:
    parents = (-1, -1, 0)
    assert depths(parents) == [1, 1, 2]
    assert ancestor_mask(parents).int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]


def test_a_chain_is_the_tree_of_one_branch() -> None:
    proposal = Proposal(torch.tensor([3, 4, 5]))
    assert proposal.parent_rows == (-1, 0, 1)
    assert torch.equal(ancestor_mask(proposal.parent_rows), torch.ones(4, 4, dtype=torch.bool).tril())


def rows(*numbers: float) -> torch.Tensor:
    """One-number keys `[1, 1, n, 1]`."""
    return torch.tensor(numbers).view(1, 1, -1, 1)


def made(layers: int) -> RollbackCache:
    return RollbackCache(layers, torch.device("cpu"), torch.float32)


def stored(cache: RollbackCache) -> list[float]:
    keys, _ = cache.room(0, rows(0.0), rows(0.0), cache.length)
    return keys[0, 0, : cache.length, 0].tolist()


def feed(cache: RollbackCache, *numbers: float) -> None:
    cache.layers[0].write(rows(*numbers), rows(*numbers))
    cache.advance(len(numbers))


def test_keep_compacts_a_path_as_in_its_docstring() -> None:
    cache = made(1)
    feed(cache, *range(10))
    feed(cache, *range(10, 16))
    cache.keep(10, (1, 4))
    assert stored(cache) == [*range(11), 12, 15]
    assert cache.length == 13


def test_an_interrupted_forward_leaves_the_cache_as_it_was() -> None:
    cache = made(2)
    feed(cache, 1, 2, 3)
    cache.layers[0].write(rows(7, 8), rows(7, 8))
    assert stored(cache) == [1, 2, 3]


@pytest.mark.parametrize("length", [-1, 4])
def test_a_wrong_crop_is_refused(length: int) -> None:
    cache = made(1)
    feed(cache, 1, 2, 3)
    with refused(3, length, error=ValueError):
        cache.crop(length)


@given(st.lists(st.tuples(st.sampled_from(["feed", "crop", "keep"]), st.integers(0, 400)), max_size=30))
def test_the_cache_behaves_like_a_list(moves: list[tuple[str, int]]) -> None:
    cache, model, number = made(1), [], 0.0
    for move, size in moves:
        if move == "feed":
            new = [number + i for i in range(1 + size)]
            number += len(new)
            feed(cache, *new)
            model.extend(new)
        elif move == "crop":
            cache.crop(size % (len(model) + 1))
            del model[size % (len(model) + 1) :]
        elif model:
            base = size % len(model)
            path = tuple(range(0, len(model) - base - 1, 2))
            cache.keep(base, path)
            model = model[: base + 1] + [model[base + 1 + row] for row in path]
        assert stored(cache) == model


def make_round(drafts: tuple[int, ...], path: tuple[int, ...], parents: tuple[int, ...] | None = None) -> Round:
    flat = (0.5,) * len(drafts)
    return Round(0, 10, 4, drafts, parents, flat, flat, path, 4, None, 97)


def test_the_docstrings_round() -> None:
    example = make_round((5, 7, 9), (0, 1))
    assert example.emitted == (5, 7, 4)
    assert example.accepted == 2
    assert example.rejected == 2


def test_a_bonus_token_has_no_rejected_draft() -> None:
    assert make_round((5, 7), (0, 1)).rejected is None
    assert make_round((), ()).rejected is None
    assert make_round((5, 6, 1), (1,), (-1, -1, 0)).rejected is None
    assert make_round((5, 6, 1), (0,), (-1, -1, 0)).rejected == 2


@given(st.lists(st.integers(0, 30), max_size=24))
def test_what_rows_of_any_tree_see_follows_from_their_parents(picks: list[int]) -> None:
    parents = [pick % (row + 1) - 1 for row, pick in enumerate(picks)]
    expected = torch.eye(len(parents) + 1, dtype=torch.bool)
    expected[:, 0] = True
    for row, parent in enumerate(parents, start=1):
        expected[row] |= expected[parent + 1]
    assert torch.equal(ancestors(torch.tensor(parents, dtype=torch.long)), expected)
    assert (expected.sum(1) - 1).tolist() == [0, *depths(parents)]


def test_parents_on_a_device_are_not_read_to_judge_a_tree() -> None:
    parents = Parents(torch.tensor([-1, -1, 0, 2]))
    proposal = Proposal(torch.tensor([3, 4, 3, 1]), parents)
    p = torch.zeros(5, 6)
    p[[0, 1, 2, 3, 4], [3, 3, 0, 0, 5]] = 1.0
    batch = ProposalBatch([proposal], p.device)
    decided = RejectionVerifier().decide(batch, p, [torch.Generator().manual_seed(0)])
    assert "read" not in vars(parents) and (decided.end.tolist(), decided.token.tolist()) == ([2], [0])
    verdict = RejectionVerifier().verify(proposal, p, torch.Generator().manual_seed(0))
    assert verdict.parents == (-1, -1, 0, 2) and verdict.path == (0, 2) and "read" not in vars(parents)
    assert parents == (-1, -1, 0, 2) and len(parents) == 4 and parents[1:3] == (-1, 0)

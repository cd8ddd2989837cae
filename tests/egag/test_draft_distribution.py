"""What rules read of a drafter's distribution, over all tokens and over those of a draft vocabulary alone."""

import pytest
import torch

from egag.draft_distribution import LogitsDistribution
from sampling.drafters.draft_tree import likeliest

IDS = torch.tensor([1, 4, 5, 9, 30])


@pytest.fixture
def logits() -> torch.Tensor:
    """Of 40 tokens, the others of which have no chance."""
    full = torch.full((3, 40), torch.finfo(torch.float32).min)
    full[:, IDS] = torch.randn(3, len(IDS))
    return full


def test_a_draft_vocabulary_changes_no_number(logits: torch.Tensor) -> None:
    whole, reduced = LogitsDistribution(logits[0]), LogitsDistribution(logits[0], None, IDS)
    assert reduced.size == whole.size == 40
    assert reduced.entropy == pytest.approx(whole.entropy) and reduced.top == pytest.approx(whole.top)
    for token in (4, 30, 0, 39):
        assert reduced.chance(token) == pytest.approx(whole.chance(token))
        assert reduced.chance(torch.tensor(token)) == pytest.approx(whole.chance(torch.tensor([token])))


def test_the_likeliest_of_a_draft_vocabulary_are_the_likeliest(logits: torch.Tensor) -> None:
    whole, reduced = likeliest(logits, 3), likeliest(logits, 3, IDS)
    assert torch.equal(whole.tokens, reduced.tokens)
    torch.testing.assert_close(whole.chances, reduced.chances)
    assert likeliest(logits, 9, IDS).tokens.shape == (3, len(IDS))
    assert likeliest(logits * torch.nan, 2, IDS).chances.isnan().all()

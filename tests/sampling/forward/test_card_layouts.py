"""The layouts of a card: what the fixture gives every test of this folder, and a fault that it catches."""

import pytest
import torch
from torch.nn import functional as F

from sampling.forward.kernels import attention
from sampling.forward.kernels.attention import grouped_attention
from tests import card_layouts

SHAPE = 1, 2, 6, 16


def given(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    query, key, value = (torch.randn(SHAPE).to(dtype) for _ in range(3))
    return query, key, value, torch.zeros(6, 6, dtype=dtype)


def test_a_masked_output_lies_row_by_row_with_the_same_numbers() -> None:
    query, key, value, mask = given()
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    assert torch.equal(out, card_layouts.own(query, key, value, attn_mask=mask))
    assert out.stride() == (192, 16, 32, 1)
    assert F.scaled_dot_product_attention(query, key, value).is_contiguous()


def test_a_mask_in_another_dtype_is_refused() -> None:
    query, key, value, _ = given(torch.bfloat16)
    with pytest.raises(RuntimeError, match="invalid dtype for bias"):
        F.scaled_dot_product_attention(query, key, value, attn_mask=torch.zeros(6, 6))


def test_an_output_that_is_taken_for_contiguous_is_caught() -> None:
    """What behind a card's attention says `view`, as the grouped attention once did, raises."""
    query, key, value, mask = given()
    out = attention.F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        out.view(2 * 6, 16)
    rows = torch.randn(3, 4, 16)
    assert grouped_attention(rows, key, value, torch.zeros(6, 6)).is_contiguous()

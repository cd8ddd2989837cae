"""The folded attention behind transformers' modules: what it computes, and what it leaves to a family's own."""

from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers import GptOssConfig, GptOssForCausalLM, MistralConfig, MistralForCausalLM
from transformers.models.gemma2 import modeling_gemma2

from sampling.forward.kernels import attention
from sampling.forward.kernels.attention import folded_mask, grouped_attention
from sampling.forward.models.adapter import TransformersModel


@pytest.mark.parametrize("transposed", [False, True])
def test_values_may_be_narrower_than_keys(transposed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the layout of what the kernel returns: on a card it is `[B, rows, heads, E]`, transposed."""
    plain = functional.scaled_dot_product_attention
    chance = torch.Generator().manual_seed(0)
    query, keys, values = (torch.randn(2, *size, generator=chance) for size in ((4, 3, 6), (2, 5, 6), (2, 5, 2)))
    seen = torch.ones(3, 5, dtype=torch.bool).tril(2)
    mask = torch.zeros(3, 5).masked_fill(~seen, torch.finfo(torch.float32).min)
    expected = plain(query, keys, values, attn_mask=mask, enable_gqa=True).transpose(1, 2).reshape(6, 8)

    def as_on_a_card(*args: Any, **kwargs: Any) -> torch.Tensor:
        return plain(*args, **kwargs).transpose(1, 2).contiguous().transpose(1, 2)

    if transposed:
        monkeypatch.setattr(functional, "scaled_dot_product_attention", as_on_a_card)
    rows = query.transpose(1, 2).reshape(6, 4, 6)
    torch.testing.assert_close(grouped_attention(rows, keys, values, folded_mask(mask, 2)), expected)


def test_scores_that_are_capped_are_left_to_the_familys_own_function() -> None:
    """Without, they would be computed as if nothing had been asked for."""
    config = modeling_gemma2.Gemma2Config(hidden_size=8, num_attention_heads=2, num_key_value_heads=1, head_dim=4)
    module = modeling_gemma2.Gemma2Attention(config, layer_idx=0).eval()
    query, keys, values = 9 * torch.randn(1, 2, 3, 4), torch.randn(1, 1, 5, 4), torch.randn(1, 1, 5, 4)
    seen = torch.ones(1, 1, 3, 5, dtype=torch.bool).tril(2)
    mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    asked = {"dropout": 0.0, "scaling": 0.5, "softcap": 2.0, "sliding_window": 4}
    expected, _ = modeling_gemma2.eager_attention_forward(module, query, keys, values, mask, **asked)
    made, _ = attention._folded_for_transformers(module, query, keys, values, seen, **asked)
    torch.testing.assert_close(made, expected)
    plain, _ = attention._folded_for_transformers(module, query, keys, values, seen, scaling=0.5, softcap=None)
    assert not torch.allclose(plain, expected, atol=0.1)


def test_a_family_that_has_no_fast_attention_keeps_its_own() -> None:
    sizes = {
        "vocab_size": 16, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 4,
    }  # fmt: skip
    sinks = GptOssForCausalLM(GptOssConfig(**sizes, num_local_experts=2))
    TransformersModel(sinks)
    assert sinks.config._attn_implementation == "eager"
    plain = MistralForCausalLM(MistralConfig(**sizes))
    TransformersModel(plain)
    assert plain.config._attn_implementation == attention.FOLDED

"""Shapes of Llama and Qwen in every rounded format: rows depend on no other; layers that a format does not take."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, PretrainedConfig, Qwen2Config, Qwen3Config

from sampling.forward.kernels import int4, int8, shape_check
from sampling.forward.kernels.formats import FORMATS
from sampling.forward.models import lean
from sampling.forward.runner import ModelRunner, prefill
from sampling.loading import checkpoint
from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from tests.refusals import refused
from tests.tiny import TOKENS, random_model, save_checkpoint
from tests.tiny_models import ids

pytestmark = pytest.mark.skipif(not (int8.runs() and int4.runs()), reason="this CPU or torch lacks the products")
SIZES: dict[str, Any] = {
    "hidden_size": 96, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "vocab_size": TOKENS,
}  # fmt: skip
FAMILIES: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(**SIZES),
    "llama, tied, all biases": LlamaConfig(**SIZES, tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
    "llama, one key head": LlamaConfig(**{**SIZES, "num_key_value_heads": 1}),
    "llama, heads of 8": LlamaConfig(**{**SIZES, "num_attention_heads": 4, "head_dim": 8}),
    "llama, heads of 20": LlamaConfig(**{**SIZES, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 20}),
    "qwen2, tied": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**SIZES),
    "qwen3, tied": Qwen3Config(**SIZES, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SIZES),
}
ROUNDED = [name for name, format in FORMATS.items() if format.batch_invariant]


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def model(family: str, name: str) -> lean.LeanModel:
    """With biases and norms that matter."""
    whole = random_model(FAMILIES[family])
    with torch.no_grad():
        for weight in whole.parameters():
            if weight.dim() == 1:
                weight.add_(0.1 * torch.randn_like(weight))
    return lean.from_transformers(whole, format=FORMATS[name])


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_is_the_same_bit_for_bit_in_chains_and_trees(family: str, name: str) -> None:
    """Behind lengths at which products choose other orders of their sums; with one thread and with three, in turn."""
    with threads(1 + 2 * (([*FAMILIES].index(family) + ROUNDED.index(name)) % 2)):
        check_rows(model(family, name))


def check_rows(whole: lean.LeanModel) -> None:
    said = ids(300)
    alone, together = ModelRunner(whole), ModelRunner(whole)
    for start, rows in ((12, 7), (188, 5), (250, 17)):
        prefill(alone, said[:start])
        expected = torch.cat([alone.forward([token]).logits for token in said[start : start + rows]])
        prefill(together, said[:start])
        assert torch.equal(together.forward(said[start : start + rows]).logits, expected)
        together.crop(start)
        # The chain once more, with an alternative beside each of its tokens.
        drafts = [token for pair in zip(said[start + 1 : start + rows], said[:rows], strict=False) for token in pair]
        parents = [-1, -1] + [2 * (row // 2) - 2 for row in range(2, len(drafts))]
        found = together.forward([said[start], *drafts], parents).logits
        assert torch.equal(found[[0, *range(1, len(drafts), 2)]], expected)


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_rounded_model_says_nearly_what_the_whole_one_says(family: str, name: str) -> None:
    whole, rounded = (ModelRunner(model(family, one)).forward(ids(24)).logits for one in ("full", name))
    assert 0 < (rounded - whole).norm() < 0.6 * whole.norm()  # weights without any order: unlike ones are 1.4 apart


def wide_rows(inner: int) -> lean.LeanModel:
    config = LlamaConfig(**{**SIZES, "intermediate_size": inner, "num_hidden_layers": 1})
    return lean.from_transformers(random_model(config), format=FORMATS["int8"])


@pytest.mark.parametrize("count", [1, 3])
def test_threads_whose_shares_end_inside_a_row_change_nothing(count: int) -> None:
    whole, said = wide_rows(8960), ids(40)
    alone, together = ModelRunner(whole), ModelRunner(whole)
    with threads(count):
        prefill(alone, said[:20])
        prefill(together, said[:20])
        expected = torch.cat([alone.forward([token]).logits for token in said[20:28]])
        assert torch.equal(together.forward(said[20:28]).logits, expected)


MISFITS = [
    ({"hidden_size": 48}, ("48 inputs", "q_proj, k_proj, v_proj", 32)),
    ({"intermediate_size": 104}, ("104 inputs", "down_proj", 32)),
    ({"num_attention_heads": 4, "head_dim": 4, "num_key_value_heads": 4}, ("16 inputs", "o_proj", 32)),
    (
        {"num_attention_heads": 16, "num_key_value_heads": 1, "head_dim": 2},
        ("36 outputs", "q_proj, k_proj, v_proj", 16),
    ),
]


@pytest.mark.parametrize(("sizes", "quoted"), MISFITS)
def test_layers_that_int4_does_not_take_are_refused_before_weights_are_read(
    sizes: dict[str, int], quoted: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(save_checkpoint(tmp_path / "odd", LlamaConfig(**{**SIZES, **sizes})))
    here = LoadOptions(folder, device="cpu", dtype="float32", target_weights="int8")
    assert load_pair(here).target.forward([1, 2, 3]).logits.isfinite().all()
    with refused("--drafter self:int4", "odd", *quoted, "int8", "full"):
        load_pair(LoadOptions(folder, "self:int4", device="cpu", dtype="float32"))

    def read(*_: object) -> None:
        raise AssertionError("weights were read")

    monkeypatch.setattr(checkpoint, "read_weights", read)
    with refused("target_weights int4", "odd", *quoted, "int8", "full"):
        load_pair(LoadOptions(folder, device="cpu", dtype="float32", target_weights="int4"))


@pytest.mark.parametrize("family", FAMILIES)
def test_sizes_are_those_of_the_loaded_model(family: str) -> None:
    for name in FORMATS:
        assert shape_check.LayerSizes.of_model(model(family, name)) == shape_check.LayerSizes.of_config(
            FAMILIES[family]
        )

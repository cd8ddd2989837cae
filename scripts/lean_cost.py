"""Decoders on transformers' own modules and on the lean forward: `uv run scripts/lean_cost.py`, 40 seconds each.

Each of them in the shape of SmolLM2-135M, with random weights, in the pattern of layers that it is published with.
Both sides are loaded at once and take turns. Names after the command: these decoders alone.
"""

import utils.device.threads  # noqa: F401

import copy
import sys
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from sampling.forward.kernels.formats import FORMATS
from sampling.forward.models import lean
from sampling.forward.models.decoders.table import DECODERS
from sampling.forward.runner import ModelRunner, prefill
from sampling.loading.adapt import adapted
from scripts.packed_cost import CONTEXT, ratios

ROWS = (1, 5)
_SHAPE: dict[str, Any] = {
    "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "head_dim": 64, "vocab_size": 49152, "max_position_embeddings": 2048,
    "tie_word_embeddings": True, "sliding_window": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
# Eight experts, two a token, each a quarter as wide: a token's MLP is half as wide as that of the others.
_EXPERTS = {
    "num_experts": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 384,
    "intermediate_size": 384,
}  # fmt: skip
_ALIASES = ("internlm3", "iquestcoder", "ministral3")
"""Decoders that are Llama under another name, or that need a setting which nobody publishes."""


def main(*names: str) -> None:
    """Print a row for each decoder: tokens a second of plain decoding, and what the lean forward brings."""
    table = Table("decoder", "transformers' tok/s", "lean", "ratio", "range", "five rows", "range", "int8")
    for name in names or [name for name in DECODERS if name not in _ALIASES]:
        model = _model(name)
        before = _behind_a_text(adapted(name, copy.deepcopy(model)))
        after = _behind_a_text(lean.from_transformers(model))
        rounded = _behind_a_text(lean.from_transformers(model, format=FORMATS["int8"]))
        (slow, fast, ratio, spread), (*_, wide, wide_spread) = (ratios(before, after, rows) for rows in ROWS)
        _, eight, *_ = ratios(before, rounded, 1)
        times = (f"{1 / seconds:.1f}" for seconds in (slow, fast))
        table.add_row(name, *times, f"{ratio:.2f}", spread, f"{wide:.2f}", wide_spread, f"{1 / eight:.1f}")
    Console(width=110).print(table)


def _model(name: str) -> Any:
    """A random model of this family in float32."""
    kind = CONFIG_MAPPING[name]
    published = kind().to_dict()
    sizes = {**_SHAPE, **(_EXPERTS if "num_experts_per_tok" in published else {})}
    known = {key: size for key, size in sizes.items() if key in {*published, *kind.attribute_map}}
    if published.get("sliding_window") is None:
        known.pop("sliding_window", None)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(kind(**known), dtype=torch.float32).eval()


def _behind_a_text(model: Any) -> ModelRunner:
    runner = ModelRunner(model)
    prefill(runner, [(7 * place) % 1000 for place in range(CONTEXT)])
    return runner


if __name__ == "__main__":
    main(*sys.argv[1:])

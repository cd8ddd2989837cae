"""Transformers' own modules on plain and on packed products: `uv run scripts/packed_cost.py`, about three minutes.

Three families of about 125 million random weights. Both sides are loaded at once and take turns.
"""

import utils.device.threads  # noqa: F401

import copy
from statistics import median
from time import perf_counter
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoConfig, AutoModelForCausalLM

from sampling.forward.kernels.probe import AUTO, use_kernel
from sampling.forward.models.adapter import TransformersModel
from sampling.forward.runner import ModelRunner, prefill
from sampling.loading.adapt import adapted

# Sizes of gpt2, pythia-160m and opt-125m.
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "gpt_neox": {
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "vocab_size": 50304,
    },
    "opt": {"hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
}  # fmt: skip
DTYPES = (torch.float32, torch.bfloat16)
CONTEXT, TURNS, FORWARDS = 300, 9, 12
ROWS = (1, 5)


def main() -> None:
    """Print a row for each family and format: tokens a second of plain decoding, and what packed products bring."""
    table = Table("family", "format", "plain tok/s", "packed", "ratio", "range", "five rows", "range")
    for name, sizes in FAMILIES.items():
        for dtype in DTYPES:
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **sizes), dtype=dtype).eval()
            plain, packed = _runner(name, copy.deepcopy(model), False), _runner(name, model, True)
            cells = [ratios(plain, packed, rows) for rows in ROWS]
            (slow, fast, ratio, spread), (*_, wide, wide_spread) = cells
            label = str(dtype).removeprefix("torch.")
            table.add_row(
                name, label, f"{1 / slow:.1f}", f"{1 / fast:.1f}", f"{ratio:.2f}", spread, f"{wide:.2f}", wide_spread
            )
    use_kernel(AUTO)
    Console(width=110).print(table)


def _runner(name: str, model: Any, packed: bool) -> ModelRunner:
    """A runner behind a text, batch-invariant where its products are packed, as loading has it."""
    use_kernel("packed" if packed else "plain")
    adapter = adapted(name, model)
    assert isinstance(adapter, TransformersModel)
    runner = ModelRunner(adapter.with_batch_invariance(packed))
    prefill(runner, [(7 * place) % 1000 for place in range(CONTEXT)])
    return runner


def ratios(before: ModelRunner, after: ModelRunner, rows: int) -> tuple[float, float, float, str]:
    """Seconds of a forward of so many rows of both, how many times as fast the second is, and from where to where."""
    times = [(_seconds(before, rows), _seconds(after, rows)) for _ in range(TURNS)]
    ratios = [slow / fast for slow, fast in times]
    slow, fast = (median(side) for side in zip(*times, strict=True))
    return slow, fast, median(ratios), f"{min(ratios):.2f} to {max(ratios):.2f}"


def _seconds(runner: ModelRunner, rows: int) -> float:
    """The median of some forwards behind the same text."""
    taken = []
    for _ in range(FORWARDS):
        begun = perf_counter()
        runner.forward(range(1, rows + 1))
        taken.append(perf_counter() - begun)
        runner.crop(CONTEXT)
    return median(taken)


if __name__ == "__main__":
    main()

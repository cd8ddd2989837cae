"""What a rejection costs on recurrent targets: `uv run scripts/rollback_cost.py`, minutes each.

Random weights, in the shape of a published small model. A turn plays a text in each way, and by transformers' own
scans: rounds of a root and four drafts, two of them accepted. All take turns. Names after the command: these alone.
"""

import utils.device.threads  # noqa: F401

import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, cast
from unittest import mock

import torch
from rich.console import Console
from rich.table import Table
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from sampling.forward.caches.states import states_view
from sampling.forward.caches.states.rollback import EveryRow, Replay, Reread, Rollback
from sampling.forward.models.recurrent import RecurrentModel
from sampling.forward.runner import ModelRunner, prefill
from sampling.loading.adapt import adapted

_CONTEXT, _ROUNDS, _TURNS, _DRAFTS, _PATH = 64, 6, 5, 4, (0, 1)
_COMMON: dict[str, Any] = {"vocab_size": 32000, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SHAPES: dict[str, dict[str, Any]] = {
    "mamba": {"hidden_size": 768, "num_hidden_layers": 24},
    "mamba2": {"hidden_size": 768, "num_hidden_layers": 24, "num_heads": 24, "head_dim": 64, "n_groups": 1},
    "qwen3_5_text": {
        "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 24, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 256, "linear_num_value_heads": 16, "linear_num_key_heads": 16,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    },
    "lfm2": {
        "hidden_size": 1024, "intermediate_size": 4608, "num_hidden_layers": 16, "num_attention_heads": 16,
        "num_key_value_heads": 8, "layer_types": ["conv", "conv", "full_attention", "conv"] * 4,
    },
}  # fmt: skip


def main(*names: str) -> None:
    """Print a row for each model: milliseconds of a round in each way, and what they save."""
    table = Table(
        "model", "state, MiB", "reread, transformers' scans, ms", *(way.name for way in _ways()), "best, ratio"
    )
    for name in names or SHAPES:
        model = _model(name)
        players: list[Callable[[], float]] = [lambda model=model: _old(model)]
        players += [lambda model=model, way=way: _played(model.going(way)) for way in _ways()]
        turns = [[play() for play in players] for _ in range(_TURNS + 1)][1:]
        times = list(zip(*turns, strict=True))
        best = min(range(1, len(times)), key=lambda place: median(times[place]))
        ratios = [turn[0] / turn[best] for turn in turns]
        size = _state_bytes(model) / 2**20
        shown = (f"{1e3 * median(each):.1f}" for each in times)
        table.add_row(name, f"{size:.1f}", *shown, f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    Console(width=110).print(table)


def _ways() -> tuple[Rollback, ...]:
    return Reread(), Replay(), EveryRow()


def _model(name: str) -> RecurrentModel:
    torch.manual_seed(0)
    config = CONFIG_MAPPING[name](**_COMMON, **SHAPES[name])
    return cast(RecurrentModel, adapted(name, AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()))


def _old(model: RecurrentModel) -> float:
    """Accepted tokens are read again, and chains are padded to a chunk."""
    with mock.patch.object(states_view, "SHORT", 0):
        return _played(model.going(Reread()))


def _played(model: RecurrentModel) -> float:
    """Seconds of a round, from a few of them one behind the other."""
    runner = ModelRunner(model)
    runner.read([])
    prefill(runner, [(7 * place) % 1000 for place in range(_CONTEXT)])
    begun = time.perf_counter()
    for _ in range(_ROUNDS):
        base = runner.length
        runner.forward(list(range(10, 11 + _DRAFTS)))
        runner.keep(base, _PATH)
    return (time.perf_counter() - begun) / _ROUNDS


def _state_bytes(model: RecurrentModel) -> int:
    runner = ModelRunner(model.going(Replay()))
    runner.read([])
    prefill(runner, [1, 2, 3])
    runner.forward([4, 5])
    return cast(Any, runner.cache).recurrent_bytes


if __name__ == "__main__":
    main(*sys.argv[1:])

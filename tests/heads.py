"""Heads with random weights, as they lie on disk, for any small target."""

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch

from ablation.gpu_check.heads import save_random_heads
from sampling.pair.drafting_pair import ArithmeticT
from sampling.pair.pair import Pair

_MADE: dict[Any, tuple[Any, Any]] = {}


class CachingPair(Pair):
    """A pair whose heads are read and laid out once a process: their weights are changed by nobody."""

    def head_forward(self, kind: str, forward: type[ArithmeticT], wanted: str) -> ArithmeticT:
        model = self.target.model
        key = forward, self.heads.get(kind), wanted, id(model)
        if key not in _MADE:
            _MADE[key] = model, super().head_forward(kind, forward, wanted)
        return _MADE[key][1]  # type: ignore[no-any-return]


@cache
def random_heads(hidden_size: int, layers: int, window: int, draft_ids: tuple[int, ...], vocab: int) -> dict[str, Path]:
    """A head of every kind for targets of this size; without a digest, so that it fits all of them."""
    folder = Path(mkdtemp())
    atexit.register(shutil.rmtree, folder)
    torch.manual_seed(3)
    block = {"intermediate_size": 8, "heads": 2, "kv_heads": 1, "head_dim": 4, "steps": 3}
    sizes = {"base": "tiny", "hidden_size": hidden_size, "vocab_size": vocab, "window": window, **block}
    return save_random_heads(folder, sizes, layers, torch.tensor(draft_ids))

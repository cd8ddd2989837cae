"""Heads with random weights, as they lie on disk, for any small target."""

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import torch

from ablation.gpu_check.heads import save_random_heads


@cache
def random_heads(hidden_size: int, layers: int, window: int, draft_ids: tuple[int, ...], vocab: int) -> dict[str, Path]:
    """A head of every kind for targets of this size; without a digest, so that it fits all of them."""
    folder = Path(mkdtemp())
    atexit.register(shutil.rmtree, folder)
    torch.manual_seed(3)
    block = {"intermediate_size": 8, "heads": 2, "kv_heads": 1, "head_dim": 4, "steps": 3}
    sizes = {"base": "tiny", "hidden_size": hidden_size, "vocab_size": vocab, "window": window, **block}
    return save_random_heads(folder, sizes, layers, torch.tensor(draft_ids))

"""Heads with random weights, as they lie on disk, for any small target."""

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import torch

from sampling.distill.tasks import Trunk
from sampling.heads.config import HeadConfig
from sampling.heads.head_files import save_head
from sampling.methods import HEADS


@cache
def random_heads(hidden_size: int, layers: int, window: int, draft_ids: tuple[int, ...], vocab: int) -> dict[str, Path]:
    """A head of every kind for targets of this size; without a digest, so that it fits all of them."""
    folder, ids = Path(mkdtemp()), torch.tensor(draft_ids)
    atexit.register(shutil.rmtree, folder)
    torch.manual_seed(3)
    for kind, part in HEADS.items():
        task = part.load_task()
        config = HeadConfig(
            method=kind,
            base="tiny",
            base_digest="",
            hidden_size=hidden_size,
            vocab_size=vocab,
            draft_vocab=len(ids),
            steps=3,
            intermediate_size=8,
            heads=2,
            kv_heads=1,
            head_dim=4,
            window=window,
            **task.configure(layers),
        )
        unused = torch.zeros(1, hidden_size)
        module = task(config, Trunk(unused, unused, ids, layers)).module
        weights = {name: torch.randn(weight.shape) for name, weight in module.state_dict().items()}
        save_head(folder / kind, config, weights, ids)
    return {kind: folder / kind for kind in HEADS}

"""Heads with random weights, as they lie on disk: what drafting costs is studied without training."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sampling.distill.tasks import Trunk
from sampling.heads.config import HeadConfig
from sampling.heads.head_files import save_head
from sampling.methods.tables import HEADS


def save_random_heads(
    folder: Path,
    sizes: Mapping[str, Any],
    layers: int,
    draft_ids: Tensor,
    kinds: Iterable[str] = HEADS,
    deviation: float = 1.0,
) -> dict[str, Path]:
    """A head of each kind in a folder of its own, for every target of these sizes: without a digest it fits them all.

    sizes: fields of `HeadConfig`. layers: of the target. draft_ids: `[D]`, its draft vocabulary.
    """
    unused, heads = torch.zeros(1, sizes["hidden_size"]), dict[str, Path]()
    for kind in kinds:
        task = HEADS[kind].load_task()
        config = HeadConfig(
            **{"base": "random", "base_digest": "", **sizes, **task.configure(layers)},
            method=kind,
            draft_vocab=len(draft_ids),
        )
        module = task(config, Trunk(unused, unused, draft_ids, layers)).module
        weights = {name: deviation * torch.randn(weight.shape) for name, weight in module.state_dict().items()}
        save_head(folder / kind, config, weights, draft_ids)
        heads[kind] = folder / kind
    return heads

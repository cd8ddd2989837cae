"""A program of several processes that compute forwards until they are ended; nothing is loaded.

The first process writes to a file once they are under way.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sampling.forward.caches.cache import RollbackCache
from sampling.forward.runner import ModelRunner
from sampling.forward.sharded.follow import RankWorker
from sampling.forward.sharded.group import ProcessGroup
from sampling.forward.sharded.model import Leader, ShardedModel
from utils.device.torchrun import one_voice, seat

VOCAB = 8


class Part:
    """A part of a model without weights: a sum is all that it computes."""

    num_layers, window, vocab_size, trees = 1, 10**9, VOCAB, True
    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group

    def new_cache(self) -> RollbackCache:
        return RollbackCache(1, self.device, self.dtype)

    def forward(self, tokens: Tensor, *given: Any) -> tuple[Tensor, dict[int, Tensor]]:
        return self._group.summed(torch.ones(len(tokens), VOCAB)), {}


def main(out: Path) -> None:
    here = seat()
    assert here is not None
    group = ProcessGroup(here)
    part: Any = Part(group)
    if not here.first:
        RankWorker(group, lambda text: part).follow()
        raise SystemExit(0)
    leader = Leader(group)
    number, _ = leader.load("", lambda: None)
    runner = ModelRunner(ShardedModel(part, number, leader, {}))
    try:
        while True:
            runner.forward([1, 2, 3])
            out.write_text("under way")
            runner.crop(0)
    finally:
        leader.stop()


if __name__ == "__main__":
    with one_voice():
        main(Path(sys.argv[1]))

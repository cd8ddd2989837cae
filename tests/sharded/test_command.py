"""How the first process tells the others what to do, and which part of a weight each takes."""

from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest
import torch

from sampling.forward.caches.cache import RollbackCache, additive, seen, seen_by_branches
from sampling.forward.sharded.command import WORDS, Command, MaskForm, ShardOperation, seen_again, sight_of
from sampling.forward.sharded.cut import TensorCut
from sampling.forward.sharded.model import Leader, ShardedCache

MASKS = {
    MaskForm.NONE: None,
    MaskForm.CHAIN: seen(9, 4, None, torch.device("cpu")),
    MaskForm.NEW: seen(9, 4, (-1, -1, 0), torch.device("cpu")),
    MaskForm.WHOLE: seen_by_branches(9, 6, torch.tensor([[6, 8], [7, 8], [6, 7], [7, 6]])),
}


@pytest.mark.parametrize("sight", MASKS)
def test_a_mask_is_told_and_made_again(sight: MaskForm) -> None:
    mask = MASKS[sight]
    told, bits = sight_of(None if mask is None else additive(mask, torch.float32), 9)
    again = seen_again(told, bits, 9, 4)
    assert told is sight
    assert again is mask is None or torch.equal(again, mask)  # type: ignore[arg-type]


def test_a_command_comes_out_as_it_went_in() -> None:
    command = Command(
        ShardOperation.FORWARD, 1, 7, 300, 4, MaskForm.NEW, [5, 6, 7, 8], [9, 9, 9, 9], [0, 3], [-1], [2, 4]
    )
    words = command.pack()
    assert len(words) < WORDS
    assert Command.unpack([*words, 0, 0]) == command


def test_parts_of_a_weight_make_up_the_whole() -> None:
    weight, bias = torch.arange(48.0).view(8, 6), torch.arange(8.0)
    cuts = [TensorCut(rank, 3) for rank in range(3)]
    down, head = "model.layers.0.mlp.down_proj.weight", "lm_head.weight"
    assert torch.equal(torch.cat([cut.of(down, weight, 8, 6) for cut in cuts], dim=1), weight)
    assert [len(cut.of(head, weight, 8, 6)) for cut in cuts] == [3, 3, 2]
    assert torch.equal(torch.cat([cut.of(head, weight, 8, 6) for cut in cuts]), weight)
    name = "model.layers.0.self_attn.q_proj.bias"
    assert torch.equal(torch.cat([TensorCut(rank, 2).of(name, bias, 8) for rank in range(2)]), bias)
    assert [cut.lacks("model.layers.0.self_attn.o_proj.bias") for cut in cuts] == [False, True, True]


def test_a_cache_that_is_no_more_is_told_with_the_next_command() -> None:
    group: Any = mock.MagicMock()
    leader, told = Leader(group), list[Sequence[int]]()
    group.tell.side_effect = lambda words: told.append(Command.unpack(words).gone)
    caches = [ShardedCache(RollbackCache(1, torch.device("cpu"), torch.float32), 0, leader) for _ in range(2)]
    leader.ask(Command(ShardOperation.ROWS), lambda: None)
    number = caches.pop().number
    for _ in range(2):
        leader.ask(Command(ShardOperation.ROWS), lambda: None)
    assert told == [[], [number], []]

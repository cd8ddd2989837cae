"""What is refused before processes are connected, and how commands are told to others."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import infer
from sampling.forward.cache import additive, seen, seen_by_branches
from sampling.forward.sharded.command import WORDS, Command, Op, Sight, seen_again, sight_of
from sampling.forward.sharded.cut import Cut
from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from sampling.loading.sharded.together import refuse_together
from utils.errors import UserError
from utils.torchrun import Seat, seat

PLACE = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target_weights": "int8"}, "--target-weights"),
        ({"graphs": "on"}, "--graphs"),
        ({"compile": "on"}, "--compile"),
        ({"device": "cuda:1"}, "--device"),
        ({"device": "mps"}, "--device"),
        ({"drafter": "self:int8"}, "--drafter"),
        ({"target": "random:llama-1b"}, "--target"),
        ({"drafter_tp": True}, "--drafter-tp"),
    ],
    ids=lambda given: str(given),
)
def test_what_several_processes_cannot_do(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        refuse_together(replace(LoadOptions(), **given), 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the interactive session"),
        (["serve"], "serve"),
        (["run", "--prompt", "x", "--batch", "2"], "--batch"),
        (["run", "--prompt", "x", "--methods", "target", "--engine", "transformers"], "--engine"),
        (["run", "--prompt", "x", "--target-weights", "full,int8"], "several --target-weights"),
        (["quality"], "quality"),
        (["advise"], "advise"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else given,
)
def test_what_torchrun_does_not_start(monkeypatch: pytest.MonkeyPatch, words: list[str], said: str) -> None:
    for name, value in PLACE.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(infer.app, words)
    assert result.exit_code == 2
    assert f"{said} given under torchrun" in result.stderr


def test_a_cut_drafter_needs_torchrun() -> None:
    with pytest.raises(UserError, match="torchrun --nproc-per-node"):
        load_pair(LoadOptions(drafter_tp=True))


def test_a_seat_is_read_off_the_environment() -> None:
    assert seat({**PLACE, "RANK": "1"}) == Seat(1, 2, 0)
    assert seat({**PLACE, "WORLD_SIZE": "1"}) is None
    assert seat({"RANK": "1", "WORLD_SIZE": "2"}) is None
    for wrong in ({"RANK": "2"}, {"RANK": "first"}):
        with pytest.raises(UserError):
            seat({**PLACE, **wrong})


MASKS = {
    Sight.NONE: None,
    Sight.CHAIN: seen(9, 4, None, torch.device("cpu")),
    Sight.NEW: seen(9, 4, (-1, -1, 0), torch.device("cpu")),
    Sight.WHOLE: seen_by_branches(9, 6, torch.tensor([[6, 8], [7, 8], [6, 7], [7, 6]])),
}


@pytest.mark.parametrize("sight", MASKS)
def test_a_mask_is_told_and_made_again(sight: Sight) -> None:
    mask = MASKS[sight]
    told, bits = sight_of(None if mask is None else additive(mask, torch.float32), 9)
    again = seen_again(told, bits, 9, 4)
    assert told is sight
    assert again is mask is None or torch.equal(again, mask)  # type: ignore[arg-type]


def test_a_command_comes_out_as_it_went_in() -> None:
    command = Command(Op.FORWARD, 1, 7, 300, 4, Sight.NEW, [5, 6, 7, 8], [9, 9, 9, 9], [0, 3], [-1], [2, 4])
    words = command.pack()
    assert len(words) < WORDS
    assert Command.unpack([*words, 0, 0]) == command


def test_parts_of_a_weight_make_up_the_whole() -> None:
    weight, bias = torch.arange(48.0).view(8, 6), torch.arange(8.0)
    cuts = [Cut(rank, 3) for rank in range(3)]
    down, head = "model.layers.0.mlp.down_proj.weight", "lm_head.weight"
    assert torch.equal(torch.cat([cut.of(down, weight, 8, 6) for cut in cuts], dim=1), weight)
    assert [len(cut.of(head, weight, 8, 6)) for cut in cuts] == [3, 3, 2]
    assert torch.equal(torch.cat([cut.of(head, weight, 8, 6) for cut in cuts]), weight)
    name = "model.layers.0.self_attn.q_proj.bias"
    assert torch.equal(torch.cat([Cut(rank, 2).of(name, bias, 8) for rank in range(2)]), bias)
    assert [cut.lacks("model.layers.0.self_attn.o_proj.bias") for cut in cuts] == [False, True, True]

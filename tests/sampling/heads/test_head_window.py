"""How far heads draft: to the end of the target's window, to `--head-window`, or to their own; and what is said."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sampling.forward.models import lean
from sampling.heads.config import HeadConfig
from sampling.heads.inference import RecurrentForward
from sampling.heads.published.windows import HeadWindow
from sampling.loading.heads import with_head_window
from sampling.methods.settings import Settings
from sampling.methods.tables import AR
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from tests.refusals import refused
from tests.tiny_heads import pair_of, saved, task_of, with_config
from tests.tiny_models import ids, make
from utils.events import Round

OWN, WINDOW, LENGTH = 24, 96, 40


def short(folder: Path, kind: str = "eagle", **changes: object) -> Pair:
    """A target of 96 positions and a head whose config states 24."""
    target = lean.from_transformers(make("llama"))
    task = task_of(kind, target)
    config: HeadConfig = replace(task.config, window=OWN, **changes)  # type: ignore[arg-type]
    return pair_of(target, {kind: saved(with_config(task, config), folder / kind)})


def drafted(pair: Pair, method: str) -> tuple[list[int], int]:
    """The tokens of a greedy answer, and the length of the text behind the last draft."""
    settings = Settings()
    settings.assign_all({"length": str(LENGTH), "draft_weights": "full"}.items())
    prompt, output, last = ids(4, seed=1), list[int](), 0
    for event in PairEngine(pair).stream(method, settings, prompt):
        if isinstance(event, Round):
            if event.drafts:
                last = len(prompt) + len(output) + len(event.drafts)
            output += event.emitted
    return output, last


@pytest.mark.parametrize("kind", ["eagle", "mtp", "parallel_eagle", "dspark"])
def test_a_head_drafts_up_to_the_window_that_is_asked_for_and_the_output_is_the_same(kind: str, tmp_path: Path) -> None:
    pair = short(tmp_path, kind)
    plain, _ = drafted(pair, AR)
    whole, far = drafted(with_head_window(pair, None), kind)
    own, near = drafted(with_head_window(pair, OWN), kind)
    assert whole == own == plain and len(plain) == LENGTH
    assert far > OWN and 4 < near <= OWN


def test_what_the_window_changes_is_said_once(tmp_path: Path) -> None:
    pair = short(tmp_path)
    (beyond,) = with_head_window(pair, None).notes
    (ends,) = with_head_window(pair, OWN).notes
    assert str(OWN) in beyond and str(WINDOW) in beyond and beyond != ends
    assert f"nothing after token {OWN}" in ends
    assert with_head_window(pair, WINDOW).notes == (beyond,)
    assert with_head_window(pair_of(pair.target.model, {}), 7).notes == ()  # type: ignore[arg-type]


def test_a_longer_table_turns_as_the_heads_own_where_both_reach(tmp_path: Path) -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
    pair = short(tmp_path, rope_scaling=yarn)
    forwards = [
        lean_forward.blocks.turns(torch.arange(OWN))[0]
        for window in (None, OWN)
        for lean_forward in [_forward(replace(pair, head_window=window))]
    ]
    for longer, own in zip(*forwards, strict=True):
        assert torch.equal(longer, own)


def _forward(pair: Pair) -> RecurrentForward:
    return pair.head_forward("eagle", RecurrentForward, "full")


def test_a_rotary_embedding_that_changes_with_the_length_keeps_its_window() -> None:
    window = HeadWindow(OWN, static=False)
    assert window.within(None, WINDOW) == OWN and window.within(9, WINDOW) == 9
    with refused("head_window", OWN + 1, str(OWN)):
        window.within(OWN + 1, WINDOW)


def test_a_window_that_is_none_is_refused(tmp_path: Path) -> None:
    with refused("head_window", 0):
        with_head_window(short(tmp_path), 0)

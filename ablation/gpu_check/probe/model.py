"""A capture, and a model of two layers: one token and a few, eager and captured, beside transformers in float32."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig

from ablation.gpu_check.models import TINY, in_transformers
from ablation.gpu_check.probe.trial import Numbers, Probe, ProbeDevice, Wrong, compared, settle
from sampling.forward.invariance import first_difference
from sampling.forward.models.lean import LeanModel
from sampling.forward.runner import ModelRunner, prefill
from sampling.loading.checkpoint import Placement
from sampling.loading.random_weights import random_model
from utils.device.captured import failed_at, failures
from utils.device.graphed import Graphed

EAGER, CAPTURED = "eager", "captured"
_SIZES = {
    "hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 8, "num_key_value_heads": 2,
    "vocab_size": 32_000,
}  # fmt: skip
_WINDOW, _KNOWN = 2048, 48
# The parents of what is fed behind a root: see `Runner.forward`.
_FED: dict[str, tuple[int, ...]] = {"1 row": (), "5 rows": (-1, 0, 1, 2), "a tree of 5": (-1, -1, 0, 1)}


class NotCaptured(Exception):
    """A function runs without its graph. place: the line of ours that kept it from being captured."""

    def __init__(self, reason: str, place: str) -> None:
        super().__init__(reason)
        self.place = place


@dataclass(frozen=True, slots=True)
class Toy:
    """A model with random weights; whole: logits `[V]` in float32 behind a text, by transformers."""

    model: LeanModel
    whole: Callable[[Sequence[int]], Tensor]


def capture(on: ProbeDevice) -> Iterator[Probe]:
    """A product and a sum as a graph."""
    yield Probe("graph capture", Graphed.__call__, partial(_capture, on))


def models(on: ProbeDevice) -> Iterator[Probe]:
    """A chain of one and of five rows, and a tree, in both ways."""
    yield Probe("model: made", random_model, partial(_made, on))
    for what, parents in _FED.items():
        for way in (EAGER, CAPTURED):
            yield Probe(f"model: {what}, {way}", ModelRunner.forward, partial(_rows, on, way, parents))


def one_width(on: ProbeDevice) -> Iterator[Probe]:
    """Whether a row has the same bits whatever is fed with it, where all forwards are of one width."""
    yield Probe("one width: bit for bit", first_difference, partial(_bit_for_bit, on))


def _capture(on: ProbeDevice) -> Numbers:
    graphed = Graphed(lambda x: (x @ x.T + 1.0,), on.device)
    first, second = (on.drawn(16, 64, seed=seed, dtype=torch.float32) for seed in (0, 1))
    before = len(failures())
    graphed(first)
    _captured(before)
    wide = second.double()
    return compared(lambda: graphed(second)[0], wide @ wide.T + 1.0, on, 1e-4)


def _made(on: ProbeDevice) -> Numbers:
    toy(on)
    settle(on)
    return {}


@lru_cache(maxsize=1)
def toy(on: ProbeDevice) -> Toy:
    """Two layers."""
    sizes: dict[str, Any] = {**(TINY if on.tiny or not on.card else _SIZES), "num_hidden_layers": 2}
    config = LlamaConfig(**sizes, max_position_embeddings=_WINDOW, tie_word_embeddings=False)
    place = Placement(on.device, on.dtype)
    theirs = in_transformers(config, place).float()

    @torch.inference_mode()
    def whole(text: Sequence[int]) -> Tensor:
        logits: Tensor = theirs(torch.tensor([list(text)], device=on.device)).logits
        return logits[0, -1].float()

    return Toy(random_model("two layers", config, place), whole)


def _rows(on: ProbeDevice, way: str, parents: tuple[int, ...]) -> Numbers:
    """Logits of the root and of what hangs off it, behind a text."""
    made, text = toy(on), list(range(5, 5 + _KNOWN))
    fed = list(range(100, 101 + len(parents)))
    expected = torch.stack([made.whole([*text, *_way_to(row, fed, parents)]) for row in range(len(fed))])
    runner = (ModelRunner.with_graphs if way == CAPTURED else ModelRunner)(made.model)
    before = len(failures())
    prefill(runner, text)

    def call() -> Tensor:
        runner.crop(len(text))
        return runner.forward(fed, parents or None).logits

    call()
    _captured(before)
    return compared(call, expected, on)


def _way_to(row: int, fed: Sequence[int], parents: Sequence[int]) -> list[int]:
    """The tokens from the root to a row, both included; row 0 is the root."""
    if row == 0:
        return [fed[0]]
    return [*_way_to(parents[row - 1] + 1, fed, parents), fed[row]]


def _captured(before: int) -> None:
    """Raise `NotCaptured` where something was to be captured since then, and was not."""
    if len(failures()) > before:
        raise NotCaptured(failures()[-1], failed_at())


def _bit_for_bit(on: ProbeDevice) -> Numbers:
    count = first_difference(ModelRunner.with_one_width(toy(on).model), range(5, 255))
    if count is not None:
        raise Wrong(f"{count} rows give one of them other bits than fewer rows do")
    return {"difference": 0.0, "share": 0.0}

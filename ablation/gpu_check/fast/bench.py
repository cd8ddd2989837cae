"""What the stage `fast` measures on: published shapes with random weights, and how much of each is measured."""

import gc
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig

from ablation.gpu_check.fast.predictions import CONTEXTS, EAGER, LARGE, MIDDLE, MODEL, SMALL
from ablation.gpu_check.models import TINY, pair_of
from ablation.gpu_check.record import LeftOut
from ablation.gpu_check.rounds import RoundPace, pace, settings_of
from ablation.growth import verify_growth
from sampling.forward.models.lean import LeanModel
from sampling.loading.checkpoint import Placement
from sampling.loading.options import RANDOM
from sampling.loading.random_weights import config_of, random_model
from sampling.pair.pair_engine import PairEngine
from utils.errors import UserError

TINIEST = "tiny"
_FEW, _ROOM = 2, 512


@dataclass(frozen=True, slots=True)
class BenchSize:
    """How much is measured. tokens, drafted_tokens: of an answer, of plain decoding and where something drafts.

    warm_up: its first rounds. turns: of forwards over each number of rows. matmul: rows of square matrices. contexts:
    tokens before what is measured far from the beginning of a text, with fewer widths, tokens and turns.
    """

    shapes: tuple[str, ...] = (SMALL, LARGE, MIDDLE)
    dtype: torch.dtype = torch.bfloat16
    tokens: int = 104
    drafted_tokens: int = 192
    warm_up: int = 8
    widths: tuple[int, ...] = (*range(1, 18), 24, 32, 48, 64)
    turns: int = 15
    gammas: tuple[int, ...] = (1, 2, 4, 8)
    matmul: int = 8192
    contexts: tuple[int, ...] = CONTEXTS
    far_tokens: int = 40
    far_widths: tuple[int, ...] = (1, 2, 5, 9, 17, 64)
    far_turns: int = 7


DRY = BenchSize((TINIEST,), torch.float32, 20, 40, 4, (1, 2, 5), 3, (1, 4), 256, (64, 256), 12, (1, 5), 2)


@dataclass(frozen=True, slots=True)
class BenchModels:
    """A shape with random weights, and a smaller model that drafts for it."""

    shape: str
    config: Any
    model: LeanModel
    drafter: LeanModel
    drafter_name: str

    def engine(self, way: str, heads: dict[str, Path] | None = None) -> PairEngine:
        """An engine whose forwards are graphs, or are not."""
        return PairEngine(pair_of(self.shape, self.model, way != EAGER, self.drafter, heads))

    def fused(self) -> "BenchModels":
        """The same with compiled steps between the products. Raises `LeftOut` where they cannot be had."""
        try:
            model, drafter = (side.compiled(lambda done: None) for side in (self.model, self.drafter))
        except UserError as error:
            raise LeftOut(str(error)) from error
        return replace(self, model=model, drafter=drafter)


@dataclass(frozen=True, slots=True)
class Bench:
    """Measurements of one engine behind one prompt. paces: those of plain decoding, by name, to compare with."""

    engine: PairEngine
    prompt: list[int]
    warm_up: int
    paces: dict[str, RoundPace] = field(default_factory=dict)

    def plain(self, method: str, name: str, tokens: int) -> RoundPace:
        """Rounds of plain decoding, kept under the name."""
        self.paces[name] = pace(self.engine, method, settings_of(tokens), self.prompt, self.warm_up)
        return self.paces[name]

    def drafted(self, method: str, plain: str, tokens: int, gamma: int, rate: str) -> dict[str, float | None]:
        """Rounds with drafts of which each passes at this rate, beside plain decoding in the same way."""
        values = settings_of(tokens, gamma=str(gamma), accept_policy="synthetic", accept_rates=rate)
        measured, alone = pace(self.engine, method, values, self.prompt, self.warm_up), self.paces.get(plain)
        step_ms = measured.draft_ms / measured.drafts_a_round
        c = None if alone is None else step_ms / alone.verify_ms
        speedup = None if alone is None else alone.token_ms / measured.token_ms
        return {**asdict(measured), "draft_step_ms": step_ms, "c": c, "speedup": speedup}

    def growth(self, widths: tuple[int, ...], turns: int) -> dict[str, Any]:
        """Forwards over n rows behind the prompt, in milliseconds and in forwards over one."""
        (ms,) = verify_growth({"": self.engine}, self.prompt, widths, turns).values()
        return {"rows_ms": ms, "v": {rows: each / ms[1] for rows, each in ms.items()}, "v5": ms[5] / ms[1]}


def shape_config(shape: str, size: BenchSize) -> Any:
    """Sizes of a shape, its window wide enough for every context."""
    config = LlamaConfig(**TINY, max_position_embeddings=512) if shape == TINIEST else config_of(f"{RANDOM}{shape}")
    config.max_position_embeddings = max(config.max_position_embeddings, max(size.contexts) + _ROOM)
    return config


def make(device: torch.device, size: BenchSize, shape: str) -> BenchModels:
    """The model of a shape, and as its drafter a smaller shape with its vocabulary or its own first layers."""
    place, config = Placement(device, size.dtype), shape_config(shape, size)
    model = random_model(shape, config, place)
    smaller: Mapping[str, str] = {LARGE: MIDDLE, MIDDLE: SMALL}
    if shape not in smaller:
        blocks = replace(model.blocks, layers=model.layers[:_FEW])
        return BenchModels(shape, config, model, replace(model, blocks=blocks), f"SD with its first {_FEW} layers")
    drafting = shape_config(smaller[shape], size)
    drafting.vocab_size = config.vocab_size
    drafter = random_model(smaller[shape], drafting, place)
    return BenchModels(shape, config, model, drafter, f"{MODEL}{smaller[shape]}")


def let_go() -> None:
    """Give memory of what is gone back to the card."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()

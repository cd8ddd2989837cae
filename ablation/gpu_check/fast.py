"""The stage `fast`: what the card gives, and what our loop makes of it, on published shapes with random weights."""

import gc
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.table import Table
from transformers import LlamaConfig

from ablation.gpu_check import predictions as names
from ablation.gpu_check.models import TINY, pair_of, save_eagle
from ablation.gpu_check.predictions import (
    COPY,
    EAGER,
    FUSED,
    GOALS,
    GRAPHS,
    HEAD,
    HIGH,
    LARGE,
    MIDDLE,
    MODEL,
    PREDICTIONS,
    SMALL,
)
from ablation.gpu_check.record import LeftOut, StageRecord
from ablation.gpu_check.rivals import meet_generate
from ablation.gpu_check.rounds import RoundPace, pace, settings_of
from ablation.growth import verify_growth
from sampling.forward.models.lean import LeanModel
from sampling.forward.traffic import Traffic, copy_bandwidth
from sampling.loading.checkpoint import Placement
from sampling.loading.options import RANDOM
from sampling.loading.random_weights import config_of, random_model
from sampling.methods.tables import AR
from sampling.pair.pair_engine import PairEngine
from utils.errors import UserError

PROMPT = list(range(5, 53))
"""As ids that every shape has; random weights make nothing of any text."""
_SMALLEST = "tiny"
_HEAD_S, _FUSING_S, _FEW = 30.0, 60.0, 2


@dataclass(frozen=True, slots=True)
class BenchSize:
    """How much is measured. tokens, drafted_tokens: of an answer, of plain decoding and where something drafts.

    warm_up: its first rounds. turns: of forwards over each number of rows. matmul: rows of square matrices.
    """

    shapes: tuple[str, ...] = (SMALL, MIDDLE, LARGE)
    dtype: torch.dtype = torch.bfloat16
    tokens: int = 104
    drafted_tokens: int = 192
    warm_up: int = 8
    widths: tuple[int, ...] = (*range(1, 18), 24, 32, 48, 64)
    turns: int = 15
    gammas: tuple[int, ...] = (1, 2, 4, 8)
    matmul: int = 8192


_DRY = BenchSize((_SMALLEST,), torch.float32, 20, 40, 4, (1, 2, 5), 3, (1, 4), 256)


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


def fast(record: StageRecord) -> Table:
    """Ceilings; then each shape by itself; then transformers, whose compiling takes long, while there is time."""
    size = _DRY if record.tiny else BenchSize()
    record.measure(COPY, lambda: {"bytes_per_s": copy_bandwidth(record.device)})
    record.measure("matmul", partial(_matmul, record.device, size))
    for shape in size.shapes:
        _measure(record, size, shape)
        _compare(record)
        _let_go()
    for shape in size.shapes:
        if shape != MIDDLE:
            meet_generate(record, shape, _config(shape), Placement(record.device, size.dtype), PROMPT)
            _compare(record)
            _let_go()
    return _table(record)


def _compare(record: StageRecord) -> None:
    """What was predicted and wanted beside what is known so far, on disk before the next shape begins."""
    record.extra["predictions"] = [prediction.beside(record.found) for prediction in PREDICTIONS]
    record.extra["goals"] = [goal.beside(record.found) for goal in GOALS]
    record.write()


def _matmul(device: torch.device, size: BenchSize) -> dict[str, float]:
    """Operations a second of a product of two random square matrices, the median of ten."""
    left, right = (torch.randn(size.matmul, size.matmul, device=device, dtype=size.dtype) for _ in range(2))
    took = []
    for _ in range(13):
        began = time.perf_counter()
        left @ right
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        took.append(time.perf_counter() - began)
    return {"operations_per_s": 2.0 * size.matmul**3 / median(took[3:])}


def _config(shape: str) -> Any:
    return LlamaConfig(**TINY, max_position_embeddings=512) if shape == _SMALLEST else config_of(f"{RANDOM}{shape}")


def _make(record: StageRecord, size: BenchSize, shape: str) -> BenchModels:
    """The model of a shape, and as its drafter a smaller shape with its vocabulary or its own first layers."""
    place, config = Placement(record.device, size.dtype), _config(shape)
    model = random_model(shape, config, place)
    smaller = {LARGE: MIDDLE, MIDDLE: SMALL}.get(shape)
    if smaller is None:
        blocks = replace(model.blocks, layers=model.layers[:_FEW])
        return BenchModels(shape, config, model, replace(model, blocks=blocks), f"SD with its first {_FEW} layers")
    drafting = _config(smaller)
    drafting.vocab_size = config.vocab_size
    return BenchModels(shape, config, model, random_model(smaller, drafting, place), f"{MODEL}{smaller}")


def _measure(record: StageRecord, size: BenchSize, shape: str) -> None:
    """Everything of one shape; its models are gone afterwards."""
    made: list[BenchModels] = []
    record.measure(f"{shape}: models", lambda: made.append(_make(record, size, shape)))
    for bench in made:
        engines = {way: bench.engine(way) for way in (GRAPHS, EAGER)}
        paces: dict[str, RoundPace] = {}
        for way, engine in engines.items():
            record.measure(names.plain(shape, way), partial(_plain, engine, size, paces, way))
        record.measure(names.floor(shape), partial(_floor, record, bench, size, paces))
        for way, engine in engines.items():
            record.measure(names.growth(shape, way), partial(_growth, engine, size))
        for way, gamma, rate in _drafting(size):
            name = names.drafted(shape, bench.drafter_name, gamma, rate, way)
            record.measure(name, partial(_drafted, engines[way], "speculative", size, gamma, rate, paces.get(way)))
        if shape != MIDDLE:
            _head(record, size, bench, paces)
        _fused(record, size, bench, paces)


def _drafting(size: BenchSize) -> list[tuple[str, int, str]]:
    """(way, gamma, rate) of what a model drafts: everything with graphs, and once without."""
    return [*((GRAPHS, gamma, rate) for rate in (HIGH, "0.5") for gamma in size.gammas), (EAGER, 4, HIGH)]


def _plain(engine: PairEngine, size: BenchSize, paces: dict[str, RoundPace], way: str) -> RoundPace:
    paces[way] = pace(engine, AR, settings_of(size.tokens), PROMPT, size.warm_up)
    return paces[way]


def _floor(record: StageRecord, bench: BenchModels, size: BenchSize, paces: dict[str, RoundPace]) -> dict[str, float]:
    """Bytes that a token has to read, the time that they take at the speed of a copy, and the share that is reached."""
    traffic = Traffic.of(bench.model)
    if COPY not in record.found or traffic is None:
        raise LeftOut("the bandwidth or the bytes are not known")
    a_token = traffic.a_token(len(PROMPT), [1] * size.tokens) or 0.0
    ms = 1e3 * a_token / record.found[COPY]["bytes_per_s"]
    shares = {"share" if way == GRAPHS else f"share_{way}": ms / pace.ms for way, pace in paces.items()}
    return {"bytes": a_token, "ms": ms, **shares}


def _growth(engine: PairEngine, size: BenchSize) -> dict[str, Any]:
    """Forwards over n rows behind the prompt, in milliseconds and in forwards over one."""
    (ms,) = verify_growth({"": engine}, PROMPT, size.widths, size.turns).values()
    return {"rows_ms": ms, "v": {rows: each / ms[1] for rows, each in ms.items()}, "v5": ms[5] / ms[1]}


def _drafted(
    engine: PairEngine, method: str, size: BenchSize, gamma: int, rate: str, plain: RoundPace | None
) -> dict[str, float | None]:
    """Rounds with drafts of which each passes at this rate, beside plain decoding in the same way."""
    values = settings_of(size.drafted_tokens, gamma=str(gamma), accept_policy="synthetic", accept_rates=rate)
    measured = pace(engine, method, values, PROMPT, size.warm_up)
    step_ms = measured.draft_ms / measured.drafts_a_round
    c = None if plain is None else step_ms / plain.verify_ms
    speedup = None if plain is None else plain.token_ms / measured.token_ms
    return {**asdict(measured), "draft_step_ms": step_ms, "c": c, "speedup": speedup}


def _head(record: StageRecord, size: BenchSize, bench: BenchModels, paces: dict[str, RoundPace]) -> None:
    """A head of one block that continues the target's states, with random weights as well."""
    heads: dict[str, Path] = {}
    with tempfile.TemporaryDirectory() as folder:
        saved = partial(save_eagle, Path(folder), bench.model, bench.config.intermediate_size)
        record.measure(f"{bench.shape}: head", lambda: heads.update(saved()), _HEAD_S)
        for way in (GRAPHS, EAGER) if heads else ():
            name = names.drafted(bench.shape, HEAD, 4, HIGH, way)
            engine = bench.engine(way, heads)
            record.measure(name, partial(_drafted, engine, "eagle", size, 4, HIGH, paces.get(way)))


def _fused(record: StageRecord, size: BenchSize, bench: BenchModels, paces: dict[str, RoundPace]) -> None:
    """Plain decoding and a model's drafts with steps that torch compiles."""
    made: list[BenchModels] = []
    if record.tiny:
        record.leave_out(f"{bench.shape}: compiled steps", "a dry run")
        return
    record.measure(f"{bench.shape}: compiled steps", lambda: made.append(bench.fused()), _FUSING_S)
    for compiled in made:
        engine = compiled.engine(FUSED)
        record.measure(names.plain(bench.shape, FUSED), partial(_plain, engine, size, paces, FUSED))
        name = names.drafted(bench.shape, bench.drafter_name, 4, HIGH, FUSED)
        record.measure(name, partial(_drafted, engine, "speculative", size, 4, HIGH, paces.get(FUSED)))


def _let_go() -> None:
    """Give memory of what is gone back to the card."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _table(record: StageRecord) -> Table:
    """Predictions and goals beside what was measured."""
    table = Table("what", "measured", "predicted for this card", "measured / predicted")
    for prediction in record.extra["predictions"]:
        if prediction["measurement"]:
            table.add_row(
                prediction["what"],
                _shown(prediction["measured"]),
                f"{prediction['here']:.3g} {prediction['unit']}",
                _shown(prediction["ratio"]),
            )
    for goal in record.extra["goals"]:
        verdict = {True: "reached", False: "MISSED", None: "-"}[goal["reached"]]
        table.add_row(goal["what"], _shown(goal["measured"]), f"goal {goal['bound']:g}", verdict)
    return table


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"

"""The stage `fast`: what the card gives, and what our loop makes of it, on published shapes with random weights."""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import torch
from rich.table import Table

from ablation.gpu_check.fast import predictions as names
from ablation.gpu_check.fast.bench import DRY, Bench, BenchModels, BenchSize, let_go, make, shape_config
from ablation.gpu_check.fast.contexts import floor, measure_contexts
from ablation.gpu_check.fast.predictions import COPY, EAGER, FUSED, GOALS, GRAPHS, HEAD, HIGH, MIDDLE, PREDICTIONS
from ablation.gpu_check.fast.rivals import meet_generate
from ablation.gpu_check.models import save_eagle
from ablation.gpu_check.record import StageRecord
from ablation.gpu_check.rounds import RoundPace, launches, settings_of
from sampling.forward.traffic import copy_bandwidth
from sampling.loading.checkpoint import Placement
from sampling.methods.tables import AR

PROMPT = list(range(5, 53))
"""As ids that every shape has; random weights make nothing of any text."""
_HEAD_S, _FUSING_S, _GAMMA = 30.0, 60.0, 4

Paces = dict[str, RoundPace]
Part = Callable[[StageRecord, BenchSize, BenchModels, Paces], None]


def fast(record: StageRecord) -> Table:
    """Ceilings; then what matters most of every shape, before what comes next of any.

    Models are made anew for each pass, which takes seconds; what it measured of plain decoding stays to compare with.
    transformers comes before the last details, though its compiling takes long.
    """
    size = DRY if record.tiny else BenchSize()
    paces: dict[str, Paces] = {shape: {} for shape in size.shapes}
    record.measure(COPY, lambda: {"bytes_per_s": copy_bandwidth(record.device)})
    record.measure("matmul", partial(_matmul, record.device, size))
    for part in (_near, _far, _heads, _fused):
        for shape in size.shapes:
            _measure(record, size, shape, part, paces[shape])
    for shape in size.shapes:
        if shape != MIDDLE:
            config = shape_config(shape, size)
            meet_generate(record, shape, config, Placement(record.device, size.dtype), PROMPT)
            _compare(record)
            let_go()
    for shape in size.shapes:
        _measure(record, size, shape, _details, paces[shape])
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


def _measure(record: StageRecord, size: BenchSize, shape: str, part: Part, paces: Paces) -> None:
    """A part of what is measured of a shape; its models are gone afterwards."""
    made: list[BenchModels] = []
    about = f"{shape}: models for {part.__name__.strip('_')}"
    record.measure(about, lambda: made.append(make(record.device, size, shape)))
    for models in made:
        part(record, size, models, paces)
    made.clear()
    _compare(record)
    let_go()


def _near(record: StageRecord, size: BenchSize, models: BenchModels, paces: Paces) -> None:
    """Plain decoding with graphs and without, v(n), and drafts of a model, near the beginning of a text."""
    shape = models.shape
    benches = {way: Bench(models.engine(way), PROMPT, size.warm_up, paces) for way in (GRAPHS, EAGER)}
    for way, bench in benches.items():
        record.measure(names.plain(shape, way), partial(bench.plain, AR, way, size.tokens))
    record.measure(names.floor(shape), partial(floor, record, models, len(PROMPT), size.tokens, paces))
    asked = partial(launches, benches[GRAPHS].engine, AR, settings_of(size.tokens), PROMPT)
    record.measure(f"{shape}: launches, {GRAPHS}", asked)
    record.measure(names.growth(shape, GRAPHS), partial(benches[GRAPHS].growth, size.widths, size.turns))
    for way, bench in benches.items():
        _draft(record, size, models, bench, way, _GAMMA, HIGH)


def _draft(
    record: StageRecord, size: BenchSize, models: BenchModels, bench: Bench, way: str, gamma: int, rate: str
) -> None:
    name = names.drafted(models.shape, models.drafter_name, gamma, rate, way)
    record.measure(name, partial(bench.drafted, "speculative", way, size.drafted_tokens, gamma, rate))


def _far(record: StageRecord, size: BenchSize, models: BenchModels, paces: Paces) -> None:
    """The same far from it; plain decoding there has paces of its own."""
    measure_contexts(record, size, models)


def _heads(record: StageRecord, size: BenchSize, models: BenchModels, paces: Paces) -> None:
    """A head of one block that continues the target's states, with random weights as well."""
    if models.shape == MIDDLE:
        return
    heads: dict[str, Path] = {}
    with tempfile.TemporaryDirectory() as folder:
        saved = partial(save_eagle, Path(folder), models.model, models.config.intermediate_size)
        record.measure(f"{models.shape}: head", lambda: heads.update(saved()), 0.0 if record.tiny else _HEAD_S)
        for way in (GRAPHS, EAGER) if heads else ():
            name = names.drafted(models.shape, HEAD, _GAMMA, HIGH, way)
            bench = Bench(models.engine(way, heads), PROMPT, size.warm_up, paces)
            record.measure(name, partial(bench.drafted, "eagle", way, size.drafted_tokens, _GAMMA, HIGH))


def _fused(record: StageRecord, size: BenchSize, models: BenchModels, paces: Paces) -> None:
    """Plain decoding and a model's drafts with steps that torch compiles."""
    made: list[BenchModels] = []
    if record.tiny:
        record.leave_out(f"{models.shape}: compiled steps", "a dry run")
        return
    record.measure(f"{models.shape}: compiled steps", lambda: made.append(models.fused()), _FUSING_S)
    for compiled in made:
        bench = Bench(compiled.engine(FUSED), PROMPT, size.warm_up, paces)
        record.measure(names.plain(models.shape, FUSED), partial(bench.plain, AR, FUSED, size.tokens))
        _draft(record, size, compiled, bench, FUSED, _GAMMA, HIGH)


def _details(record: StageRecord, size: BenchSize, models: BenchModels, paces: Paces) -> None:
    """v(n) without graphs, and the other lengths and rates of drafts."""
    eager = Bench(models.engine(EAGER), PROMPT, size.warm_up, paces)
    record.measure(names.growth(models.shape, EAGER), partial(eager.growth, size.widths, size.turns))
    graphs = Bench(models.engine(GRAPHS), PROMPT, size.warm_up, paces)
    for rate in (HIGH, "0.5"):
        for gamma in size.gammas:
            if (gamma, rate) != (_GAMMA, HIGH):
                _draft(record, size, models, graphs, GRAPHS, gamma, rate)


def _table(record: StageRecord) -> Table:
    """Predictions and goals beside what was measured."""
    table = Table("what", "measured", "predicted for this card", "measured / predicted")
    for prediction in record.extra["predictions"]:
        if prediction["measurement"]:
            table.add_row(
                prediction["what"],
                names.shown(prediction["measured"]),
                f"{prediction['here']:.3g} {prediction['unit']}",
                names.shown(prediction["ratio"]),
            )
    for goal in record.extra["goals"]:
        verdict = {True: "reached", False: "MISSED", None: "-"}[goal["reached"]]
        table.add_row(goal["what"], names.shown(goal["measured"]), f"goal {goal['bound']:g}", verdict)
    return table

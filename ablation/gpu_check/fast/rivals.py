"""Plain decoding against transformers' `generate` on equal weights, in turns: as it is, and compiled."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import takewhile
from statistics import median
from typing import Any

import torch
from transformers import PreTrainedModel

from ablation.gpu_check.fast.predictions import against_generate
from ablation.gpu_check.models import in_transformers, pair_of
from ablation.gpu_check.record import LeftOut, StageRecord
from ablation.gpu_check.rounds import settings_of
from sampling.loading.checkpoint import Placement
from sampling.loading.random_weights import random_model
from sampling.measure.metrics import RunMetrics
from sampling.methods.tables import AR
from sampling.pair.pair_engine import PairEngine
from utils.numbers.intervals import median_interval
from utils.text import first_line

OURS, AS_IT_IS, STATIC = "ours", "eager", "static"
_TOKENS, _TURNS, _WARM_UPS = 128, 7, 3
_DRY_TOKENS, _DRY_TURNS = 8, 2
_MAKING_S, _COMPILING_S, _TURNS_S = 20.0, 120.0, 60.0

Side = Callable[[], list[int]]


def meet_generate(record: StageRecord, shape: str, config: Any, place: Placement, prompt: list[int]) -> None:
    """Both of theirs and ours, a call each in turn; a side that cannot be had is left out, with the reason."""
    tokens, turns = (_DRY_TOKENS, _DRY_TURNS) if record.tiny else (_TOKENS, _TURNS)
    sides: dict[str, Side] = {}

    def make() -> None:
        theirs = in_transformers(config, place)
        engine = PairEngine(pair_of(shape, random_model(shape, config, place), graphs=True))
        sides[OURS] = partial(_ours, engine, tokens, prompt)
        sides[AS_IT_IS] = partial(_generate, theirs, tokens, prompt)
        sides[STATIC] = partial(_generate, theirs, tokens, prompt, cache_implementation="static")

    record.measure(f"{shape}: transformers", make, 0.0 if record.tiny else _MAKING_S)
    if not sides:
        return
    compiling = partial(_compile, sides[STATIC], record.tiny)
    if not record.measure(f"{shape}: generate compiles", compiling, 0.0 if record.tiny else _COMPILING_S):
        del sides[STATIC]
    record.measure(against_generate(shape), partial(_turns, sides, turns), 0.0 if record.tiny else _TURNS_S)


def _ours(engine: PairEngine, tokens: int, prompt: list[int]) -> list[int]:
    account = RunMetrics()
    for event in engine.stream(AR, settings_of(tokens), prompt):
        account.add(event)
    return account.output_ids


def _generate(model: PreTrainedModel, tokens: int, prompt: list[int], **options: Any) -> list[int]:
    ids = torch.tensor([prompt], device=model.device)
    said = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, **options)
    return list(said[0, len(prompt) :].tolist())


def _compile(side: Side, dry: bool) -> bool:
    """True after the first call, in which `generate` compiles its forward. Raises `LeftOut` where it does not."""
    if dry:
        raise LeftOut("a dry run")
    from torch._dynamo.utils import counters

    before = counters["stats"]["unique_graphs"]
    try:
        side()
    except Exception as error:
        raise LeftOut(f"{type(error).__name__}: {first_line(error)}") from error
    if counters["stats"]["unique_graphs"] == before:
        raise LeftOut("generate compiled nothing")
    return True


def _turns(sides: Mapping[str, Side], turns: int) -> dict[str, Any]:
    """Milliseconds a token of whole calls, prompt included; their time over ours, median and 95 % interval."""
    for side in sides.values():
        for _ in range(_WARM_UPS):
            side()
    ms: dict[str, list[float]] = {name: [] for name in sides}
    texts: dict[str, list[int]] = {}
    order = list(sides)
    for turn in range(turns):
        for name in order[turn % len(order) :] + order[: turn % len(order)]:
            began = time.perf_counter()
            texts[name] = sides[name]()
            ms[name].append(1e3 * (time.perf_counter() - began) / len(texts[name]))
    times: dict[str, Any] = {f"{name}_ms": median(each) for name, each in ms.items()}
    for name in sides.keys() - {OURS}:
        ratios = [theirs / ours for theirs, ours in zip(ms[name], ms[OURS], strict=True)]
        times[f"{name}_ratio"], low, high = median_interval(ratios)
        times[f"{name}_interval"] = [low, high]
        same = takewhile(lambda pair: pair[0] == pair[1], zip(texts[name], texts[OURS], strict=True))
        times[f"{name}_agreed"] = sum(1 for _ in same)
    return times

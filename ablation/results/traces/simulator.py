"""Rows of SpecDecode-Bench's simulator out of a full trace, and replayed as one."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablation.results.column import measured
from ablation.results.computed import REPLAYED
from ablation.results.record import Record
from ablation.results.traces.replay import ReplayRequest, Replays
from egag.cost_model import CostModel
from egag.length_rule import FixedGamma
from sampling.measure.metrics import RunMetrics
from sampling.measure.replay import DraftWalk, in_batch, oracle, replayed
from sampling.measure.replay.simulator import simulator_row, simulator_walks
from sampling.methods.settings import Settings, relevant_settings
from sampling.methods.tables import AR, METHODS
from utils.errors import UserError


def write_simulator(replays: Replays, path: Path) -> None:
    """A row for each answer, the lengths of each drafter by the method that it first drafted for."""
    answers: dict[tuple[Any, ...], tuple[str, tuple[int, ...], dict[str, DraftWalk]]] = {}
    for generation in replays.drafting:
        key = (generation.record.id, generation.record.turn, generation.record.target_weights, generation.prompt_ids)
        name = (
            str(generation.record.id)
            if generation.record.turn == 1
            else f"{generation.record.id}, turn {generation.record.turn}"
        )
        walks = answers.setdefault(key, (name, generation.prompt_ids, {}))[2]
        walk = replays.walk(generation)
        if walks and next(iter(walks.values())).tokens != walk.tokens:
            raise UserError(
                f"prompt {generation.record.id}: two answers to it differ; expected one trace of one format"
            )
        walks.setdefault(generation.record.method, walk)
    try:
        with path.open("w", encoding="utf-8") as file:
            for id, prompt_ids, walks in answers.values():
                file.write(json.dumps(simulator_row(id, prompt_ids, walks)) + "\n")
    except OSError as error:
        raise UserError(f"--simulator {str(path)!r} cannot be written: {error.strerror or error}") from None


def simulated(
    path: Path, price: CostModel | None, asked: Sequence[ReplayRequest], batch: int
) -> tuple[list[Record], list[str]]:
    """Records of plain autoregression, of each length that was asked for and of the oracle, on a simulator's rows.

    Raises `UserError` without a price, which such rows do not hold, and for a rule, which would read beliefs.
    """
    if price is None:
        raise UserError("simulator rows hold no times; expected --price FILE")
    if any(request.rule is not None or request.values or request.nodes for request in asked):
        raise UserError("simulator rows hold no drafts and no beliefs; expected --gamma alone, beside the oracle")
    price = in_batch(price, batch) if batch > 1 else price
    records: list[Record] = []
    for id, _, walks in simulator_walks(path):
        plain: Record | None = None
        for name, walk in walks.items():
            if plain is None:
                plain = _record(id, AR, AR, replayed(walk, FixedGamma(0), price), None)
                records.append(plain)
            runs = {
                f"gamma={request.gamma}": _fixed(walk, request, price) for request in asked if request.gamma is not None
            }
            runs["oracle"] = oracle(walk, price)
            method = name if name in METHODS else "speculative"
            records += [
                _record(id, method, f"{REPLAYED}{name} {words}", run, plain.tokens_per_s) for words, run in runs.items()
            ]
    return records, []


def _fixed(walk: DraftWalk, asked: ReplayRequest, price: CostModel) -> RunMetrics:
    assert asked.gamma is not None
    return replayed(walk, FixedGamma(asked.gamma), price, bounded=asked.bounded)


def _record(id: str, method: str, configuration: str, run: RunMetrics, plain: float | None) -> Record:
    known: dict[str, Any] = {name: getattr(run, name) for name in measured(Record)}
    speed = run.tokens_per_s
    return Record(
        **known,
        id=id,
        turn=1,
        method=method,
        lossless=True,
        settings=relevant_settings(method, Settings()),
        text="",
        repeat=0,
        configuration=configuration,
        speedup=1.0 if plain is None else (speed or 0.0) / plain,
        target_weights="full",
    )

"""The record of a generation, from its comparison and the circumstances."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ablation.results.column import measured
from ablation.results.record import CONSISTENT, DIFFERS, Record
from engines.spec import OURS, SERVER
from sampling.measure.ledger import PARTS, Ledger
from sampling.methods.settings import relevant_settings
from sampling.methods.tables import AR, METHODS
from utils.parameter import Values

if TYPE_CHECKING:
    from ablation.plan.grid import PlannedGeneration
    from sampling.engine import Description, Engine
    from sampling.forward.traffic import Traffic
    from sampling.measure.comparison import Comparison
    from sampling.measure.metrics import RunMetrics
    from utils.device.machine import Machine


def make_record(
    comparison: "Comparison",
    place: "PlannedGeneration",
    machine: "Machine",
    error: str | None,
    about_engine: "Description",
) -> Record:
    """The record of a generation that has run, or has failed with `error`, in this comparison."""
    values = {**comparison.values, **dict(place.configuration.parameters)}
    planned, circumstances = _planned(place), _circumstances(machine, about_engine)
    if error is not None:
        return Record(**planned, **circumstances, settings=relevant_settings(place.method, values), error=error)
    settings = resolved_settings(place.method, values, comparison.engine)
    return Record(**planned, **circumstances, settings=settings, **_measured(comparison, place, values, about_engine))


def resolved_settings(method: str, values: Values, engine: "Engine") -> dict[str, Any]:
    """The same with what `auto` came to on this engine, where it can run the method."""
    return {**relevant_settings(method, values), **engine.resolve(method, values)}


def ledger_of(record: Record) -> Ledger | None:
    """Where the time of a record's tokens went; None where that is unknown."""
    parts = {part: getattr(record, f"token_{part}_ms") for part in PARTS}
    if None in parts.values() or not record.break_even_tokens or not record.rounds or not record.tokens_per_round:
        return None
    seconds = {part: value / 1e3 for part, value in parts.items()}
    return Ledger(
        **seconds,
        plain=record.tokens_per_round * sum(seconds.values()) / record.break_even_tokens,
        rows=1.0 + (record.drafted or 0) / record.rounds,
        tokens=record.tokens_per_round,
        alpha=record.alpha,
        needed_alpha=record.break_even_alpha,
        experts=record.experts_per_round,
        expert_share=record.expert_share,
        expert_s=(record.experts_ms or 0.0) / 1e3 / record.tokens_per_round,
    )


def _planned(place: "PlannedGeneration") -> dict[str, Any]:
    """Which generation of the plan it is."""
    return {
        "id": place.prompt.id,
        "task": place.prompt.task,
        "turn": place.turn,
        "method": place.method,
        "lossless": place.lossless,
        "repeat": place.repeat,
        "configuration": place.configuration.name,
        "batch": place.batch,
        "rate": place.rate,
        "engine": place.engine,
        "concurrency": None if place.engine == OURS else place.batch,
    }


def _circumstances(machine: "Machine", about_engine: "Description") -> dict[str, Any]:
    """When it ran, beside what, and on which arithmetic."""
    target = about_engine.target
    return {
        "started": machine.started,
        "cpu_mhz": machine.cpu_mhz,
        "other_cores": machine.other_cores,
        "threads_blocked": machine.threads_blocked,
        "kernel": target.kernel,
        "target_weights": target.stored,
        "compiled": target.compiled,
        "batch_invariant": target.batch_invariant,
        "graphs": target.graphs,
        "engine_version": about_engine.version,
        "rollback_way": target.rollback,
        "own_kernels": target.own_kernels,
        "idle_watts": machine.energy.idle_watts if machine.energy else None,
        "energy_of": machine.energy.parts if machine.energy else None,
    }


def _measured(
    comparison: "Comparison", place: "PlannedGeneration", values: Values, about_engine: "Description"
) -> dict[str, Any]:
    """What came of it, and how that compares with the reference."""
    from sampling.forward.traffic import copy_bandwidth
    from utils.device.memory import peak_memory_mb  # with torch, which reading results does not need

    name, device = place.configuration.name, about_engine.device
    metrics, divergence = comparison.metrics[name], comparison.divergence(name)
    return {
        **{key: None if key in metrics.unknown else getattr(metrics, key) for key in measured(Record)},
        "text": comparison.engine.text(metrics.output_ids),
        "peak_memory_mb": None if about_engine.target.device == SERVER else peak_memory_mb(device),
        **_against_target(comparison, name),
        "capture_s": metrics.capture_s if about_engine.target.graphs else None,
        "c": comparison.cost_ratio(name),
        **_ledger(comparison, name),
        **_roofline(about_engine.traffic, metrics, place.method, values, lambda: copy_bandwidth(device)),
        "first_divergence": divergence.index if divergence else None,
        "divergence_verdict": divergence.verdict if divergence else None,
        **_refereed(comparison, name),
        **_read_again(comparison, name),
    }


def _against_target(comparison: "Comparison", name: str) -> dict[str, Any]:
    """The speedup, and the speed that it is over; neither without a reference, nor for another output."""
    speedup = comparison.speedup(name)
    plain = None if speedup is None else comparison.metrics[AR].tokens_per_s
    return {"speedup": speedup, "target_tokens_per_s": plain}


def _refereed(comparison: "Comparison", name: str) -> dict[str, Any]:
    """What our target says of another engine's answer; nothing where it was drawn, or not meant to be the target's."""
    refereed = comparison.referee(name)
    if refereed is None:
        return {}
    verdict = CONSISTENT if refereed.place is None else DIFFERS
    return {"referee": verdict, "referee_place": refereed.place, "referee_behind": refereed.behind}


def _read_again(comparison: "Comparison", name: str) -> dict[str, Any]:
    """Tokens of the turn before that were read again; nothing in a first turn, nor of other engines."""
    prefilled, known = comparison.metrics[name].prefilled, comparison.known(name)
    if prefilled is None or known is None:
        return {}
    again = {"reread_target": prefilled.prefix_hits or 0, "reread_drafter": prefilled.drafter_start}
    return {key: None if start is None else max(0, known - start) for key, start in again.items()}


def _ledger(comparison: "Comparison", name: str) -> dict[str, Any]:
    """Where the time went, in ms a token, and what would have been enough; only what is known."""
    ledger, predicted = comparison.ledger(name), comparison.predicted(name)
    values: dict[str, Any] = {"predicted_token_ms": predicted.total * 1e3} if predicted else {}
    if ledger is not None:
        values |= {f"token_{part}_ms": getattr(ledger, part) * 1e3 for part in PARTS}
        values |= {"break_even_tokens": ledger.break_even, "break_even_alpha": ledger.needed_alpha}
    return values


def _roofline(
    traffic: "Traffic | None", metrics: "RunMetrics", method: str, values: Values, bandwidth: Callable[[], float]
) -> dict[str, Any]:
    """What its tokens cost in reads, against what the memory gives; nothing where that is not known."""
    if traffic is None or metrics.opaque or METHODS[method].other is not None or not values["cache"]:
        return {}
    read = traffic.a_token(metrics.prompt_tokens, metrics.tokens_by_round)
    if read is None or metrics.tokens_per_s is None:
        return {}
    return {"bytes_per_token": read, "roofline_share": read * metrics.tokens_per_s / bandwidth()}

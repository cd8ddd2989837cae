"""Walks of all drafters along all texts, one text after the other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ablation.acceptance.figures import Along
from ablation.plan.grid import Configuration
from sampling.heads.published.formats import kind_of
from sampling.measure.acceptance.places import places_of
from sampling.measure.acceptance.reading import GivenText
from sampling.measure.acceptance.walk import walk_along
from sampling.measure.acceptance.walkers import Walker, walker
from sampling.methods.tables import METHODS
from sampling.pair.kept.heads import KeptHeads
from sampling.pair.local_engine import LocalEngine
from sampling.pair.processing import processor_of
from utils.errors import UserError


@dataclass(frozen=True, slots=True)
class AcceptanceRequest:
    """What is asked: drafters, how deep, under which settings. others: folders of further checkpoints of heads."""

    runs: Sequence[Configuration]
    values: Mapping[str, Any]
    depth: int
    others: Sequence[Path] = ()


def walkers_of(engine: LocalEngine, asked: AcceptanceRequest) -> dict[str, Walker]:
    """What walks, by name; after each head its further checkpoints. Raises `UserError` for what cannot walk."""
    found: dict[str, Walker] = {}
    kinds = {folder: kind_of(folder) for folder in asked.others}
    for run in asked.runs:
        values = {**asked.values, **dict(run.parameters)}
        found[run.name] = walker(engine, run.method, values, asked.depth)
        for folder, kind in kinds.items():
            if METHODS[run.method].drafter == kind:
                found[f"{run.name} ({folder.name})"] = walker(
                    _with_head(engine, kind, folder), run.method, values, asked.depth
                )
    for folder, kind in kinds.items():
        if kind not in {METHODS[run.method].drafter for run in asked.runs}:
            raise UserError(
                f"--checkpoint {str(folder)!r} holds a {kind} head, and no method drafts with one; "
                "expected it among --methods"
            )
    return found


def _with_head(engine: LocalEngine, kind: str, folder: Path) -> LocalEngine:
    """An engine on the same models with another head of a kind."""
    from sampling.pair.pair_engine import PairEngine

    return PairEngine(replace(engine.pair, heads={**engine.pair.heads, kind: folder}, kept_heads=KeptHeads()))


def measure(
    engine: LocalEngine,
    texts: Sequence[GivenText],
    walkers: Mapping[str, Walker],
    asked: AcceptanceRequest,
    tell: Callable[..., None],
    stop: Callable[[], bool],
) -> Along:
    """What was met along the texts; where the user stops, along those that are whole."""
    along = Along({name: [] for name in walkers})
    processor = processor_of(engine.pair, asked.values["processor"])
    tell(0, len(texts), "texts")
    for done, text in enumerate(texts, start=1):
        if stop():
            break
        for name, met in walk_along(engine.pair, text, walkers, processor, asked.depth).items():
            along.mets[name].append(met)
        along.places.append(list(places_of(text.prompt, text.answer, engine.pair.piece, text.turn)))
        tell(done, len(texts), "texts")
    return along

"""Acceptance by place in runs: how far into output and context, in which phase and turn a round began."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ablation.report.tables.cells import Table, interval, number, title_of
from ablation.results.traces.trace import is_trace
from sampling.measure.place_rates import PlaceShare, RoundAt
from sampling.measure.places import KINDS, Place, group_order

HEADS = {"output": "tokens of the answer before", "context": "tokens before", "phase": "phase", "turn": "turn"}
_MEANING = (
    "Alpha: accepted drafts over judged positions of the rounds that began there, with its 95 % interval over prompts. "
    "A round begins where the last one failed, so these rates depend on the draft length; infer.py acceptance has "
    "those that do not."
)


def read_rounds(path: Path) -> Iterator[RoundAt]:
    """The rounds with drafts in a trace; a torn line ends them. None of a file that is no trace."""
    if not path.is_file() or not is_trace(path):
        return
    starts: dict[tuple[Any, ...], int] = {}
    with path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                line = json.loads(text)
                if line.get("kind", "round") != "round":
                    continue
                key = tuple(line[name] for name in ("id", "turn", "configuration", "processor", "seed", "repeat"))
                begun = starts.setdefault((*key, line["target_weights"]), line["position"])
                if line["round"] == 0:
                    begun = starts[(*key, line["target_weights"])] = line["position"]
                yield from _round_at(line, begun)
            except (ValueError, KeyError, TypeError):
                return


def _round_at(line: dict[str, Any], begun: int) -> Iterator[RoundAt]:
    if not line["drafts"]:
        return
    place = Place(line["position"] - begun, line["position"], line.get("phase") or "answer", line["turn"])
    accepted = line["accepted"]
    # After a rejection a position more was judged; a chain that passed whole, and an accepted stop, have none.
    rejected = line["next"] is not None and _has_children(line)
    emitted = accepted + (line["next"] is not None)
    yield RoundAt(line["configuration"], str(line["id"]), place, accepted + rejected, accepted, emitted)


def _has_children(line: dict[str, Any]) -> bool:
    last = line["path"][-1] if line["path"] else -1
    parents = range(-1, len(line["drafts"]) - 1) if line["parents"] is None else line["parents"]
    return any(parent == last for parent in parents)


def place_tables(shares: Sequence[PlaceShare], rounds: Sequence[RoundAt]) -> tuple[Table, ...]:
    """A table a kind that has several groups: a row a configuration, a column a group."""
    tables = list[Table]()
    for kind in KINDS:
        own = [share for share in shares if share.kind == kind]
        groups = sorted({share.group for share in own}, key=lambda group: group_order(kind, group))
        if len(groups) < 2:
            continue
        names = list(dict.fromkeys(share.name for share in own))
        found = {(share.name, share.group): share for share in own}
        rows = tuple((title_of(name), *(_cell(found.get((name, group))) for group in groups)) for name in names)
        counts = [sum(one.place.group(kind) == group for one in rounds) for group in groups]
        counted = tuple(f"{group} ({count:,} rounds)" for group, count in zip(groups, counts, strict=True))
        notes = () if tables else (_MEANING,)
        tables.append(Table(f"Alpha by {HEADS[kind]}", ("configuration", *counted), rows, notes))
    return tuple(tables)


def _cell(share: PlaceShare | None) -> str:
    return number(float("nan")) if share is None else interval(share.share, share.low, share.high)

"""The rounds in a trace, each with the place where it began."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablation.results.traces.trace import is_trace
from sampling.measure.acceptance.place_rates import RoundAt
from sampling.measure.acceptance.places import Place


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

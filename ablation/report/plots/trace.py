"""A plot of one answer, round by round: the draft length asked for, what was kept, and the drafter's entropy."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ablation.report.plots.figure import COLOURS, WIDTH, blank, wrapped
from ablation.results.stamp import stamped
from utils.text import shown

_METHODS = ("speculative", "egag")
_MOST = 6
_ANSWER = ("id", "turn", "processor", "seed", "repeat")
_NEEDED = (*_ANSWER, "method", "configuration", "position", "gamma", "accepted", "entropy")

Line = dict[str, Any]


def trace_figure(path: Path) -> tuple[Figure, str] | str:
    """Gamma, accepted drafts and entropy along the first prompt's answer, and the caption; or why there is none."""
    if not path.exists():
        return f"There is no trace ({path.name}) to draw gamma and entropy from."
    rounds: dict[str, list[Line]] = {}
    for line in _first_answer(path):
        rounds.setdefault(stamped(shown(line["configuration"]), line.get("lossless")), []).append(line)
    # One of each method before a second of any, so that the methods can be compared.
    turns: dict[str, int] = {}
    places = {}
    for name, lines in rounds.items():
        method = lines[0]["method"]
        turns[method] = turns.get(method, 0) + 1
        places[name] = turns[method]
    chosen = sorted(rounds, key=places.__getitem__)[:_MOST]
    if not chosen:
        return f"The trace ({path.name}) does not begin with an answer by speculative decoding or EGAG."
    first = rounds[chosen[0]][0]
    caption = f"Gamma and entropy along one answer: prompt {shown(first['id'])} under {shown(first['processor'])}"
    figure, axes = blank(caption, WIDTH, 0.9 + 1.75 * len(chosen), len(chosen), 1, sharex=True, sharey=True)
    drawn = [line for name in chosen for line in rounds[name]]
    tokens = max(max(line["gamma"], line["accepted"]) for line in drawn)
    nats = max((line["entropy"] for line in drawn if line["entropy"] is not None), default=1.0)
    for axis, name in zip(axes, [name for name in rounds if name in chosen], strict=True):
        _answer(axis, name, rounds[name], tokens, nats)
    axes[-1].set_xlabel("new tokens before the round", fontsize=9)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure, caption


def _first_answer(path: Path) -> Iterator[Line]:
    """The lines of the first generation's block that belong to a drafter model; a torn line ends them.

    The rest of the file, which may be large, is never read. Of several formats of the target's weights, the first.
    """
    first: list[Any] | None = None
    weights: Any = None
    with path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                line = json.loads(text)
                answer = [line[name] for name in _ANSWER]
                complete = line.get("kind") == "run" or all(name in line for name in _NEEDED)
            except (ValueError, KeyError, TypeError):
                return
            if first is None:
                first, weights = answer, line.get("target_weights")
            if answer != first or not complete:
                return
            if (
                line.get("kind", "round") == "round"
                and line["method"] in _METHODS
                and line.get("target_weights") == weights
            ):
                yield line


def _answer(axis: Axes, name: str, lines: list[Line], tokens: int, nats: float) -> None:
    """One answer's axes; `tokens` and `nats` are the highest values of all answers drawn, so that scales agree."""
    start = lines[0]["position"]
    x = [line["position"] - start for line in lines]
    axis.step(x, [line["gamma"] for line in lines], where="post", color=COLOURS[0], label="gamma (tokens)")
    axis.plot(x, [line["accepted"] for line in lines], "o", color=COLOURS[2], markersize=4, label="accepted (tokens)")
    axis.set_ylabel("tokens", fontsize=8)
    axis.set_ylim(-0.3, tokens + 0.4)
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_title(wrapped(name, 90), fontsize=9, loc="left")
    known = [(place, line["entropy"]) for place, line in zip(x, lines, strict=True) if line["entropy"] is not None]
    # Drawn on the left axis too, so that one legend names all three.
    axis.plot([], [], "--", color=COLOURS[1], label="entropy of the first draft (nats, right axis)")
    if known:
        right = axis.twinx()
        right.plot(*zip(*known, strict=True), "--", color=COLOURS[1], linewidth=1.0)
        right.set_ylabel("nats", fontsize=8, color=COLOURS[1])
        right.set_ylim(0.0, 1.05 * nats)
        right.tick_params(labelsize=8, colors=COLOURS[1])
        right.spines["top"].set_visible(False)

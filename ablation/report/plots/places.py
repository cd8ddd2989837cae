"""Plot of acceptance by place: a panel a kind of place, a curve a drafter."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablation.report.plots.figure import WIDTH, blank, style, wrapped
from sampling.measure.acceptance.place_rates import PlaceShare
from sampling.measure.acceptance.places import KINDS

_NAMED = {"output": "tokens of the answer before", "context": "tokens before, prompt included"}


def place_figure(found: Sequence[PlaceShare], title: str) -> Figure:
    """A panel for each kind of place: shares with their intervals over texts."""
    figure, axes = blank(title, WIDTH, 6.0, 2, 2)
    names = list(dict.fromkeys(one.name for one in found))
    for axis, kind in zip(axes, KINDS, strict=True):
        _panel(axis, found, kind, names)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def _panel(axis: Axes, found: Sequence[PlaceShare], kind: str, names: Sequence[str]) -> None:
    groups = list(dict.fromkeys(one.group for one in found if one.kind == kind))
    for place, name in enumerate(names):
        own = {one.group: one for one in found if (one.kind, one.name) == (kind, name)}
        beside = 0.5 * (place - (len(names) - 1) / 2) / max(1, len(names))
        known = [(at + beside, own[group]) for at, group in enumerate(groups) if group in own]
        axis.plot([x for x, _ in known], [one.share for _, one in known], label=wrapped(name, 28), **style(place))
        for x, one in known:
            if one.low == one.low:
                axis.plot([x, x], [one.low, one.high], color=style(place)["color"], linewidth=1.0)
    axis.set_xticks(range(len(groups)), groups, rotation=30, ha="right")
    axis.set_title(_NAMED.get(kind, kind), fontsize=9, loc="left")
    axis.set_ylim(0.0, 1.0)

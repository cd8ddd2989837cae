"""Where rows fed together differ from the same rows alone: numbers of rows over the operations of a forward."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ablation.report.plots.figure import WIDTH, blank
from ablation.report.plots.layout import lay_out
from sampling.proof.invariance import CountResult


def draw(path: Path, name: str, results: Sequence[CountResult]) -> None:
    """A picture in the format of its name: colour = the largest difference in units in the last place, white = none."""
    operations = list(results[0].ulp)
    apart = np.array([[np.log2(1 + result.ulp.get(operation, 0)) for operation in operations] for result in results])
    title = f"{name}: how far rows fed together are from the same rows alone"
    figure, (axis,) = blank(title, WIDTH, 1.6 + 0.3 * len(results), 1, 1)
    axis.grid(visible=False)
    shades = axis.imshow(
        np.ma.masked_equal(apart, 0),
        aspect="auto",
        interpolation="nearest",
        cmap="viridis_r",
        vmin=0,
        vmax=max(1, apart.max()),
    )
    axis.set_yticks(range(len(results)), [str(result.rows) for result in results])
    firsts = [place for place, operation in enumerate(operations) if _begins(operations, place)]
    step = max(1, len(firsts) // 10)
    axis.set_xticks(firsts[::step], [_layer(operations[place]) for place in firsts[::step]])
    axis.set(xlabel="operations of a forward in order, by layer", ylabel="rows")
    if apart.any():
        bar = figure.colorbar(shades, ax=axis, pad=0.01, use_gridspec=False)
        ticks = [tick for tick in bar.get_ticks() if 0 <= tick <= apart.max()]
        bar.set_ticks(ticks, labels=[f"{2**tick - 1:,.0f}" for tick in ticks])
        bar.set_label("units in the last place", fontsize=8)
        bar.ax.tick_params(labelsize=8)
    else:
        axis.text(0.5, 0.5, "all bits are equal", transform=axis.transAxes, ha="center", va="center")
    lay_out(figure)
    figure.savefig(path, dpi=120)


def _layer(operation: str) -> str:
    """The number of the layer that an operation belongs to, or its name: `layers.3.down` -> `3`."""
    numbers = [part for part in operation.split(".") if part.isdigit()]
    return numbers[0] if numbers else operation.removeprefix("before ")


def _begins(operations: Sequence[str], place: int) -> bool:
    return place == 0 or _layer(operations[place]) != _layer(operations[place - 1])

"""How often intervals over prompts hold what they should, on our own recorded runs: minutes.

    uv run scripts/interval_coverage.py

A recorded run is taken for all there is: its truth is known. Samples of n of its prompts are drawn with replacement,
and each method gives an interval from a sample. Coverage: the share of intervals that hold the truth, mean and least
over the populations. Speedups have a normal kernel around each recorded logarithm (Silverman's bandwidth), so that
samples have no ties; counts are drawn as they are. Nothing is timed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.special import ndtr
from scipy.stats import norm, t

from ablation.commands.shared.checked import run_checked
from ablation.commands.shared.options import exit_statuses
from ablation.report.load import load_results
from ablation.report.tables.acceptance import positions
from sampling.methods.tables import AR
from utils.numbers.intervals import Ends, Numbers, order_pair, share_interval, studentised_ratio

RESULTS = Path(__file__).parent.parent / "docs" / "results"
TIMED = ("auto", "egag", "grammar", "rules", "untrained")
"""Runs of 20 prompts or more that were timed one at a time."""
COUNTED = "exact_float32"
"""90 prompts on a busy machine: what was drafted and accepted counts, no time does."""
SIZES = (8, 12, 20, 50)
_DRAWS, _PLACES, _FEWEST_ROUNDS = 2000, (1, 2, 4), 200

Method = Callable[[Numbers, Numbers], Ends]


@dataclass(frozen=True, slots=True)
class Population:
    """What samples are drawn from: a part and a whole of each prompt, `[N]` each.

    bandwidth: of the kernel around each part. truth: what an interval should hold.
    """

    parts: Numbers
    wholes: Numbers
    truth: float
    bandwidth: float = 0.0

    def drawn(self, rng: np.random.Generator, size: int, samples: int) -> tuple[Numbers, Numbers]:
        """Samples as columns, `[size, samples]` each."""
        places = rng.integers(0, len(self.parts), (size, samples))
        noise = self.bandwidth * rng.standard_normal(places.shape)
        return self.parts[places] + noise, self.wholes[places]


def medians(parts: Numbers, wholes: Numbers) -> Ends:
    """As `median_interval`, of every column."""
    ordered, rank = np.sort(parts, axis=0), order_pair(len(parts)).rank
    return ordered[rank - 1], ordered[-rank]


def resampled_medians(parts: Numbers, wholes: Numbers) -> Ends:
    """The percentile bootstrap of a median."""
    count = len(parts)
    ranks = np.sort(np.random.default_rng(0).integers(0, count, (_DRAWS, count)), axis=1)
    ordered = np.sort(parts, axis=0)
    drawn = (ordered[ranks[:, (count - 1) // 2]] + ordered[ranks[:, count // 2]]) / 2.0
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    return low, high


def percentile(parts: Numbers, wholes: Numbers) -> Ends:
    """The percentile bootstrap of a ratio of sums."""
    low, high = np.nanquantile(_resampled(parts, wholes), (0.025, 0.975), axis=0)
    return low, high


def bca(parts: Numbers, wholes: Numbers) -> Ends:
    """The bootstrap that corrects bias and acceleration (Efron 1987), of a ratio of sums."""
    drawn, ratio = np.sort(_resampled(parts, wholes), axis=0), parts.sum(axis=0) / wholes.sum(axis=0)
    below = ((drawn < ratio).mean(axis=0) + (drawn <= ratio).mean(axis=0)) / 2.0
    bias = norm.ppf(np.clip(below, 1.0 / _DRAWS, 1.0 - 1.0 / _DRAWS))
    without = (parts.sum(axis=0) - parts) / (wholes.sum(axis=0) - wholes)
    skew = without.mean(axis=0) - without
    scale = 6.0 * (skew**2).sum(axis=0) ** 1.5
    pull = np.divide((skew**3).sum(axis=0), scale, out=np.zeros_like(scale), where=scale > 0)
    ends = []
    for level in norm.ppf((0.025, 0.975)):
        share = ndtr(bias + (bias + level) / (1.0 - pull * (bias + level)))
        place = np.clip((share * _DRAWS).astype(int), 0, _DRAWS - 1)
        ends.append(np.take_along_axis(drawn, place[None], axis=0)[0])
    return ends[0], ends[1]


def students_t(parts: Numbers, wholes: Numbers) -> Ends:
    """Student's t of a ratio of sums, its error linearised; of a mean where wholes are 1."""
    count, sums = len(parts), wholes.sum(axis=0)
    ratio = parts.sum(axis=0) / sums
    error = np.sqrt(((parts - ratio * wholes) ** 2).sum(axis=0) * count / (count - 1)) / sums
    reach = t.ppf(0.975, count - 1) * error
    return ratio - reach, ratio + reach


def _resampled(parts: Numbers, wholes: Numbers) -> Numbers:
    count = len(parts)
    often = np.random.default_rng(0).multinomial(count, np.full(count, 1.0 / count), size=_DRAWS).astype(float)
    sums = often @ wholes
    # A resample that knows nothing is left out of every quantile.
    ratios: Numbers = np.divide(often @ parts, sums, out=np.full_like(sums, np.nan), where=sums > 0)
    return ratios


def speedups() -> Iterator[tuple[str, Population]]:
    """Logarithms of speedups, their median and their mean: one a prompt, configuration and format."""
    for run in TIMED:
        rows = load_results(RESULTS / run / "results.csv")
        rows = rows[~rows["failed"] & (rows["configuration"] != AR) & (rows["speedup"] > 0)]
        for _, part in rows.groupby(["processor", "configuration"], observed=True):
            logs = np.log(part["speedup"]).groupby(part["id"], observed=True).mean().to_numpy()
            if len(logs) < min(20, rows["id"].nunique()) or not logs.std():
                continue
            spread = min(logs.std(ddof=1), float(np.subtract(*np.quantile(logs, (0.75, 0.25)))) / 1.34)
            width = 0.9 * spread * len(logs) ** -0.2
            ones = np.ones_like(logs)
            yield "median of speedups", Population(logs, ones, smoothed_median(logs, width), width)
            yield "mean of speedups", Population(logs, ones, float(logs.mean()), width)


def smoothed_median(values: Numbers, bandwidth: float) -> float:
    """The median of normal kernels around values, by bisection."""
    low, high = values.min() - 5.0 * bandwidth, values.max() + 5.0 * bandwidth
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if ndtr((middle - values) / bandwidth).mean() < 0.5 else (low, middle)
    return float(low)


def counts() -> Iterator[tuple[str, Population]]:
    """Tokens a round, alpha, and the shares of rounds that accepted the draft at some positions."""
    frame = load_results(RESULTS / COUNTED / "results.csv")
    frame = frame[frame["batch"] == 1]
    for found in positions(frame):
        rounds, tested = found.hist.sum(axis=1), found.tested.sum(axis=1)
        accepted = found.hist @ np.arange(found.hist.shape[1])
        yield "tokens a round", _ratio(rounds + accepted, rounds)
        reached = found.hist[:, ::-1].cumsum(axis=1)[:, ::-1]
        yield "alpha", _ratio(reached[:, 1:].sum(axis=1), tested)
        for place in _PLACES:
            known = place <= found.tested.shape[1] and place < reached.shape[1]
            if known and found.tested[:, place - 1].sum() >= _FEWEST_ROUNDS:
                yield f"share at position {place}", _ratio(reached[:, place], found.tested[:, place - 1])


def _ratio(parts: Numbers, wholes: Numbers) -> Population:
    return Population(parts, wholes, float(parts.sum() / wholes.sum()))


OF_MEDIANS: Mapping[str, Method] = {"order statistics": medians, "percentile bootstrap": resampled_medians}
OF_RATIOS: Mapping[str, Method] = {
    "studentised bootstrap": partial(studentised_ratio, least=-np.inf),
    "Student's t": students_t,
    "BCa bootstrap": bca,
    "percentile bootstrap": percentile,
}
OF_SHARES: Mapping[str, Method] = {"Korn-Graubard": share_interval, **OF_RATIOS}
USED = {
    "median of speedups": "order statistics",
    "mean of speedups": "Student's t",
    "tokens a round": "studentised bootstrap",
}
"""What reports and advice use; shares have Korn-Graubard's."""


def methods_of(figure: str) -> Mapping[str, Method]:
    """The methods that are compared for a figure."""
    if figure.startswith("median"):
        return OF_MEDIANS
    return OF_RATIOS if figure in USED else OF_SHARES


def covered(population: Population, method: Method, parts: Numbers, wholes: Numbers) -> tuple[float, float]:
    """Share of samples whose interval holds the truth, and the mean width; of those that have an interval."""
    low, high = method(parts, wholes)
    known = ~np.isnan(low) & ~np.isnan(high)
    if not known.any():
        return np.nan, np.nan
    low, high = low[known], high[known]
    return float(((low <= population.truth) & (population.truth <= high)).mean()), float((high - low).mean())


def simulated(samples: int, seed: int) -> pd.DataFrame:
    """A row a population, method and size."""
    rng, rows = np.random.default_rng(seed), []
    for figure, population in track([*speedups(), *counts()], "populations", transient=True):
        for size in SIZES:
            parts, wholes = population.drawn(rng, size, samples)
            # A sample that knows nothing has no ratio.
            some = (wholes > 0).sum(axis=0) > 1
            for name, method in methods_of(figure).items():
                coverage, width = covered(population, method, parts[:, some], wholes[:, some])
                rows.append((figure, name, size, coverage, width))
    return pd.DataFrame(rows, columns=["figure", "method", "n", "coverage", "width"])


def main(
    samples: Annotated[int, typer.Option(min=10, help="of each population and size")] = 400,
    seed: Annotated[int, typer.Option(help="of the samples")] = 1,
) -> None:
    """Coverage of 95 % intervals at 8, 12, 20 and 50 prompts, in brackets their mean width; least: at any n."""
    with exit_statuses():
        rows = simulated(samples, seed)
        table = Table("figure", "populations", "method", *(f"n = {size}" for size in SIZES), "least", "used", box=None)
        for (figure, name), part in rows.groupby(["figure", "method"], sort=False):
            by_size = part.groupby("n")[["coverage", "width"]].mean()
            cells = [f"{100 * row['coverage']:.1f} % ({row['width']:.3f})" for _, row in by_size.iterrows()]
            least = f"{100 * part['coverage'].min():.1f} %"
            chosen = "yes" if name == USED.get(str(figure), "Korn-Graubard") else ""
            table.add_row(str(figure), str(part["n"].value_counts().max()), str(name), *cells, least, chosen)
        Console(width=150).print(table)


if __name__ == "__main__":
    run_checked(main)

"""How far an ablation is: a bar with the time left, the row under way, and speedups so far."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from rich.console import Console
from rich.text import Text

from ablation.plan.grid import BatchLoad, PlannedGeneration
from ablation.results.record import Record
from ablation.run.progress.bar import Bar, plain_line
from ablation.run.progress.watcher import NullWatcher
from engines.spec import OURS, UNKNOWN
from sampling.loading.options import WEIGHTS
from sampling.methods.settings import PARAMETERS
from sampling.methods.tables import AR
from utils.text import few, shown

_MOST_SHOWN = 5


class Speedups:
    """The median speedup of each configuration so far."""

    def __init__(self) -> None:
        self._ratios: dict[str, list[float]] = defaultdict(list)

    def add(self, record: Record) -> None:
        """Account for a record; plain autoregression is what the others are against."""
        if record.speedup is not None and record.configuration != AR:
            name = _of_engine(record.engine, _name(record.configuration, record.target_weights))
            self._ratios[name].append(record.speedup)

    def best(self, most: int = _MOST_SHOWN) -> list[tuple[str, float]]:
        """The configurations with the highest medians, highest first."""
        medians = [(name, median(ratios)) for name, ratios in self._ratios.items()]
        return sorted(medians, key=lambda pair: -pair[1])[:most]


def under_way(place: PlannedGeneration) -> str:
    """The row under way in one line."""
    processor = PARAMETERS["processor"].show(place.processor)
    turn = f" turn {place.turn}" if place.turn > 1 else ""
    repeat = f" repeat {place.repeat}" if place.repeat else ""
    name = _of_engine(place.engine, _name(place.configuration.name, place.target_weights))
    if place.load is not None:
        return f"{place.load.text} | {name} | {processor} | seed {place.seed}{repeat}"
    return f"{shown(place.prompt.id)}{turn} | {name} | {processor} | seed {place.seed}{repeat}"


def _name(configuration: str, weights: str | None) -> str:
    """A configuration with the format of the target's weights, where that is not the usual one."""
    return configuration if weights in (None, WEIGHTS[0], UNKNOWN) else f"{configuration} in {weights}"


def _of_engine(engine: str | None, name: str) -> str:
    """Whose it is, where it is not ours."""
    return name if engine in (None, OURS) else f"{engine}: {name}"


class BarDisplay(NullWatcher):
    """On a terminal. Painted between generations only, so that rounds follow each other at once."""

    def __init__(self, console: Console, done: int, total: int) -> None:
        self._bar = Bar(console, total=total, done=done)
        self._speedups = Speedups()

    def __enter__(self) -> "BarDisplay":
        self._bar.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.__exit__(*exc)

    def begin(self, place: PlannedGeneration) -> None:
        """Show what runs now."""
        best = "   ".join(f"{name} {value:.2f}x" for name, value in self._speedups.best())
        so_far = [Text(f"median speedup against AR so far: {best}", style="dim")] if best else []
        self._bar.paint(Text(under_way(place)), *so_far)

    def record(self, record: Record) -> None:
        """Count a row; the bar is wiped until the next generation, so that what is printed meanwhile stays whole."""
        self._bar.wipe()
        self._speedups.add(record)
        self._bar.advance()
        if record.error is not None:
            name = _name(record.configuration, record.target_weights)
            said = f"{shown(record.id)} {name} failed: {shown(record.error)}"
            self._bar.console.print(Text(said, style="red"))

    def say(self, text: str) -> None:
        """A line above the bar."""
        self._bar.console.print(text, style="dim", markup=False, highlight=False)


class LineDisplay(NullWatcher):
    """Where there is no terminal: a line a prompt, with the speed of AR and the ratios against it, or else speeds."""

    def __init__(self, console: Console, done: int, total: int) -> None:
        self._console, self._done, self._total = console, done, total
        self._block: list[Record] = []
        self._place: PlannedGeneration | None = None

    def __enter__(self) -> "LineDisplay":
        return self

    def __exit__(self, *exc: object) -> None:
        self._flush()

    def begin(self, place: PlannedGeneration) -> None:
        """A prompt is complete when the next one begins."""
        if self._place is not None and _block(self._place) != _block(place):
            self._flush()
        self._place = place

    def record(self, record: Record) -> None:
        """Count a row."""
        self._done += 1
        self._block.append(record)

    def say(self, text: str) -> None:
        """A line of its own."""
        self._console.print(text, soft_wrap=True, markup=False, highlight=False)

    def _flush(self) -> None:
        if self._block:
            load = self._place and self._place.load
            first = self._block[0]
            words = _of_engine(first.engine, f"{shown(first.id)}: {'  '.join(_words(self._block))}")
            plain_line(self._console, self._done, self._total, _batch(load, self._block) if load else words)
        self._block = []


def _block(place: PlannedGeneration) -> tuple[object, ...]:
    """What generations of one prompt have in common that are compared, and those in other formats beside them."""
    if place.load is not None:
        return (
            place.load,
            place.configuration,
            place.processor,
            place.seed,
            place.repeat,
            place.target_weights,
            place.engine,
        )
    return place.prompt, place.turn, place.processor, place.seed, place.repeat, place.engine


def _words(block: Iterable[Record]) -> Iterable[str]:
    for record in block:
        name = _name(record.configuration, record.target_weights)
        if record.error is not None:
            yield f"{name} failed"
        elif record.configuration == AR and record.tokens_per_s is not None:
            yield f"{name} {record.tokens_per_s:.1f} tok/s"
        elif record.speedup is not None:
            yield f"{name} {record.speedup:.2f}x"
        elif record.tokens_per_s is not None:
            yield f"{name} {record.tokens_per_s:.1f} tok/s"


def _batch(load: BatchLoad, block: Sequence[Record]) -> str:
    """A batch in one line: its texts' speed in all, and the median of theirs against AR's."""
    first = block[0]
    failed = [record.id for record in block if record.error is not None]
    tells = "throughput_tps" if first.engine == OURS else "e2e_throughput_tps"
    rate = next((getattr(record, tells) for record in block if getattr(record, tells) is not None), None)
    ratios = [record.speedup for record in block if record.speedup is not None]
    parts = [
        "" if rate is None else f"{rate:.1f} tok/s in all",
        f"speedup of the median text {median(ratios):.2f}x" if ratios and first.configuration != AR else "",
        f"{len(failed)} failed: {few(failed)}" if failed else "",
    ]
    name = _name(first.configuration, first.target_weights)
    return f"{load.text}: {_of_engine(first.engine, name)} {'  '.join(part for part in parts if part)}"


def display(console: Console, done: int, total: int) -> BarDisplay | LineDisplay:
    """What suits the console."""
    return (BarDisplay if console.is_terminal else LineDisplay)(console, done, total)

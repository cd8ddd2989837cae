"""Histograms and counters as Prometheus reads them; the bounds are those of vLLM's metrics."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]

TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0),
    *(80.0, 160.0, 640.0, 2560.0),
)
TOKEN_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0),
    *(960.0, 1920.0, 7680.0),
)
TOKENS = tuple(float(digit * 10**power) for power in range(5) for digit in (1, 2, 5))


class Histogram:
    """Counts values by upper bounds; what is above all of them counts too."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.sum = tuple(bounds), 0.0
        self._counts = [0] * (len(bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value in the first bucket whose bound is not below it."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self._counts)

    def samples(self, labels: Labels) -> Iterator[Sample]:
        """Its lines: how many values are at most each bound, their sum and their number."""
        counts = [*accumulate(self._counts)]
        for bound, count in zip((*map(str, self.bounds), "+Inf"), counts, strict=True):
            yield "_bucket", {**labels, "le": bound}, count
        yield "_sum", labels, self.sum
        yield "_count", labels, counts[-1]


def family(name: str, kind: str, help: str, samples: Sequence[Sample]) -> str:
    """The lines of a metric; a sample has what stands behind the name, its labels and its value."""
    lines = [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
    for suffix, labels, value in samples:
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.append(f"{name}{suffix}{{{shown}}} {value}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

"""What was expected of an NVIDIA H200 at batch 1 in bfloat16 before anything had run on one, and what is wanted.

A model of kernels and bytes: 2.5 microseconds for a small kernel in a graph, 1.3 between two products, weights read at
4.3 TB/s, keys and values at 0.6 of that, 0.1 ms of Python a round. On another card the part that reads memory is scaled
by the copy that was measured there. A miss by more than 1.5 times is a finding.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

EAGER, GRAPHS, FUSED = "eager", "graphs", "graphs and fused kernels"
SMALL, MIDDLE, LARGE = "llama-135m", "llama-1b", "llama-8b"
HEAD, MODEL = "EAGLE head", "SD with "
HIGH = "0.8"
COPY = "copy bandwidth"
READS_BYTES_PER_S = 4.3e12
"""What the predictions read memory at."""
_KEPT_READS = 0.6 * READS_BYTES_PER_S
# Bytes of keys and values that a token leaves in bfloat16.
_KEPT_BYTES = {SMALL: 23_040, MIDDLE: 32_768, LARGE: 131_072}
CONTEXTS = (2048, 8192, 32_768)

Found = Mapping[str, Any]


def plain(shape: str, way: str) -> str:
    """Name of the measurement of plain decoding."""
    return f"{shape}: AR, {way}"


def floor(shape: str) -> str:
    """Name of the time that memory alone allows."""
    return f"{shape}: floor"


def growth(shape: str, way: str) -> str:
    """Name of the times of forwards over n rows."""
    return f"{shape}: v(n), {way}"


def drafted(shape: str, drafter: str, gamma: int, rate: str, way: str) -> str:
    """Name of rounds in which a drafter drafts gamma tokens, of which each passes at this rate."""
    return f"{shape}: {drafter}, gamma {gamma}, acceptance {rate}, {way}"


def behind(name: str, context: int) -> str:
    """Name of a measurement behind so many tokens."""
    return f"{name}, behind {context:,} tokens"


def against_generate(shape: str) -> str:
    """Name of the turns against transformers."""
    return f"{shape}: against generate"


@dataclass(frozen=True, slots=True)
class Prediction:
    """what: in words. measurement, number: where its measured value stands; empty where this check has none.

    memory: how much of the value is spent reading weights, in its unit.
    """

    what: str
    value: float
    unit: str
    measurement: str = ""
    number: str = ""
    memory: float = 0.0

    def measured(self, results: Found) -> float | None:
        """The number that was measured, None where it was not."""
        value = (results.get(self.measurement) or {}).get(self.number)
        return None if value is None else float(value)

    def beside(self, results: Found) -> dict[str, Any]:
        """The prediction, scaled to this card's memory, with what was measured, and the ratio of the two."""
        value, copied = self.measured(results), (results.get(COPY) or {}).get("bytes_per_s", READS_BYTES_PER_S)
        here = self.value + self.memory * (READS_BYTES_PER_S / copied - 1.0)
        return {**asdict(self), "here": here, "measured": value, "ratio": None if value is None else value / here}


def _plain(model: str, shape: str, floor_ms: float, eager: float, graphs: float, fused: float) -> Iterator[Prediction]:
    """A model of the first table. shape: what stands for it here; empty: nothing does."""
    for what, value, name, number in (
        ("floor", floor_ms, floor(shape), "ms"),
        (EAGER, eager, plain(shape, EAGER), "ms"),
        (GRAPHS, graphs, plain(shape, GRAPHS), "ms"),
        (FUSED, fused, plain(shape, FUSED), "ms"),
    ):
        where = (name, number) if shape else ("", "")
        yield Prediction(f"{model} AR, {what}", value, "ms a token", *where, memory=floor_ms)


def _kept_ms(shape: str, context: int) -> float:
    """Milliseconds in which attention reads the keys and values of a text once."""
    return 1e3 * _KEPT_BYTES[shape] * context / _KEPT_READS


def _behind() -> Iterator[Prediction]:
    """The same far from the beginning of a text, where attention reads more and all else is as it was."""
    for model, shape, near_ms, floor_ms in (
        ("SmolLM2-135M", SMALL, 1.24, 0.063),
        ("Llama-3.2-1B", MIDDLE, 1.26, 0.57),
        ("Llama-3.1-8B", LARGE, 4.7, 3.5),
    ):
        for context in CONTEXTS:
            what, more = behind(f"{model} AR, {GRAPHS}", context), _kept_ms(shape, context)
            name = behind(plain(shape, GRAPHS), context)
            yield Prediction(what, round(near_ms + more, 2), "ms a token", name, "ms", floor_ms + more)
    for context in CONTEXTS:
        what, more = f"8B + 1B, gamma 4, {GRAPHS}", _kept_ms(LARGE, context) + 4 * _kept_ms(MIDDLE, context)
        name = behind(drafted(LARGE, f"{MODEL}{MIDDLE}", 4, HIGH, GRAPHS), context)
        value, memory = round(9.4 + more, 2), 3.5 + 4 * 0.57 + more
        yield Prediction(behind(what, context), value, "ms a round", name, "ms", memory)
    yield Prediction(
        behind("8B, v(5)", CONTEXTS[-1]), 1.05, "forwards", behind(growth(LARGE, GRAPHS), CONTEXTS[-1]), "v5"
    )


PREDICTIONS: tuple[Prediction, ...] = (
    *_plain("SmolLM2-135M", SMALL, 0.063, 3.6, 1.24, 0.79),
    *_plain("Qwen3-0.6B", "", 0.28, 3.4, 1.6, 1.0),
    *_plain("Llama-3.2-1B", MIDDLE, 0.57, 2.1, 1.26, 1.0),
    *_plain("Qwen2.5-1.5B", "", 0.72, 3.4, 1.8, 1.4),
    *_plain("Llama-3.1-8B", LARGE, 3.5, 4.7, 4.7, 4.25),
    *(
        prediction
        for way, round_ms, gain in ((EAGER, 12.5, 1.26), (GRAPHS, 9.4, 1.65), (FUSED, 8.1, 1.73))
        for name in (drafted(LARGE, f"{MODEL}{MIDDLE}", 4, HIGH, way),)
        for prediction in (
            Prediction(f"8B + 1B, gamma 4, {way}", round_ms, "ms a round", name, "ms", memory=3.5 + 4 * 0.57),
            Prediction(f"8B + 1B, gamma 4, acceptance 0.8, {way}", gain, "times own AR", name, "speedup"),
        )
    ),
    *(
        Prediction(
            f"{what}, chain of 4, {way}", round_ms, "ms a round", drafted(shape, HEAD, 4, HIGH, way), "ms", target_ms
        )
        for what, shape, way, round_ms, target_ms in (
            ("8B + EAGLE", LARGE, EAGER, 6.9, 3.5),
            ("8B + EAGLE", LARGE, GRAPHS, 5.8, 3.5),
            ("135M + one-layer head", SMALL, EAGER, 5.0, 0.063),
            ("135M + one-layer head", SMALL, GRAPHS, 1.75, 0.063),
        )
    ),
    Prediction("135M + one-layer head, c", 0.06, "forwards a draft", drafted(SMALL, HEAD, 4, HIGH, GRAPHS), "c"),
    Prediction("135M, v(5)", 1.0, "forwards", growth(SMALL, GRAPHS), "v5"),
    *_behind(),
)


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound that a measured number has to keep. least: whether it is a lower one."""

    what: str
    bound: float
    least: bool
    measurement: str
    number: str

    def beside(self, results: Found) -> dict[str, Any]:
        """The goal with what was measured and whether it is reached; None where it was not measured."""
        value = (results.get(self.measurement) or {}).get(self.number)
        reached = None if value is None else (value >= self.bound if self.least else value <= self.bound)
        return {"what": self.what, "bound": self.bound, "measured": value, "reached": reached}


GOALS: tuple[Goal, ...] = (
    Goal("8B: share of the roofline, at least", 0.75, True, floor(LARGE), "share"),
    Goal("1B: share of the roofline, at least", 0.45, True, floor(MIDDLE), "share"),
    Goal("135M: ms a token, at most", 1.3, False, plain(SMALL, GRAPHS), "ms"),
    Goal("135M: times compiled generate, at least", 1.0, True, against_generate(SMALL), "static_ratio"),
    Goal("8B: times compiled generate, at least", 1.0, True, against_generate(LARGE), "static_ratio"),
)


def markdown(found: Found) -> str:
    """The predictions as a table of a page, beside what the stage found; a dash: not measured."""
    rows = list[str]()
    for prediction in PREDICTIONS:
        beside = prediction.beside(found)
        measured, ratio = (shown(beside[name]) for name in ("measured", "ratio"))
        rows.append(f"| {prediction.what} | {prediction.value:g} {prediction.unit} | {measured} | {ratio} |")
    return "\n".join(["| what | predicted | measured | measured / predicted |", "|---|---|---|---|", *rows])


def shown(value: float | None) -> str:
    """Three digits, or a dash."""
    return "-" if value is None else f"{value:.3g}"

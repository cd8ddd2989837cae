"""Plain decoding, v(n) and a model's drafts far from the beginning of a text, where attention costs."""

from functools import partial
from itertools import cycle, islice

from ablation.gpu_check.fast import predictions as names
from ablation.gpu_check.fast.bench import Bench, BenchModels, BenchSize
from ablation.gpu_check.fast.predictions import COPY, EAGER, GRAPHS, HIGH
from ablation.gpu_check.record import LeftOut, StageRecord
from ablation.gpu_check.rounds import RoundPace
from sampling.forward.traffic import Traffic
from sampling.methods.tables import AR

_GAMMA = 4
_IDS = range(5, 250)
_NEEDS_S = 20.0


def measure_contexts(record: StageRecord, size: BenchSize, bench: BenchModels) -> None:
    """Each context, the shortest first: with graphs everything, then plain decoding without."""
    shape, needs_s = bench.shape, 0.0 if record.tiny else _NEEDS_S
    engines = {way: bench.engine(way) for way in (GRAPHS, EAGER)}
    for context in size.contexts:
        prompt, paces = list(islice(cycle(_IDS), context)), dict[str, RoundPace]()
        sides = {way: Bench(engine, prompt, size.warm_up, paces) for way, engine in engines.items()}
        plain = {way: names.behind(names.plain(shape, way), context) for way in sides}
        record.measure(plain[GRAPHS], partial(sides[GRAPHS].plain, AR, GRAPHS, size.far_tokens), needs_s)
        least = partial(floor, record, bench, context, size.far_tokens, paces)
        record.measure(names.behind(names.floor(shape), context), least)
        growing = partial(sides[GRAPHS].growth, size.far_widths, size.far_turns)
        record.measure(names.behind(names.growth(shape, GRAPHS), context), growing, needs_s)
        drafting = partial(sides[GRAPHS].drafted, "speculative", GRAPHS, size.drafted_tokens, _GAMMA, HIGH)
        drafted = names.drafted(shape, bench.drafter_name, _GAMMA, HIGH, GRAPHS)
        record.measure(names.behind(drafted, context), drafting, needs_s)
        record.measure(plain[EAGER], partial(sides[EAGER].plain, AR, EAGER, size.far_tokens), needs_s)


def floor(
    record: StageRecord, bench: BenchModels, context: int, tokens: int, paces: dict[str, RoundPace]
) -> dict[str, float]:
    """Bytes that a token has to read, the time that they take at the speed of a copy, and the share that is reached.

    context: tokens of the prompt. paces: of plain decoding, by way.
    """
    traffic = Traffic.of(bench.model)
    if COPY not in record.found or traffic is None:
        raise LeftOut("the bandwidth or the bytes are not known")
    a_token = traffic.a_token(context, [1] * tokens) or 0.0
    ms = 1e3 * a_token / record.found[COPY]["bytes_per_s"]
    shares = {"share" if way == GRAPHS else f"share_{way}": ms / pace.ms for way, pace in paces.items()}
    return {"bytes": a_token, "ms": ms, **shares}

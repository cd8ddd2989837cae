"""The table of batches: what they bring in all, and what each text has of it. For `infer.py run` and the report."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from ablation.plan.grid import titled
from ablation.results.record import Record
from ablation.results.stamp import stamped
from sampling.methods.tables import AR

HEADERS = (
    "at a time", "configuration", "tok/s in all", "ratio in all", "tok/round", "alpha", "tpot, ms", "ttft, ms",
    "live", "output",
)  # fmt: skip
MEANING = (
    "tok/s in all: tokens of all texts over the seconds of all rounds, prompts not counted. ratio in all: that over "
    "plain decoding's at the same batch size; the speedup of the median text, which progress lines tell, is each "
    "text's own and can differ. tpot, ttft, alpha, tok/round: medians over texts. live: texts in a round, on average."
)


@dataclass(frozen=True, slots=True)
class BatchLine:
    """All texts of a configuration at one size, in one format. throughput, e2e: tokens a second; ratio: to AR's."""

    batch: int
    configuration: str
    lossless: bool | None
    target_weights: str | None
    throughput: float | None
    e2e: float | None
    ratio: float | None
    tokens_per_round: float | None
    alpha: float | None
    tpot_ms: float | None
    ttft_ms: float | None
    live: float | None
    output: str


def batch_lines(records: Sequence[Record]) -> list[BatchLine]:
    """One for each format, size and configuration, in the order of the records; repeats are taken together."""

    def group(record: Record) -> tuple[str, int, str]:
        return record.target_weights or "", record.batch, record.configuration

    order = {key: place for place, key in enumerate(dict.fromkeys(map(group, records)))}
    each = {
        key: list(some) for key, some in groupby(sorted(records, key=lambda record: order[group(record)]), key=group)
    }
    plain = {key[:2]: throughput(some) for key, some in each.items() if key[2] == AR}
    return [_line(some, plain.get(key[:2])) for key, some in each.items()]


def throughput(records: Sequence[Record], e2e: bool = False) -> float | None:
    """Tokens a second of a configuration's batches: the median over its passes."""
    passes = {
        (record.repeat, record.settings.get("seed"), record.settings.get("processor")): record for record in records
    }
    rates = [
        account.e2e_throughput_tps if e2e else account.throughput_tps
        for account in passes.values()
        if account.error is None
    ]
    return _median(rates)


def _line(records: Sequence[Record], plain: float | None) -> BatchLine:
    first, rate = records[0], throughput(records)
    return BatchLine(
        batch=first.batch,
        configuration=first.configuration,
        lossless=first.lossless,
        target_weights=first.target_weights,
        throughput=rate,
        e2e=throughput(records, e2e=True),
        ratio=rate / plain if rate and plain and first.configuration != AR else None,
        tokens_per_round=_median([record.tokens_per_round for record in records]),
        alpha=_median([record.alpha for record in records]),
        tpot_ms=_median([record.tpot_ms for record in records]),
        ttft_ms=_median([None if record.ttft_s is None else record.ttft_s * 1e3 for record in records]),
        live=_mean([record.live_rows for record in records]),
        output=", ".join(_outputs(records)),
    )


def _outputs(records: Sequence[Record]) -> Iterator[str]:
    """How the outputs compare with plain decoding's, and what failed."""
    verdicts = [record.divergence_verdict for record in records if record.divergence_verdict is not None]
    yield from (f"{verdicts.count(word)} {word}" for word in ("exact", "tie", "BUG") if word in verdicts)
    if failed := sum(record.error is not None for record in records):
        yield f"{failed} failed"


def cells(line: BatchLine) -> tuple[str, ...]:
    """A line as text, a dash for what is unknown."""
    return (
        str(line.batch),
        stamped(titled(line.configuration), line.lossless),
        _shown(line.throughput, 1),
        "reference" if line.configuration == AR else _shown(line.ratio, 2, "x"),
        _shown(line.tokens_per_round, 2),
        _shown(line.alpha, 2),
        _shown(line.tpot_ms, 1),
        _shown(line.ttft_ms, 0),
        _shown(line.live, 1),
        line.output or "-",
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _shown(value: float | None, digits: int, unit: str = "") -> str:
    return "-" if value is None else f"{value:.{digits}f}{unit}"

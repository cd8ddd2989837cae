"""The comparison of a session's runs: the reference row, every other method against it, and what to distrust."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType

from ablation.results import stamp
from ablation.results.tables import comparison as table
from ablation.results.tables import outcome as winners
from repl.files.runs import Run
from sampling.measure.ledger import Ledger
from sampling.measure.metrics import RunMetrics
from sampling.measure.sentences import gammas_reached, stages
from sampling.methods.part import Condition
from sampling.methods.settings import PARAMETERS
from sampling.methods.tables import AR, METHODS

if TYPE_CHECKING:
    from sampling.measure.comparison import Comparison
    from sampling.measure.divergence import Divergence


@dataclass(frozen=True, slots=True)
class TableRow:
    """One method's line.

    label: the title with the name, for the table; empty where they are the same. lossless: None for another output.
    other: why it is not compared with the reference (`Method.other`). memories: by what it drafts from earlier answers
    too. ledger: where its time went, `predicted` by the pair's profile. adapts: its rule chooses a draft length in
    each round.
    """

    title: str
    metrics: RunMetrics
    speedup: float | None = None
    cost_ratio: float | None = None
    divergence: "Divergence | None" = None
    lossless: bool | None = True
    reference: bool = False
    other: str | None = None
    memories: tuple[Condition, ...] = ()
    ledger: Ledger | None = None
    predicted: Ledger | None = None
    adapts: bool = False
    label: str = ""


def rows(
    comparison: "Comparison", names: Sequence[str], verdicts: Mapping[str, "Divergence | None"], runs: Mapping[str, Run]
) -> list[TableRow]:
    """The rows of what ran; `runs` holds them by name."""
    return [
        TableRow(
            runs[name].title,
            comparison.metrics[name],
            comparison.speedup(name),
            comparison.cost_ratio(name),
            verdicts.get(name),
            comparison.lossless(name) if METHODS[runs[name].method].other is None else None,
            name == AR,
            METHODS[runs[name].method].other,
            METHODS[runs[name].method].memories(comparison.values_of(name)),
            comparison.ledger(name),
            comparison.predicted(name),
            METHODS[runs[name].method].adapts,
            runs[name].label,
        )
        for name in names
    ]


def comparison_table(lines: Sequence[TableRow], console: Console) -> RenderableType:
    """The comparison table of the session's runs."""
    return table.comparison_table([line_of(row) for row in lines], console)


def cells(lines: Sequence[TableRow]) -> tuple[tuple[str, ...], ...]:
    """The same table as plain text, under the headings of `ONE_RUN`."""
    return tuple(tuple(column.cell(line_of(row)).plain for column in table.ONE_RUN) for row in lines)


def line_of(row: TableRow) -> table.ComparisonLine:
    """The plain values of a row."""
    metrics = row.metrics
    return table.ComparisonLine(
        title=row.label or row.title,
        output=_output(row),
        lossless=row.lossless,
        reference=row.reference,
        new_tokens=metrics.new_tokens,
        tokens_per_s=metrics.tokens_per_s,
        speedup=row.speedup,
        claim=table.claim_of(row.speedup),
        acceptance_rate=metrics.acceptance_rate,
        alpha=metrics.alpha,
        tokens_per_round=metrics.tokens_per_round,
        c=row.cost_ratio,
        ledger=row.ledger,
        predicted_ms=row.predicted.total * 1e3 if row.predicted else None,
    )


def _output(row: TableRow) -> tuple[table.Words, ...]:
    if row.metrics.finish_reason is None:
        return ((table.STOPPED, "yellow"),)
    if row.reference:
        return (table.REFERENCE_WORDS,)
    if row.other is not None:
        return ((row.other, "dim"),)
    divergence = row.divergence
    return () if divergence is None else (table.verdict_words(divergence.verdict, divergence.index, divergence.margin),)


def outcome(lines: Sequence[TableRow]) -> list[str]:
    """Who won, and by how much."""
    return winners.outcome([line_of(row) for row in lines])


def notes(lines: Sequence[TableRow], settings: str, first: bool) -> list[str]:
    """What the numbers are against, why they are as they are, and what to distrust."""
    said = [_against(lines), *_reasons(lines)]
    if lossy := [line.title for line in lines if line.lossless is False]:
        said.append(stamp.warning(lossy))
    if trees := [line.title for line in lines if line.metrics.trees]:
        said.append(
            f"{', '.join(trees)}: a tree's other branches count as drafted; compare alpha and tok/round, not accepted"
        )
    if not first and (remembering := [line for line in lines if line.memories]):
        memories = sorted({_forgetting(memory) for line in remembering for memory in line.memories})
        said.append(
            f"{', '.join(line.title for line in remembering)}: also drafted from earlier answers of this session, so a "
            f"repeated prompt is fast; {' and '.join(memories)} {'forgets' if len(memories) == 1 else 'forget'} them"
        )
    said += [
        f"{line.title}: score {line.metrics.score:.3f}, {line.metrics.token_ms:.1f} ms a token; "
        "a search for a likelier text, so its output differs and its speed is not a speedup"
        for line in lines
        if line.metrics.score is not None
    ]
    said.append(settings)
    if first:
        said.append("first answer of this session: timings settle from the second on")
    return said


def _forgetting(memory: Condition) -> str:
    """The command that tells what remembers to forget."""
    return f"/{memory.parameter} {PARAMETERS[memory.parameter].show(memory.value)}"


def _against(lines: Sequence[TableRow]) -> str:
    if any(line.reference and line.metrics.finish_reason is not None for line in lines):
        return "speedup: tokens/s over our own AR on this prompt, one run each: small differences are noise"
    if any(line.reference for line in lines):
        return "no speedup: the reference was stopped"
    return "no speedup: the reference is off (/target on)"


def _reasons(lines: Sequence[TableRow]) -> Iterator[str]:
    """Why a slow row was slow, and what a rule made of its freedom."""
    for line in lines:
        least, most = line.metrics.min_gamma, line.metrics.max_gamma
        if line.speedup is not None and line.speedup < 1 and line.ledger is not None:
            yield f"{line.title} {line.speedup:.2f}: {line.ledger}"
        if least is not None and most is not None and (line.adapts or least < most):
            yield f"{line.title}: {gammas_reached(least, most)}"
        if (inner := stages(line.metrics)) is not None:
            yield f"{line.title}: {inner}"

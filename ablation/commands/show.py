"""Records for people: each distinct answer once, then one table a prompt."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ablation.plan.grid import titled
from ablation.results.make_record import ledger_of
from ablation.results.record import Record
from ablation.results.stamp import stamped
from ablation.results.tables.batch import HEADERS, MEANING, batch_lines, cells
from ablation.results.tables.comparison import (
    LEDGER_TITLE,
    REFERENCE_WORDS,
    ComparisonLine,
    Words,
    claim_of,
    comparison_table,
    ledger_table,
    on_lines,
    verdict_words,
)
from ablation.results.tables.outcome import outcome
from ablation.results.tables.quality import quality_command
from engines.spec import OURS, UNKNOWN
from sampling.loading.options import WEIGHTS
from sampling.measure.sentences import gammas_reached, stages
from sampling.methods.tables import AR, METHODS
from utils.device.machine import disturbance
from utils.text import counted, few, shown


def show_batches(console: Console, records: Sequence[Record]) -> None:
    """Print what batches of many prompts brought, a table for each format of the target's weights."""
    lines = batch_lines(records)
    for weights in dict.fromkeys(line.target_weights for line in lines):
        title = _whose(records[0]) + ("" if weights in (None, WEIGHTS[0], UNKNOWN) else f"weights in {weights}")
        table = Table(
            title=title or None,
            title_justify="left",
            box=None,
            padding=(0, 1, 0, 0),
            pad_edge=False,
            header_style="dim",
        )
        for header in HEADERS:
            words = header in ("configuration", "output")
            heading = on_lines(header)
            whole = max(map(len, heading.split("\n")))
            table.add_column(heading, justify="left" if words else "right", no_wrap=not words, min_width=whole)
        for line in lines:
            if line.target_weights == weights:
                table.add_row(*map(Text, cells(line)))
        console.print(table)
    for error in dict.fromkeys(record.error for record in records if record.error is not None):
        failed = [record for record in records if record.error == error]
        names = few(dict.fromkeys(record.id for record in failed))
        said = f"{counted(len(failed), 'text')} failed, of {names}: {shown(error)}"
        console.print(Text(said, style="red"), soft_wrap=True)
    if disturbed := disturbance(record.other_cores for record in records):
        console.print(Text(disturbed, style="yellow"), soft_wrap=True)
    if lines:
        console.print(Text(MEANING, style="dim"))


def _whose(record: Record) -> str:
    """The engine and its version, where it is not ours."""
    return "" if record.engine in (None, OURS) else f"{record.engine} {record.engine_version or ''}".strip() + ": "


def show(console: Console, records: Sequence[Record]) -> None:
    """Print the records of one turn of one prompt."""
    if not records:
        return
    first = records[0]
    turn = f", turn {first.turn}" if first.turn > 1 else ""
    usual = (None, WEIGHTS[0], UNKNOWN)
    weights = f", weights in {first.target_weights}" if first.target_weights not in usual else ""
    console.print(Text(f"{_whose(first)}prompt {shown(first.id)}{turn}{weights}", style="bold"))
    for text in dict.fromkeys(record.text for record in records if record.text is not None):
        alike = [record for record in records if record.text == text]
        names = ", ".join(stamped(titled(record.configuration), record.lossless) for record in alike)
        console.print(Text(f"{names}:", style="dim"))
        console.print(Text(shown(text, lines=True)), soft_wrap=True)
    lines = [_line(record) for record in records]
    console.print(comparison_table(lines, console))
    for sentence in outcome(lines):
        console.print(Text(sentence, style="bold"))
    if any(record.drafted and ledger_of(record) for record in records):
        console.print(Text(LEDGER_TITLE, style="dim"))
        console.print(ledger_table(lines, console))
    if all(record.configuration != AR for record in records):
        console.print(Text(f"no speedup: the reference, {AR}, did not run", style="dim"), soft_wrap=True)
    if disturbed := disturbance(record.other_cores for record in records):
        console.print(Text(disturbed, style="yellow"), soft_wrap=True)
    for reason in (
        *_handed_over(records),
        *_roofline(records),
        *_reasons(records),
        *_gammas(records),
        *_rounded(records),
    ):
        console.print(Text(reason, style="dim"), soft_wrap=True)
    for record in records:
        if record.score is not None and record.decode_s and record.new_tokens:
            cost = f"{record.decode_s / record.new_tokens * 1e3:.1f} ms a token"
            other = f"{METHODS[record.method].other}, so no speedup"
            said = f"{record.configuration}: {other}; score {record.score:.3f}, {cost}"
            console.print(Text(said, style="dim"), soft_wrap=True)
        if record.error is not None:
            console.print(Text(f"{record.configuration} failed: {shown(record.error)}", style="red"), soft_wrap=True)


def _handed_over(records: Sequence[Record]) -> Iterator[str]:
    """How the prompt came here that was read elsewhere; the slowest of several times."""
    known = [
        record
        for record in records
        if record.kv_bytes and record.kv_transfer_ms is not None and record.prefill_s is not None
    ]
    if known:
        slowest = max(known, key=lambda record: record.kv_transfer_ms or 0.0)
        size, took, read = (
            (slowest.kv_bytes or 0) / 1e6,
            slowest.kv_transfer_ms or 0.0,
            (slowest.prefill_s or 0.0) * 1e3,
        )
        yield f"the prompt was read elsewhere, in {read:,.1f} ms, and {size:,.1f} MB were handed over in {took:,.1f} ms"


def _roofline(records: Sequence[Record]) -> Iterator[str]:
    """How good a baseline AR is: against a memory that did nothing but hand it what it reads."""
    for record in records:
        if record.configuration == AR and record.roofline_share is not None and record.bytes_per_token is not None:
            read = f"{record.bytes_per_token / 1e6:,.0f} MB a token"
            yield f"{AR}: {record.roofline_share:.0%} of the memory roofline ({read} at the speed of a copy)"


def _reasons(records: Sequence[Record]) -> Iterator[str]:
    """Why each run that was slower than AR was."""
    for record in records:
        ledger = ledger_of(record)
        if ledger is not None and record.speedup is not None and record.speedup < 1 and record.drafted:
            yield f"{record.configuration} {record.speedup:.2f}: {ledger}"


def _gammas(records: Sequence[Record]) -> Iterator[str]:
    """Which draft lengths the rules reached that choose one in each round, and what drafting in stages brought."""
    for record in records:
        least, most = record.min_gamma, record.max_gamma
        if least is not None and most is not None and (METHODS[record.method].adapts or least < most):
            yield f"{record.configuration}: {gammas_reached(least, most)}"
        if (inner := stages(record)) is not None:
            yield f"{record.configuration}: {inner}"


def _rounded(records: Sequence[Record]) -> Iterator[str]:
    """Speeds of rounded weights stand here without what the rounding costs; who compares formats needs both."""
    formats = {record.target_weights for record in records}
    if rounded := [name for name in WEIGHTS[1:] if name in formats]:
        warning = f"{' and '.join(rounded)} weights are another model"
        yield f"{warning}; what they cost in quality: {quality_command(rounded)}"


def _line(record: Record) -> ComparisonLine:
    return ComparisonLine(
        title=titled(record.configuration),
        output=_output(record),
        lossless=record.lossless,
        reference=record.configuration == AR,
        new_tokens=record.new_tokens,
        tokens_per_s=record.tokens_per_s,
        speedup=record.speedup,
        claim=claim_of(record.speedup),
        acceptance_rate=record.acceptance_rate,
        alpha=record.alpha,
        tokens_per_round=record.tokens_per_round,
        c=record.c,
        ledger=ledger_of(record),
        predicted_ms=record.predicted_token_ms,
    )


def _output(record: Record) -> tuple[Words, ...]:
    if record.error is not None:
        return (("failed", "red"),)
    if record.configuration == AR:
        return (REFERENCE_WORDS,)
    other = METHODS[record.method].other
    if other is not None:
        return ((other, "dim"),)
    verdict = record.divergence_verdict
    return () if verdict is None else (verdict_words(verdict, record.first_divergence),)

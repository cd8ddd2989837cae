"""An audit for people, for scripts, and as a file."""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from ablation.commands.shared.options import out_console
from engines.audit.audit import Audit, show
from engines.audit.judge import POWER, LawTest
from engines.audit.verdicts import UNASKED, Line, lines
from utils.errors import wrong_value

SUFFIXES = (".jsonl", ".csv")
_HEADS = ("processor", "method", "verdict", "p, Holm", "finds TV", "forgotten TV", "found with", "why")


def objects(audit: Audit, tests: Sequence[LawTest], level: float) -> Iterator[dict[str, Any]]:
    """Everything as JSON objects: `verdict` lines, then what they rest on."""
    about = {"engine": audit.engine.name, "engine_version": audit.engine.version, "level": level, "power": POWER}
    parts: list[tuple[str, Sequence[Any]]] = [
        ("verdict", list(lines(audit, tests))),
        ("law", tests),
        ("greedy", audit.greedy),
        ("logprobs", audit.logprobs),
    ]
    for kind, found in parts:
        for each in found:
            yield {"kind": kind, **about, **asdict(each)}
    for (processor, method, prompt), there in audit.draws.items():
        told = {"drafted": there.drafted, "accepted": there.accepted, "answers": there.counts.total()}
        yield {
            "kind": "draws",
            **about,
            "processor": show(processor),
            "method": method,
            "prompt": prompt,
            **told,
            "counts": [[list(answer), times] for answer, times in there.counts.most_common()],
        }


def check_output(path: Path | None) -> None:
    """Raises `UserError` for a file in no form that is written."""
    if path is not None and path.suffix not in SUFFIXES:
        raise wrong_value("--output", str(path), f"a name that ends with {' or '.join(SUFFIXES)}")


def write(path: Path, found: Sequence[dict[str, Any]]) -> None:
    """JSON lines of everything, or the tests as CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            file.writelines(json.dumps(each) + "\n" for each in found)
            return
        names = ["engine", "engine_version", "level", "power", *(field.name for field in fields(LawTest))]
        table = csv.DictWriter(file, names, extrasaction="ignore")
        table.writeheader()
        table.writerows(each for each in found if each["kind"] == "law")


def tell(audit: Audit, tests: Sequence[LawTest], level: float) -> None:
    """The table, and what its figures mean."""
    table = Table(title=f"{audit.engine.name} {audit.engine.version}".strip(), title_justify="left", box=None)
    for head in _HEADS:
        table.add_column(head, justify="right" if head in _HEADS[3:7] else "left")
    unasked: dict[str, None] = {}
    for line in lines(audit, tests):
        table.add_row(*_cells(line))
        if line.verdict == UNASKED:
            unasked[f"not asked: {line.processor}: {line.reason}"] = None
    out_console().print(table)
    for note in unasked:
        typer.echo(note)
    typer.echo(
        f"{len(tests)} tests; a false alarm in any of them has a probability of at most {level:g} (Holm). finds TV: "
        f"the smallest total variation that is found with {POWER:.0%}, wherever it is. forgotten TV: what an engine "
        f"that forgets the processor would make; found with: the probability that this audit notices."
    )
    for check in audit.logprobs:
        said = "apart" if check.apart else "alike"
        typer.echo(
            f"log-probabilities, {check.method}, prompt {check.prompt + 1}: {said}, {check.distance:.2g} at most "
            f"(rounding explains {check.rounding:.2g})"
        )


def _cells(line: Line) -> tuple[str, ...]:
    def shown(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    return (
        line.processor,
        line.method,
        line.verdict,
        shown(line.p, ".2g"),
        shown(line.finds, ".2f"),
        shown(line.dropped, ".2f"),
        shown(line.sees, ".0%"),
        "" if line.verdict == UNASKED else line.reason,
    )

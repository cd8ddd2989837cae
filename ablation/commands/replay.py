"""What `scripts/replay.py` does with a trace: rows of what was not run, as a report shows them."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ablation.report.gap.write import write_gap
from ablation.report.tables.bounds import ABOUT, FITTED_COST, UNTESTED, frame_of
from ablation.report.tables.summary import summarise
from ablation.report.terminal import print_summary, print_table
from ablation.results.computed import BOUND, BOUND_METHOD, REPLAYED
from ablation.results.record import Record
from ablation.results.store import Store
from ablation.results.table import columns, row
from ablation.results.traces.bounds import bounds
from ablation.results.traces.gap.signals import READ_BY
from ablation.results.traces.gap.split import gaps
from ablation.results.traces.generations import Generation, read_generations
from ablation.results.traces.replay import ReplayRequest, Replays, refuse_foreign
from ablation.results.traces.simulator import simulated, write_simulator
from ablation.run.results_file import check_output
from egag.cost_model import CostModel
from sampling.measure.replay.expected import expected_accepted
from sampling.measure.replay.simulator import is_simulator
from sampling.methods.rules import CONTROLLERS
from sampling.methods.settings import PARAMETERS
from utils.errors import UserError, wrong_value
from utils.files import checked_path
from utils.parameter import read_integer
from utils.text import counted, quoted

FITTED = "fitted"
NOTE = (
    "Rows that begin with 'replayed:' were computed from a trace, not run: their times are predicted, and no verdict "
    "is given."
)


@dataclass(frozen=True, slots=True)
class ReplayCall:
    """A command line, as it was typed."""

    trace: Path
    rule: str | None = None
    gammas: str | None = None
    nodes: str | None = None
    assignments: Sequence[str] = ()
    strategy: str | None = None
    methods: str | None = None
    batch: int = 1
    price: str = FITTED
    bounded: bool = False
    bounds: bool = False
    gap: Path | None = None


def replay(call: ReplayCall, console: Console, out: Path | None = None, simulator: Path | None = None) -> None:
    """Replay what was asked for and print it. Raises `UserError` for what the trace cannot tell.

    out: a results file that is written too. simulator: a file for the rows of SpecDecode-Bench's simulator.
    """
    if out is not None:
        check_output(out, resume=False, overwrite=False)
    asked, price = _asked(call), _price(call.price)
    checked_path(str(call.trace), "trace")
    _refuse_mixed(call)
    known = not call.trace.is_dir() and call.trace.stat().st_size > 0
    if known and is_simulator(call.trace):
        return _show(call, console, out, *simulated(call.trace, price, asked, call.batch))
    replays = _loaded(call, price)
    if simulator is not None:
        write_simulator(replays, simulator)
    if call.strategy is not None:
        return console.print(_expected(replays, call.strategy))
    if call.gap is not None:
        return _split(call, console, replays, call.gap)
    records, notes = _records(replays, asked)
    if call.bounds:
        bounds_found = bounds(replays)
        records, notes = [*records, *bounds_found.records], [*notes, *bounds_found.notes]
    return _show(call, console, out, [*replays.references(replays.drafted), *records], notes)


def _refuse_mixed(call: ReplayCall) -> None:
    """Raises `UserError` where a gap is asked for beside what it does not read."""
    if call.gap is None:
        return
    asked = {"--gamma": call.gammas, "--tree-tokens": call.nodes, "--verify-strategy": call.strategy}
    if names := [name for name, value in asked.items() if value is not None]:
        raise UserError(f"--gap and {names[0]}: expected one of them; a gap is split under --rule, or under all rules")


def _split(call: ReplayCall, console: Console, replays: Replays, folder: Path) -> None:
    """Print and write what lies between rules and the oracle."""
    (asked,) = _asked(call)
    rules = READ_BY if call.rule is None else (call.rule,)
    found = gaps(replays, [replace(asked, rule=name) for name in rules])
    table = write_gap(found, folder, (_cost(call),))
    print_table(console, table)
    for note in (_cost(call), *found.notes):
        console.print(Text(note, style="dim"))


def _cost(call: ReplayCall) -> str:
    return FITTED_COST if call.price == FITTED else f"A round costs what {call.price} says."


def _records(replays: Replays, asked: Sequence[ReplayRequest]) -> tuple[list[Record], list[str]]:
    """The records of what was asked for of each generation, and why there is none of others."""
    records: list[Record] = []
    notes: dict[str, int] = {}
    for request in asked:
        for generation in replays.drafting if request.rules else replays.drafted:
            refuse_foreign(request.values, generation)
            try:
                records.append(replays.replay(generation, request))
            except UserError as error:
                notes[str(error)] = notes.get(str(error), 0) + 1
    if not records and notes:
        raise UserError(next(iter(notes)))
    return records, [f"{counted(count, 'answer')} left out: {why}" for why, count in notes.items()]


def _show(
    call: ReplayCall, console: Console, out: Path | None, records: Sequence[Record], notes: Sequence[str]
) -> None:
    """The rows as a report's summary has them, without verdicts; and the results file."""
    if out is not None:
        with Store(out, columns()) as store:
            for record in records:
                store.append(row(record))
    summary = summarise(frame_of(records))
    computed = summary["configuration"].str.startswith((REPLAYED, BOUND))
    summary.loc[computed, "against_ar"] = UNTESTED
    summary.loc[computed, ["p", "p_holm", "effect"]] = float("nan")
    summary.loc[computed, "method"] = BOUND_METHOD
    notes_shown = [f"{NOTE} {_cost(call)}", *([ABOUT] if call.bounds else []), *notes]
    print_summary(console, summary, (), bounds=tuple(notes_shown))


def _loaded(call: ReplayCall, price: CostModel | None) -> Replays:
    """What the trace holds. Raises `UserError` where a method is not in it."""
    wanted = None if call.methods is None else {name.strip() for name in call.methods.split(",")}
    replays = Replays(read_generations(call.trace), price, call.batch, wanted)
    known = dict.fromkeys(generation.record.method for generation in replays.generations)
    if unknown := sorted((wanted or set()) - known.keys()):
        raise UserError(f"--methods {quoted(unknown[0])} given; the trace holds {', '.join(known)}")
    if not replays.drafted:
        raise UserError(f"{str(call.trace)!r} holds no generation to replay; expected one with drafts")
    return replays


def _asked(call: ReplayCall) -> list[ReplayRequest]:
    """What to replay: each length with each number of nodes, under one rule. Raises `UserError`."""
    values: dict[str, Any] = {}
    for text in call.assignments:
        name, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--set {quoted(text)} given; expected NAME=VALUE")
        values[PARAMETERS[name].name] = PARAMETERS[name].parse(value)
    if call.rule is not None:
        CONTROLLERS[call.rule]
        if call.gammas is not None:
            raise UserError("--rule and --gamma: expected one of them; --rule fixed is a gamma")
    gammas = _numbers("--gamma", call.gammas, 0)
    nodes = _numbers("--tree-tokens", call.nodes, 1)
    return [ReplayRequest(call.rule, gamma, node, values, call.bounded) for gamma in gammas for node in nodes]


def _numbers(option: str, text: str | None, least: int) -> list[int | None]:
    """Example: "1,2" -> [1, 2]; None -> [None]."""
    if text is None:
        return [None]
    numbers = [(part, read_integer(part.strip())) for part in text.split(",")]
    for part, number in numbers:
        if number is None or number < least:
            raise wrong_value(option, part, f"integers of {least} or more between commas")
    return [number for _, number in numbers]


def _price(text: str) -> CostModel | None:
    """The price in a file; None for `fitted`. Raises `UserError` for a file that holds none."""
    if text == FITTED:
        return None
    path = checked_path(text, "--price")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        forward = tuple((int(rows), float(seconds)) for rows, seconds in content["forward"])
        first_s, step_s, rest_s = (float(content[name]) for name in ("first_s", "step_s", "rest_s"))
        rows, taken = [count for count, _ in forward], [seconds for _, seconds in forward]
        if not rows or rows[0] < 1 or rows != sorted(set(rows)) or taken != sorted(taken) or not taken[0] > 0:
            raise ValueError("rows that ascend, with seconds above 0 that never fall, are wanted")
        if (
            not all(math.isfinite(number) for number in (*taken, first_s, step_s, rest_s))
            or min(first_s, step_s, rest_s) < 0
        ):
            raise ValueError("seconds of 0 or more are wanted")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"--price {text!r}: {error!r}; expected fitted, or a file with "
            '{"forward": [[rows, seconds], ...], "first_s": ..., "step_s": ..., "rest_s": ...}'
        ) from None
    return CostModel(forward, first_s, step_s, rest_s)


def _expected(replays: Replays, strategy: str) -> Table:
    """What a strategy would accept of the recorded drafts, beside what was accepted."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    heads = ("configuration", "processor", "rounds", "tokens a round", f"expected under {strategy}", "tok/s expected")
    for head in heads:
        table.add_column(head, justify="left" if head in heads[:2] else "right")
    groups: dict[tuple[str, str], list[Generation]] = {}
    for drafted in replays.drafted:
        groups.setdefault((drafted.record.configuration, drafted.record.settings["processor"]), []).append(drafted)
    for (name, processor), several in groups.items():
        visits = [visit for generation in several for visit in generation.visits]
        expected = sum(expected_accepted(strategy, v.p, v.q, v.ahead.parents) for v in visits) + len(visits)
        emitted, seconds = (
            sum(v.emitted for v in visits),
            sum(generation.record.decode_s or 0.0 for generation in several),
        )
        cells = (name, processor, str(len(visits)), f"{emitted / len(visits):.2f}", f"{expected / len(visits):.2f}")
        table.add_row(*map(Text, (*cells, f"{expected / seconds:.1f}" if seconds else "-")))
    return table

"""A results file while it is written: whole rows, one writer, and going on where an earlier run stopped."""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TextIO

from ablation.plan.grid import Plan, RowKey
from ablation.plan.traced import Traced
from ablation.results import manifest
from ablation.results.hosts import machine_of, name_host
from ablation.results.merge import plan_order
from ablation.results.record import Record
from ablation.results.sense import first_wrong_of
from ablation.results.store import Store
from ablation.results.table import columns, key, row
from ablation.results.traces.full_trace import tracer
from ablation.results.traces.trace import Tracer, is_trace, trace_path
from ablation.run.execute import PlayedRow
from ablation.run.job import JobOutcome
from ablation.run.maker import RowMaker
from sampling.loading.options import WEIGHTS
from sampling.measure.quality import Quality
from sampling.methods.tables import AR
from utils.errors import UserError
from utils.files import checked_path
from utils.provenance import HOST

_ROW_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Files:
    """The results file and those beside it; a link counts as the file that it leads to."""

    given: Path

    @property
    def results(self) -> Path:
        return self.given.resolve()

    @property
    def manifest(self) -> Path:
        return manifest.manifest_path(self.results)

    @property
    def trace(self) -> Path:
        return trace_path(self.results)


@dataclass
class ResultsFile:
    """The rows of a plan; enter it, then let a `PlanJob` write into it.

    Entering locks the file and checks that it may go on with it; nothing of an earlier run is lost by then.
    retry_failed: whether failed rows, and what was compared with a failed one, are played again: they are dropped when
    everything is warmed up, and stand where the plan has them at the end. `retried`: how many those are.
    """

    maker: RowMaker
    plan: Plan
    name: str
    files: Files
    command: str
    resume: bool = False
    trace: Traced = False
    retry_failed: bool = False
    done: Mapping[RowKey, PlayedRow] = field(init=False)
    retried: int = field(default=0, init=False)
    _kept: list[dict[str, str]] = field(default_factory=list, init=False)
    _host: str | None = field(default=None, init=False)
    _begun: bool = field(default=False, init=False)

    def __enter__(self) -> Self:
        self._refuse_foreign()
        self._store = Store(self.files.results, columns()).__enter__()
        try:
            rows = self._store.rows if self.resume else []
            if wrong := first_wrong_of(rows):
                raise UserError(f"{str(self.files.results)!r}, record {wrong[0] + 2}: {wrong[1]}; it was left alone")
            rows = rows[: whole_batches(self.plan, [key(cells) for cells in rows])]
            self._kept = without_failed(self.plan, rows) if self.retry_failed else rows
            self.retried = len(rows) - len(self._kept)
            self.done = {key(cells): PlayedRow(cells["text"], cells["error"] or None) for cells in self._kept}
            self._manifest = self.maker.describe(self.plan, self.name)
            if rows:
                self._go_on(rows)
            self._check_room()
        except BaseException:
            self._store.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._store.__exit__(*exc)

    @contextmanager
    def writing(self, outcome: JobOutcome) -> Iterator[Tracer]:
        """Put this run into the manifest, drop what it replaces, and open the trace; at its end, say how it went."""
        run: dict[str, Any] = {"command": self.command, "start": manifest.now(), "end": None, "rows": 0}
        run["choices"] = dict(self.maker.choices())
        self._manifest["runs"].append(run)
        if len(self._manifest.get("hosts", ())) < 2:
            manifest.add_profiles(self._manifest, self.maker.profiles(self.plan))
        if not self.resume:
            # Only now, when everything has been loaded and warmed up; without rows an old manifest is not read.
            self._store.clear()
            self.files.trace.unlink(missing_ok=True)
        elif len(self._kept) < len(self._store.rows):
            self._store.keep(self._kept)
        manifest.write(self.files.manifest, self._manifest)
        self._begun = True
        try:
            with self._trace_file() as file, closing(tracer(file, self.trace)) as trace_writer:
                yield trace_writer
            if self.retried or self._host is not None:
                self.sort()
        finally:
            overhead = outcome.overhead
            run |= {
                "end": manifest.now(),
                "rows": outcome.rows,
                "failed": outcome.failed,
                "stopped": outcome.stopped,
                "overhead": None if overhead is None else round(overhead, 4),
            }
            manifest.write(self.files.manifest, self._manifest)

    def add(self, *records: Record) -> None:
        """Write rows, in one piece; they are on the disk when this returns."""
        if self._host is not None:
            records = tuple(replace(record, host=self._host) for record in records)
        self._store.append(*map(row, records))

    def add_host(self, name: str, machine: Any) -> str:
        """What rows call a machine; the manifest holds it from when this run is put into it, or at once after that."""
        hosts = self._manifest["hosts"]
        known = len(hosts)
        called = name_host(hosts, name, machine)
        if len(hosts) > known:
            self._manifest["fixed"]["machine"] = machine_of(hosts)
            if known:  # what rounds cost is one machine's
                self._manifest.pop("profile", None)
            if self._begun:
                manifest.write(self.files.manifest, self._manifest)
        return called

    def sort(self) -> None:
        """Put all rows into the plan's order."""
        self._store.sort(plan_order(self._manifest["fixed"]["grid"]))

    def unknown_quality(self) -> tuple[str, ...]:
        """The rounded formats of the plan of which the manifest does not say what they cost in quality."""
        known = (WEIGHTS[0], *manifest.qualities(self._manifest))
        return tuple(name for name in self.plan.formats if name not in known)

    def add_quality(self, by_format: Mapping[str, Quality]) -> None:
        """Note it by the format's name, for the manifest that is written with the first row."""
        for name, quality in by_format.items():
            manifest.add_quality(self._manifest, name, quality)

    def _go_on(self, rows: Sequence[Mapping[str, str]]) -> None:
        """Take the manifest of the file. Raises `UserError` where this run's rows would not compare with its own.

        Where those name their hosts, as the file is Ray's or of merged shards, this machine is one more.
        """
        path = str(self.files.results)
        if twice := len(rows) - len({key(cells) for cells in rows}):
            raise UserError(f"{path!r} holds {twice} rows twice; it was left alone")
        if not self.files.manifest.is_file():
            raise UserError(f"{path!r} has rows but no manifest beside it: what they were made with is not known")
        old, new = manifest.read(self.files.manifest), self._manifest
        manifest.refuse_other(old, new)
        self._manifest = old | {"compare": new["compare"]}  # a question to the rows, which changes none
        if "hosts" in old and "hosts" not in new:
            self._host = self.add_host(HOST, json.loads(json.dumps(new["fixed"]["machine"])))

    def _refuse_foreign(self) -> None:
        """Files beside the results that are none of ours stay."""
        if self.files.manifest.exists():
            manifest.read(self.files.manifest)
        if self.files.trace.exists() and not is_trace(self.files.trace):
            raise UserError(
                f"{str(self.files.trace)!r} exists and is not a trace; it was left alone. Choose another --out"
            )

    def _check_room(self) -> None:
        missing = self.plan.generations - len(self.done)
        free, need = shutil.disk_usage(self.files.results.parent).free, missing * _ROW_BYTES
        if free < need:
            raise UserError(
                f"{str(self.files.results)!r} needs about {need / 1e6:.1f} MB, the disk has {free / 1e6:.1f} MB left; "
                "choose an --out on another disk"
            )

    def _trace_file(self) -> AbstractContextManager[TextIO | None]:
        """The trace to add to: rounds of rows that are not there are dropped, they will be run again."""
        if not self.trace:
            return nullcontext()
        path = self.files.trace
        scratch = path.with_name(f".{path.name}.new")
        try:
            with scratch.open("w", encoding="utf-8") as file:
                file.writelines(line for line in _lines(path) if _line_key(line) in self.done)
            scratch.replace(path)
            return path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise UserError(f"{str(path)!r} cannot be written: {error.strerror or error}") from None


def check_output(results: Path, resume: bool, overwrite: bool) -> None:
    """Raises `UserError`, before anything is loaded, where the results could not be written."""
    if resume and overwrite:
        raise UserError("--resume and --overwrite: expected one of them")
    checked_path(str(results), "--out")
    if results.is_dir():
        raise UserError(
            f"--out {str(results)!r} is a folder; expected a file, such as {str(results / 'results.csv')!r}"
        )
    if results.suffix != ".csv":
        raise UserError(f"--out {str(results)!r} given; expected a file that ends in .csv")
    if not results.parent.is_dir():
        raise UserError(f"--out {str(results)!r}: there is no folder {str(results.parent)!r}")
    if results.is_file() and not is_results(results):
        raise UserError(f"{str(results)!r} exists and is not a results file; it was left alone. Choose another --out")
    if results.exists() and not (resume or overwrite):
        raise UserError(
            f"{str(results)!r} exists; give --resume to continue it, --overwrite to replace it, or another --out"
        )


def whole_batches(plan: Plan, keys: Sequence[RowKey]) -> int:
    """How many rows, from the first, belong to batches that are whole: the rest is played again, batch by batch."""
    if not plan.loads:
        return len(keys)
    texts: Counter[tuple[int, int, str, str]] = Counter()
    for each_pass in plan.passes():
        for _, prompt in plan.played(each_pass):
            repeat, seed, processor, _ = plan.unit(each_pass, prompt)
            texts[repeat, seed, processor, each_pass.task] += len(prompt.turns)
    batches = _batches(plan, keys)
    counts = Counter(batches)
    short = (
        place
        for place, batch in enumerate(batches)
        if counts[batch] < texts[batch.repeat, batch.seed, batch.processor, batch.id]
    )
    return next(short, len(keys))


def _batches(plan: Plan, keys: Iterable[RowKey]) -> list[RowKey]:
    """For each row what all texts of its batch have in common; in place of an id stands the task of a pass."""
    tasks = {str(prompt.id): plan.task_of(prompt) for prompt in plan.prompts}
    return [row_key._replace(id=tasks.get(row_key.id, ""), turn=0) for row_key in keys]


def without_failed(plan: Plan, rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """The rows that need not be played again: none that failed, none that was compared with a reference that did.

    At a load a batch is played as a whole.
    """
    keys = [key(cells) for cells in rows]
    failed = {row_key for row_key, cells in zip(keys, rows, strict=True) if cells["error"]}
    unmeasured = {row_key._replace(configuration="") for row_key in failed if row_key.configuration == AR}
    again = {row_key for row_key in keys if row_key in failed or row_key._replace(configuration="") in unmeasured}
    if plan.loads:
        batches = {*_batches(plan, again)}
        again = {row_key for row_key, batch in zip(keys, _batches(plan, keys), strict=True) if batch in batches}
    return [cells for row_key, cells in zip(keys, rows, strict=True) if row_key not in again]


def is_results(path: Path) -> bool:
    """Whether a file is empty or begins as results do, in this version or another."""
    with path.open("rb") as file:
        head = file.read(64)
    return not head or ",".join(columns()).encode().startswith(head.split(b"\n")[0])


def _lines(path: Path) -> Iterator[str]:
    """The whole lines of a trace."""
    if path.is_file():
        with path.open(encoding="utf-8") as file:
            yield from (line for line in file if line.endswith("\n"))


def _line_key(line: str) -> RowKey | None:
    try:
        return key(json.loads(line))
    except (ValueError, KeyError, TypeError):
        return None

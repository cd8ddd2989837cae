"""Mutation testing: does the suite see a small change of the code that decides results?

uv run --group mutation scripts/mutate.py follow [--tests DIR...]
uv run --group mutation scripts/mutate.py plant [--count 400] [--seed 0] [--only PART]
uv run --group mutation scripts/mutate.py again

`follow` runs the tests once and notes which of them pass each line, and how long they take. `plant` draws changes at
random (cosmic-ray's operators), runs for each the tests that pass its line, the quickest first, and writes what nobody
caught to scripts/mutants/survivors.jsonl; `again` plants those once more. A change that is no fault is listed with its
reason in scripts/mutants/equal.toml, by its lines or by a pattern, and is not counted. What is changed, and by which
tests it is to be seen, says scripts/mutants/scope.toml. A test run is a fork of a process that has imported the
libraries, in which the changed module is imported from memory: no file is touched.
"""

import json
import os
import random
import re
import signal
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from tests.mutation import (
    FORKS,
    ROOT,
    UNCHANGED,
    Mutant,
    Place,
    Planted,
    Timing,
    mutant_at,
    places_of,
    preload,
    pytest_in_fork,
    source_of,
)

FOLDER = Path(__file__).resolve().parent / "mutants"
SURVIVORS = FOLDER / "survivors.jsonl"
SEEN = ROOT / ".mutation" / "lines.json"

SCOPE = tomllib.loads((FOLDER / "scope.toml").read_text(encoding="utf-8"))
"""What is changed, and the tests that are to see it."""
CONTROLS = 20
MOST_S = 180.0
FIRST_S, ENOUGH_S = 8.0, 30.0
"""Seconds of tests that every change meets, and that a change meets which they do not see."""
LONGEST_STATEMENT = 12


Passed = Mapping[str, Mapping[str, Sequence[tuple[float, str]]]]
"""By file and line the tests that pass it, each with its seconds."""


def files() -> list[Path]:
    """The sources that are changed."""
    return sorted({path for pattern in SCOPE["sources"] for path in ROOT.glob(pattern) if path.name != "__init__.py"})


@cache
def _known() -> dict[str, list[dict[str, str]]]:
    """The changes that are no faults: by their lines (`mutant`), and by what they differ in (`pattern`)."""
    known: dict[str, list[dict[str, str]]] = tomllib.loads((FOLDER / "equal.toml").read_text(encoding="utf-8"))
    return known


def is_no_fault(mutant: Mutant) -> bool:
    """Whether a change is known to be none: it is listed, or differs in what a listed pattern stands for alone."""
    known = _known()
    if any(
        (mutant.file, mutant.before, mutant.after) == (entry["file"], entry["before"], entry["after"])
        for entry in known["mutant"]
    ):
        return True
    before, after = mutant.before, mutant.after
    for pattern in known["pattern"]:
        before, after = (re.sub(pattern["regex"], "", line) for line in (before, after))
    return "".join(before.split()) == "".join(after.split())


app = typer.Typer(help=__doc__, no_args_is_help=True)


@app.command()
def follow(
    tests: Annotated[list[str] | None, typer.Option(help="files and folders of tests")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="processes")] = os.cpu_count() or 1,
) -> None:
    """Run the tests once, and note which of them pass each line."""
    preload()
    places = [path for place in tests or SCOPE["tests"] for path in ROOT.glob(place)]
    chosen = sorted(path for place in places for path in ([place] if place.is_file() else place.rglob("test_*.py")))
    SEEN.parent.mkdir(exist_ok=True)
    parts = [SEEN.parent / f"part{job}.json" for job in range(jobs)]
    children = []
    for job, part in enumerate(parts):
        child = os.fork()
        if not child:
            _follow([str(path) for path in chosen[job::jobs]], part)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    seen: dict[str, dict[str, list[tuple[float, str]]]] = defaultdict(lambda: defaultdict(list))
    for part in parts:
        for file, by_line in json.loads(part.read_text()).items():
            for line, passed in by_line.items():
                seen[file][line] += passed
    SEEN.write_text(json.dumps(seen))
    typer.echo(f"{sum(map(len, seen.values())):,} lines of {len(seen)} files are passed")


def _follow(chosen: list[str], part: Path) -> None:
    import coverage
    import pytest

    sources = [str(path) for path in files()]
    followed = coverage.Coverage(data_file=None, include=sources, config_file=False)
    timing = Timing(followed)
    followed.start()
    with Path(f"{part}.log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        pytest.main([*chosen, "-q", "-p", "no:cacheprovider", "-p", "no:xdist"], plugins=[timing])
    followed.stop()
    data, by_file = followed.get_data(), dict[str, dict[str, list[tuple[float, str]]]]()
    for path in sources:
        by_line = {
            str(line): [(timing.seconds[name], name) for name in names if name]
            for line, names in data.contexts_by_lineno(path).items()
        }
        by_file[str(Path(path).relative_to(ROOT))] = by_line
    part.write_text(json.dumps(by_file))
    os._exit(0)


@app.command()
def plant(
    count: Annotated[int, typer.Option(min=1, help="changes")] = 400,
    seed: Annotated[int, typer.Option(help="of the draw")] = 0,
    only: Annotated[str, typer.Option(help="files whose path has this in it")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="processes")] = os.cpu_count() or 1,
) -> None:
    """Change the code at random places, and see which tests fail."""
    every = [place for path in files() if only in str(path) for place in places_of(path)]
    drawn = [*islice(_drawn(random.Random(seed).sample(every, len(every))), count)]
    _plant(drawn, jobs, {f"of {len(every):,} places": FIRST_S, "more tests": ENOUGH_S})


@app.command()
def again(jobs: Annotated[int, typer.Option(min=1, help="processes")] = os.cpu_count() or 1) -> None:
    """Plant what survived once more, behind new tests or a change of the code elsewhere in its file."""
    known = [Mutant(**json.loads(line)) for line in SURVIVORS.read_text().splitlines()]
    kinds = {(mutant.file, mutant.operator) for mutant in known}
    places = [place for file in sorted({file for file, _ in kinds}) for place in places_of(ROOT / file)]
    places = [place for place in places if place[:2] in kinds]
    drawn = [mutant for mutant in _drawn(places) if any(_same(mutant, other) for other in known)]
    _plant(drawn, jobs, {f"of {len(known)} that survived": ENOUGH_S})


def _same(mutant: Mutant, other: Mutant) -> bool:
    """Whether two changes make the same of the same line, wherever it stands."""
    return (mutant.file, mutant.before, mutant.after) == (other.file, other.before, other.after)


def _plant(drawn: Sequence[Mutant], jobs: int, turns: Mapping[str, float]) -> None:
    """Plant these changes, in each turn those that survived so far, and write down those that nobody caught.

    turns: seconds of tests that a change meets, by what is shown meanwhile.
    """
    if not drawn:
        raise typer.BadParameter("there is nothing to plant: no change survived, or each is listed as no fault")
    if not SEEN.is_file():
        raise typer.BadParameter(f"{SEEN.relative_to(ROOT)} is missing; expected a run of `scripts/mutate.py follow`")
    seen = json.loads(SEEN.read_text())
    preload()
    control = [replace(mutant, operator=UNCHANGED) for mutant in drawn[:CONTROLS]]
    with Progress(auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as progress:  # no thread: it forks
        for turn in ("control", "control again"):
            sound = _survivors(control, _tests(control, seen, FIRST_S), jobs, progress, turn)
            control = [mutant for mutant in control if mutant not in sound]
        if control:
            raise typer.BadParameter(f"without a change tests fail on {control[0].file}; see {FORKS}")
        survived = [*drawn]
        for turn, most_s in turns.items():
            survived = _survivors(survived, _tests(survived, seen, most_s), jobs, progress, turn)
    lines = [json.dumps(asdict(mutant)) for mutant in sorted(survived, key=lambda mutant: (mutant.file, mutant.line))]
    SURVIVORS.write_text("".join(f"{line}\n" for line in lines))
    caught = len(drawn) - len(survived)
    typer.echo(f"{caught} of {len(drawn)} caught ({caught / len(drawn):.1%}); {len(survived)} survive")


def _drawn(places: Sequence[Place]) -> Iterator[Mutant]:
    """The changes of these places, but for those that are known to be no fault."""
    for place in places:
        mutant = mutant_at(*place)
        if mutant is not None and not is_no_fault(mutant):
            yield mutant


def _survivors(
    drawn: Sequence[Mutant], tests: Mapping[Mutant, Sequence[str]], jobs: int, progress: Progress, title: str
) -> list[Mutant]:
    """The changes that their tests do not see; one that brings tests to a halt is seen."""
    waiting, running, survived = [*drawn][::-1], dict[int, tuple[Mutant, Sequence[str], float]](), list[Mutant]()
    task = progress.add_task(title, total=len(waiting))
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            running[_begin(mutant, tests[mutant])] = mutant, tests[mutant], time.monotonic() + MOST_S
        for child, (mutant, names, until) in list(running.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            if not ended and time.monotonic() > until:
                os.killpg(child, signal.SIGKILL)
                ended, status = os.waitpid(child, 0)
            if not ended:
                continue
            del running[child]
            log = (FORKS / f"{child}.log").read_text(encoding="utf-8", errors="replace")
            missing = {name.removeprefix(f"{ROOT}/") for name in _NOT_FOUND.findall(log)}
            if missing & {*names}:
                left = [name for name in names if name not in missing]
                running[_begin(mutant, left)] = mutant, left, time.monotonic() + MOST_S
                continue
            progress.advance(task)
            progress.refresh()
            name = f"{mutant.file.replace('/', '.')}-{mutant.line}-{mutant.operator}-{mutant.occurrence}"
            (FORKS / f"{child}.log").replace(FORKS / f"{name}-{status}.log")
            if status == 0:
                survived.append(mutant)
        time.sleep(0.02)
    return survived


_NOT_FOUND = re.compile(r"^ERROR: not found: (.*)$", re.MULTILINE)
"""A test whose parameters the change renames: it says nothing about it."""


def _begin(mutant: Mutant, names: Sequence[str]) -> int:
    """The process that runs the tests of a change; one without tests survives."""
    module = mutant.file.removesuffix(".py").replace("/", ".")
    if not names:
        return pytest_in_fork(["--version"], None)
    return pytest_in_fork(
        ["-x", *names], Planted(module, ROOT / mutant.file, source_of(mutant.file, mutant.operator, mutant.occurrence))
    )


def _tests(mutants: Sequence[Mutant], seen: Passed, most_s: float) -> dict[Mutant, list[str]]:
    """By change the tests that pass its line, so many seconds of them, the quickest first.

    Where time is for more than the first ones, those begin that compare all numbers of something with what they were.
    """
    chosen = dict[Mutant, list[str]]()
    for mutant in mutants:
        passing = {name: took for took, name in sorted(_passing(mutant, seen.get(mutant.file, {})), reverse=True)}
        recorded = [name for name in passing if "test_recorded" in name and most_s > FIRST_S]
        names, seconds = list[str](), 0.0
        for name, took in reversed(passing.items()):
            if seconds < most_s and name not in recorded:
                names.append(name)
                seconds += took
        chosen[mutant] = [*recorded, *names]
    return chosen


def _passing(mutant: Mutant, by_line: Mapping[str, Sequence[tuple[float, str]]]) -> list[tuple[float, str]]:
    """The tests that pass a line, or where its statement begins.

    Of what imports pass: those that look at what imports leave, and those that pass the file anywhere.
    """
    for line in range(mutant.line, max(0, mutant.line - LONGEST_STATEMENT), -1):
        if str(line) in by_line:
            if passed := by_line[str(line)]:
                return [(seconds, name) for seconds, name in passed]
            break
    anywhere = [(seconds, name) for passed in by_line.values() for seconds, name in passed]
    return [*((0.0, name) for name in SCOPE["imports"]), *anywhere]


if __name__ == "__main__":
    app()

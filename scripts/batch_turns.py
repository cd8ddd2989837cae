"""What a method in a batch costs and brings, round by round beside plain decoding, for machines that are not quiet.

uv run scripts/batch_turns.py [--format int8] [--texts 8] [--prompts dialogue] [--length 32]
    [--processor "nucleus 0.9 0.8"] [--methods "mtp gamma=2, auto max_cached_requests=0 survival_remember=off"]

Every batch plays one round in turn, so what slows the machine for a second falls on a method and on the plain rounds
beside it. The speedup is tokens a round and text over the ratio of all seconds, without the pairs of rounds in which
either took over three times its median.
"""

import utils.device.threads  # noqa: F401

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ablation.plan.choice import choose_runs
from ablation.plan.prompts.sets import find_sources, gather
from sampling.batch import Batch
from sampling.engine import Text
from sampling.loading.options import WEIGHTS
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.measure.times.profiling import ensure_profile
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from utils.errors import UserError
from utils.events import Round

METHODS = "mtp gamma=2, auto max_cached_requests=0 survival_remember=off"
WARM_UP = 4
_STOPPED = 3.0

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass
class Played:
    """The rounds of one method, over all passes. seconds: of each, and of the plain round beside it."""

    asked: str
    seconds: list[tuple[float, float]] = field(default_factory=list)
    texts: int = 0
    tokens: int = 0
    drafts: int = 0
    by: Counter[str] = field(default_factory=Counter)

    def add(self, rounds: list[Round], seconds: float, plain_s: float) -> None:
        """Count a round of all texts."""
        self.texts += len(rounds)
        self.tokens += sum(len(round.emitted) for round in rounds)
        self.drafts += sum(len(round.drafts) for round in rounds)
        self.by.update(round.source for round in rounds if round.source)
        self.seconds.append((seconds, plain_s))

    def ratio(self) -> float:
        """All seconds over those of the plain rounds beside, but for what stopped the machine."""
        taken = np.array(self.seconds)
        kept = taken[(taken < _STOPPED * np.median(taken, axis=0)).all(axis=1)].sum(axis=0)
        return float(kept[0] / kept[1])

    def cells(self) -> tuple[str, ...]:
        """A row of the table."""
        tokens, ratio = self.tokens / self.texts, self.ratio()
        by = ", ".join(f"{name} {100 * count / self.texts:.0f} %" for name, count in self.by.most_common(3))
        numbers = (tokens, self.drafts / self.texts, ratio, tokens / ratio)
        return self.asked, *(f"{number:.2f}" for number in numbers), by


def play(batch: Batch) -> tuple[list[Round], float]:
    """The rounds of all texts, and their seconds."""
    begun = perf_counter()
    events = batch.play()
    return [event for _, event in events if isinstance(event, Round)], perf_counter() - begun


def one_pass(batches: dict[str, Batch], found: dict[str, Played], plain: str) -> None:
    """Play a round of each batch in turn until a text of one is over; the order turns round by round."""
    order, texts = [*batches], len(batches[plain].texts)
    while all(len(batch.texts) == texts for batch in batches.values()):
        taken = {name: play(batches[name]) for name in order}
        order.reverse()
        if all(len(rounds) == texts for rounds, _ in taken.values()):  # elsewhere prompts are read
            for name, (rounds, seconds) in taken.items():
                found[name].add(rounds, seconds, taken[plain][1])


@app.command(help=__doc__)
def main(
    format: Annotated[str, typer.Option(help=f"weights of the target: {', '.join(WEIGHTS)}")] = "int8",
    texts: Annotated[int, typer.Option(min=1, help="texts at a time")] = 8,
    prompts: Annotated[str, typer.Option(help="a set of prompts, or a file")] = "dialogue",
    length: Annotated[int, typer.Option(min=8, help="new tokens of a text")] = 32,
    processor: Annotated[str, typer.Option(help='such as "nucleus 0.9 0.8"')] = "greedy",
    passes: Annotated[int, typer.Option(min=1, help="how often all texts are written")] = 2,
    methods: Annotated[str, typer.Option(help="methods between commas, each with values of its own")] = METHODS,
) -> None:
    """Print a row for each method."""
    if format not in WEIGHTS:
        raise typer.BadParameter(f"format {format!r} given; expected of {', '.join(WEIGHTS)}")
    try:
        run(format, texts, prompts, passes, methods, {"length": str(length), "processor": processor})
    except UserError as error:
        raise typer.BadParameter(str(error)) from None


def run(format: str, texts: int, prompts: str, passes: int, methods: str, common: dict[str, str]) -> None:
    """Play all methods, and print the table."""
    settings = Settings()
    settings.assign_all(common.items())
    runs = {run.name: run for run in choose_runs(f"target, {methods}", settings)}
    written = [prompt.turns[0] for prompt in gather(find_sources([prompts], Path.cwd()))][:texts]
    engine = PairEngine(load_pair(LoadOptions(target_weights=format))).in_format(format)
    ensure_profile(engine)
    ids = [engine.tokenise([text], True) for text in written]

    def begun(one: str) -> Batch:
        method, values = runs[one].method, {**settings, **dict(runs[one].parameters)}
        batch = engine.batch(method, values, len(ids), one)
        for number, prompt in enumerate(ids):
            batch.admit(engine.request(method, values, Text(number, prompt, values["length"])))
        return batch

    for one in track(runs, "warming up", console=Console(stderr=True), transient=True):
        batch = begun(one)
        for _ in range(WARM_UP):
            batch.play()
    found = {one: Played(one) for one in runs}
    for _ in track(range(passes), "playing", console=Console(stderr=True), transient=True):
        one_pass({one: begun(one) for one in runs}, found, "target")
    table = Table("method", "tokens a round", "drafts", "round over plain", "speedup", "rounds by drafter")
    for played in found.values():
        table.add_row(*played.cells())
    Console(width=120).print(table)


if __name__ == "__main__":
    app()

"""What a method in a batch costs and brings, round by round beside plain decoding, for machines that are not quiet.

uv run scripts/batch_turns.py [--format int8] [--texts 8] [--prompts dialogue] [--length 32]
    [--processor "nucleus 0.9 0.8"] [--methods "mtp gamma=2; auto max_cached_requests=0,survival_remember=off"]

Every batch plays one round in turn. A round is compared with the plain round beside it, so what slows the machine for a
second falls on both. The speedup is tokens a round and text over the mean ratio, without its tenth at either end.
"""

import utils.device.threads  # noqa: F401

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import trim_mean

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

METHODS = "mtp gamma=2; auto max_cached_requests=0,survival_remember=off"
WARM_UP = 4

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass
class Played:
    """The rounds of one method, over all passes. ratios: its seconds over those of the plain round beside it."""

    asked: str
    ratios: list[float] = field(default_factory=list)
    texts: int = 0
    tokens: int = 0
    drafts: int = 0
    by: Counter[str] = field(default_factory=Counter)

    def add(self, rounds: list[Round], ratio: float) -> None:
        """Count a round of all texts."""
        self.texts += len(rounds)
        self.tokens += sum(len(round.emitted) for round in rounds)
        self.drafts += sum(len(round.drafts) for round in rounds)
        self.by.update(round.source for round in rounds if round.source)
        self.ratios.append(ratio)

    def cells(self) -> tuple[str, ...]:
        """A row of the table."""
        tokens, ratio = self.tokens / self.texts, float(trim_mean(self.ratios, 0.1))
        by = ", ".join(f"{name} {100 * count / self.texts:.0f} %" for name, count in self.by.most_common(3))
        numbers = (tokens, self.drafts / self.texts, ratio, tokens / ratio)
        return self.asked, *(f"{number:.2f}" for number in numbers), by


def settings_of(asked: str, common: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """The method and all settings of `NAME SETTING=VALUE,...`."""
    name, _, values = asked.partition(" ")
    settings = Settings()
    settings.assign_all({**common, **dict(value.split("=", 1) for value in values.split(",") if value)}.items())
    return name, {**settings}


def play(batch: Batch) -> tuple[list[Round], float]:
    """The rounds of all texts, and their seconds."""
    begun = perf_counter()
    events = batch.play()
    return [event for _, event in events if isinstance(event, Round)], perf_counter() - begun


def one_pass(batches: dict[str, Batch], found: dict[str, Played], plain: str) -> None:
    """Play a round of each batch in turn until one of them is over; the order turns round by round."""
    order = [*batches]
    while all(batches[name].texts for name in batches):
        taken = {name: play(batches[name]) for name in order}
        order.reverse()
        if all(rounds for rounds, _ in taken.values()):  # elsewhere prompts are read
            for name, (rounds, seconds) in taken.items():
                found[name].add(rounds, seconds / taken[plain][1])


@app.command(help=__doc__)
def main(
    format: Annotated[str, typer.Option(help=f"weights of the target: {', '.join(WEIGHTS)}")] = "int8",
    texts: Annotated[int, typer.Option(min=1, help="texts at a time")] = 8,
    prompts: Annotated[str, typer.Option(help="a set of prompts, or a file")] = "dialogue",
    length: Annotated[int, typer.Option(min=8, help="new tokens of a text")] = 32,
    processor: Annotated[str, typer.Option(help='such as "nucleus 0.9 0.8"')] = "greedy",
    passes: Annotated[int, typer.Option(min=1, help="how often all texts are written")] = 2,
    methods: Annotated[str, typer.Option(help="methods with their settings, between semicolons")] = METHODS,
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
    asked = ["target", *(method.strip() for method in methods.split(";"))]
    runs = {one: settings_of(one, common) for one in asked}
    written = [prompt.turns[0] for prompt in gather(find_sources([prompts], Path.cwd()))][:texts]
    engine = PairEngine(load_pair(LoadOptions(target_weights=format))).in_format(format)
    ensure_profile(engine)
    ids = [engine.tokenise([text], True) for text in written]

    def begun(one: str) -> Batch:
        name, values = runs[one]
        batch = engine.batch(name, values, len(ids), one)
        for number, prompt in enumerate(ids):
            batch.admit(engine.request(name, values, Text(number, prompt, values["length"])))
        return batch

    for one in track(asked, "warming up", console=Console(stderr=True), transient=True):
        batch = begun(one)
        for _ in range(WARM_UP):
            batch.play()
    found = {one: Played(one) for one in asked}
    for _ in track(range(passes), "playing", console=Console(stderr=True), transient=True):
        one_pass({one: begun(one) for one in asked}, found, asked[0])
    table = Table("method", "tokens a round", "drafts", "round over plain", "speedup", "rounds by drafter")
    for played in found.values():
        table.add_row(*played.cells())
    Console(width=120).print(table)


if __name__ == "__main__":
    app()

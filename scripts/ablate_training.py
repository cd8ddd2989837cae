"""What choices of a training are worth: drafters that learn from as much data for as long, and how far each drafts."""

import utils.device.threads  # noqa: F401

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablation.commands.shared.checked import run_checked
from ablation.commands.shared.options import exit_statuses
from ablation.plan.prompts.file import read_prompts
from ablation.run.progress.bar import told
from sampling.heads.config import OUTPUT_RANKS
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.methods.settings import Settings
from sampling.methods.tables import HEADS
from sampling.pair.pair_engine import PairEngine
from scripts.train_drafter import (
    CANDIDATES,
    BatchTokens,
    Epochs,
    Given,
    Rate,
    Seed,
    Steps,
    Target,
    Tokens,
    check_rate,
    read_data,
)
from utils.errors import UserError
from utils.events import Round
from utils.files import write_atomically
from utils.provenance import ROOT

if TYPE_CHECKING:
    from sampling.distill.make_head import DrafterShape
    from sampling.distill.shards import TrainingRow
    from sampling.distill.training import Schedule
    from sampling.pair.pair import Pair

TRAINED, DRAFTED, TABLE = "trained.json", "drafted.json", "table.md"
PROCESSORS = {"greedy": "greedy", "at 0.8": "multinomial 0.8"}
SETS = ("dialogue", "code", "long", "grounded", "translation")


@dataclass(frozen=True, slots=True)
class TrainingChoice:
    """A way to train: loss, decay, products as in `Schedule`, answers learned from, values of `HeadConfig`."""

    loss: str = "kl"
    decay: float = 0.8
    answers: str = "all"
    variant: Mapping[str, Any] = field(default_factory=dict)
    products: str = "auto"


CHOICES = {
    "as usual": TrainingChoice(),
    "loss lk": TrainingChoice(loss="lk"),
    "loss acceptance": TrainingChoice(loss="acceptance"),
    "decay 0.6": TrainingChoice(decay=0.6),
    "feedback normed": TrainingChoice(variant={"normed_feedback": True}),
    "state-norm each": TrainingChoice(variant={"state_norm": "each"}),
    "state-norm each, feedback normed": TrainingChoice(variant={"state_norm": "each", "normed_feedback": True}),
    "output-rank 96": TrainingChoice(variant={"output_rank": 96}),
    "attention-window 64": TrainingChoice(variant={"attention_windows": (64,)}),
    "candidate-rank 64": TrainingChoice(variant={"candidate_rank": 64, "candidates": CANDIDATES}),
    "EAGLE-4": TrainingChoice(
        variant={
            "state_norm": "each",
            "normed_feedback": True,
            "attention_windows": (64,),
            "candidate_rank": 64,
            "candidates": CANDIDATES,
        }
    ),
    "answers drawn": TrainingChoice(answers="drawn"),
    "answers greedy": TrainingChoice(answers="greedy"),
    "products float32": TrainingChoice(products="float32"),
}

# What drafts with a method of its own name, to be counted on prompts.
Method = Annotated[StrEnum("Method", [*HEADS]), typer.Option(help="what to train")]
Out = Annotated[Path, typer.Option(metavar="DIR", help="where drafters, figures and the table go")]
Most = Annotated[int, typer.Option(min=1000, help="tokens of the data that each drafter learns from")]
DraftVocab = Annotated[int, typer.Option(min=64, help="size of the draft vocabulary")]
Prompts = Annotated[int, typer.Option(min=0, help="prompts of each set of ablation/prompts to draft on")]
Length = Annotated[int, typer.Option(min=1, help="tokens of each answer to them")]
Only = Annotated[str | None, typer.Option(metavar="A;B", help=f"choices to train, of: {'; '.join(CHOICES)}")]


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """What all drafters have in common."""

    method: str
    steps: int
    draft_vocab: int
    most: int
    prompts: int
    length: int

    def shape(self, choice: TrainingChoice) -> "DrafterShape":
        """What is trained for a choice."""
        from sampling.distill.make_head import DrafterShape

        vocabulary = None if any(map(choice.variant.get, OUTPUT_RANKS)) else self.draft_vocab
        return DrafterShape(self.method, vocabulary, self.steps, 1, None, choice.variant)


def main(
    out: Out,
    method: Method,
    target: Target = None,
    data: Given = ["self"],  # noqa: B006 - typer reads it, nothing writes it
    tokens: Tokens = 400_000,
    most: Most = 100_000,
    epochs: Epochs = 2,
    steps: Steps = 3,
    draft_vocab: DraftVocab = 8192,
    rate: Rate = 1e-3,
    batch_tokens: BatchTokens = 1024,
    prompts: Prompts = 4,
    length: Length = 64,
    only: Only = None,
    seed: Seed = 1,
) -> None:
    """Train a drafter for each choice and count tokens a round, on held-out answers and on the prompt sets.

    Killed or stopped, the same command goes on: what DIR has figures of is not done again.

    \b
    uv run scripts/ablate_training.py --method mtp --out choices
    uv run scripts/ablate_training.py --method eagle --out choices --only "as usual;state-norm each"
    """
    with exit_statuses():
        from sampling.distill.training import Schedule

        check_rate(rate)
        named, plan = _chosen(only), TrainingPlan(method.value, steps, draft_vocab, most, prompts, length)
        pair = load_pair(LoadOptions(target))
        chosen = possible(pair, plan, named, only is None)
        rows = read_data(data, tokens).rows(pair, seed, told)
        schedule = Schedule(epochs, batch_tokens, rate, warmup=20, every=1000, seed=seed)
        for name, choice in chosen.items():
            folder = out / re.sub("[^a-z0-9.]+", "-", f"{plan.method} {name}")
            train(pair, rows, schedule, plan, choice, folder)
            write_atomically(out / TABLE, table(out))
            draft(pair, plan, folder)
            write_atomically(out / TABLE, table(out))
        typer.echo(table(out))


def possible(
    pair: "Pair", plan: TrainingPlan, choices: Mapping[str, TrainingChoice], leave_out: bool
) -> dict[str, TrainingChoice]:
    """Those that a drafter of the method can have. Raises `UserError` for another, unless they may be left out."""
    allowed = {}
    for name, choice in choices.items():
        try:
            plan.shape(choice).config(pair)
            allowed[name] = choice
        except UserError as error:
            if not leave_out:
                raise
            typer.echo(f"left out: {name}: {error}", err=True)
    return allowed


def _chosen(only: str | None) -> dict[str, TrainingChoice]:
    names = list(CHOICES) if only is None else [name.strip() for name in only.split(";")]
    for name in names:
        if name not in CHOICES:
            raise UserError(f"unknown choice {name!r}; expected some of: {'; '.join(CHOICES)}")
    return {name: CHOICES[name] for name in names}


def train(
    pair: "Pair",
    rows: "Sequence[TrainingRow]",
    schedule: "Schedule",
    plan: TrainingPlan,
    choice: TrainingChoice,
    folder: Path,
) -> None:
    """Train into the folder, with what came out, unless it is there. Every drafter begins with the same seed."""
    from sampling.distill.make_head import learned_from
    from sampling.distill.objective import Objective
    from sampling.distill.recipe import make_task
    from sampling.distill.training import CHECKPOINT, PRODUCTS, Trainer, hash_of
    from sampling.heads.head_files import save_head

    mine = replace(schedule, objective=Objective(choice.loss, choice.decay), products=choice.products)
    options = {
        "answers": choice.answers,
        "variant": dict(choice.variant),
        "products": str(PRODUCTS[mine.products](pair.target.device)),
        "target": pair.digest,
        "data": hash_of([row.tokens for row in rows]),
    }
    asked = {**asdict(plan), **asdict(mine), **options}
    if (folder / TRAINED).is_file():
        check(folder, asked)
        return
    learned, held_out = apart(rows)
    part = list(first(learned_from(learned, choice.answers), plan.most))
    task = make_task(pair, plan.shape(choice).config(pair), part, schedule.seed)
    trainer = Trainer(task, part, held_out, mine, pair.target.device)
    with told(f"training: {folder.name}") as show:
        history = trainer.run(folder, lambda done, total, _: show(done, total), float)
    save_head(folder, task.config, task.module.state_dict(), task.trunk.ids)
    figures = {
        "asked": asked,
        "tokens": sum(len(row.tokens) for row in part),
        "steps": trainer.steps,
        "tokens a round": history.tokens_per_round,
        "right": history.conditional,
        "in the vocabulary": history.covered,
    }
    write_atomically(folder / TRAINED, json.dumps(figures, indent=2) + "\n")
    (folder / CHECKPOINT).unlink(missing_ok=True)


def check(folder: Path, asked: Mapping[str, Any]) -> None:
    """Raise `UserError` where a folder's drafter was trained otherwise, or with other data: it cannot be compared."""
    there = json.loads((folder / TRAINED).read_text())["asked"]
    if other := [name for name, value in json.loads(json.dumps(asked)).items() if there.get(name) != value]:
        differs = f"it differs in {', '.join(other)}"
        raise UserError(f"{folder} was trained otherwise: {differs}; repeat that command, or choose another --out")


def apart(rows: "Sequence[TrainingRow]") -> "tuple[list[TrainingRow], list[TrainingRow]]":
    """(to learn from, greedy answers and texts held out): beside what is put aside in any training, a quarter more.

    What a training puts aside of little data is too little to tell choices apart. Raises `UserError` where no greedy
    answer and no text is held out.
    """
    from sampling.distill.batches import split

    learned, held_out = split(rows, len(rows))
    edge = len(learned) - len(learned) // 4
    counted = [row for row in (*held_out, *learned[edge:]) if row.greedy or row.is_text]
    if not counted:
        raise UserError(f"{len(rows)} pieces of data given, none held out to count on; expected more data")
    return learned[:edge], counted


def first(rows: "Sequence[TrainingRow]", tokens: int) -> "Iterator[TrainingRow]":
    """The first of the rows with so many tokens. Raises `UserError` where there are fewer."""
    seen = 0
    for row in rows:
        yield row
        seen += len(row.tokens)
        if seen >= tokens:
            return
    raise UserError(f"--most {tokens} given, and the data has {seen} such tokens; expected as many at most")


def draft(pair: "Pair", plan: TrainingPlan, folder: Path) -> None:
    """Count on the prompt sets how far the drafter of a folder drafts, as far as that is not there yet."""
    engine, path = PairEngine(replace(pair, heads={plan.method: folder})), folder / DRAFTED
    content = json.loads(path.read_text()) if path.is_file() else {}
    for name, processor in PROCESSORS.items():
        for task in SETS:
            if plan.prompts and f"{task}, {name}" not in content:
                content[f"{task}, {name}"] = _counted(engine, plan, task, processor)
                write_atomically(path, json.dumps(content, indent=2) + "\n")


def _counted(engine: PairEngine, plan: TrainingPlan, task: str, processor: str) -> list[int]:
    """(tokens, rounds) of the answers to the first prompts of a set."""
    settings, total = Settings(), [0, 0]
    settings.assign_all(
        [("length", str(plan.length)), ("gamma", str(plan.steps)), ("processor", processor), ("draft_tree", "chain")]
    )
    for prompt in read_prompts(ROOT / "ablation" / "prompts" / f"{task}.jsonl")[: plan.prompts]:
        ids = engine.pair.encode(prompt.opening, chat=True)
        for event in engine.stream(plan.method, settings, ids):
            if isinstance(event, Round):
                total = [total[0] + len(event.emitted), total[1] + 1]
    return total


def table(out: Path) -> str:
    """All figures of a folder as a table: tokens a round by drafter, held out and by set."""
    columns = [*(f"{task}, {name}" for name in PROCESSORS for task in SETS), *(f"all, {name}" for name in PROCESSORS)]
    lines = [f"| drafter | tokens | steps | held out | {' | '.join(columns)} |", "|---" * (4 + len(columns)) + "|"]
    for path in sorted(out.glob(f"*/{TRAINED}"), key=lambda path: path.stat().st_mtime):
        figures, drafted = json.loads(path.read_text()), path.with_name(DRAFTED)
        counts = json.loads(drafted.read_text()) if drafted.is_file() else {}
        for name in PROCESSORS:
            of_all = [counts[f"{task}, {name}"] for task in SETS if f"{task}, {name}" in counts]
            if len(of_all) == len(SETS):
                counts[f"all, {name}"] = [sum(part) for part in zip(*of_all, strict=True)]
        cells = [f"{counts[name][0] / counts[name][1]:.2f}" if name in counts else "" for name in columns]
        held_out = f"{figures['tokens a round']:.3f}"
        lines.append(
            f"| {path.parent.name} | {figures['tokens']:,} | {figures['steps']} | {held_out} | {' | '.join(cells)} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run_checked(main)

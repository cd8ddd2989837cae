"""Train a drafter for a target: a distilled model, or a Medusa, Hydra, EAGLE or MTP head."""

import hashlib
import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ablation.commands.options import exit_statuses
from utils.errors import UserError
from utils.provenance import ROOT

if TYPE_CHECKING:
    from sampling.distill.shards import Row
    from sampling.distill.tasks import Task
    from sampling.distill.training import History, Schedule
    from sampling.heads.config import Kind as HeadKind
    from sampling.loading.pairs import LoadOptions
    from sampling.pair import Pair

HELD_OUT = 64
DRAFT_VOCAB = 8192
SILENCE = 30.0


class Kind(StrEnum):
    model = "model"
    medusa = "medusa"
    hydra = "hydra"
    eagle = "eagle"
    mtp = "mtp"


def main(
    method: Annotated[Kind, typer.Option(help="what to train")],
    target: Annotated[str | None, typer.Option(metavar="ID|DIR|FILE.gguf", help="default: the embedded model")] = None,
    data: Annotated[
        list[str],
        typer.Option(metavar="self|FILE", help="the target's own dialogues; a .jsonl of prompts; a text; or several"),
    ] = ["self"],  # noqa: B006 - typer reads it, nothing writes it
    tokens: Annotated[
        int, typer.Option(min=1000, help="answer tokens that the target writes for --data self")
    ] = 400_000,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="default: models/METHOD")] = None,
    further: Annotated[
        Path | None, typer.Option(metavar="DIR", help="a trained drafter of this kind that learns further")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="passes over the data")] = 4,
    steps: Annotated[int, typer.Option(min=1, max=8, help="drafts ahead that are trained")] = 4,
    layers: Annotated[int, typer.Option(min=1, help="blocks of a distilled model or of each Medusa or Hydra head")] = 1,
    draft_vocab: Annotated[
        int | None,
        typer.Option(min=64, help="how many tokens of the data can be drafted; default: 8192, or as before"),
    ] = None,
    rate: Annotated[float, typer.Option(help="highest learning rate")] = 1e-3,
    batch_tokens: Annotated[int, typer.Option(min=64, help="tokens a step")] = 1024,
    seed: Annotated[int, typer.Option(help="of data and order")] = 1,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps")] = "auto",
    dtype: Annotated[
        str, typer.Option(help="of the trunk while it writes: auto, float32, bfloat16 or float16")
    ] = "auto",
) -> None:
    """Let the target write dialogues, learn to continue them, and save a head that `infer.py` finds by itself.

    Killed or stopped, the same command goes on where the last checkpoint was; data that was written stays.

    \b
    uv run scripts/train_drafter.py --method eagle
    uv run scripts/train_drafter.py --method model --layers 2 --epochs 6 --out models/drafter
    uv run scripts/train_drafter.py --method eagle --steps 3 --tokens 800000 --further models/eagle
    uv run scripts/train_drafter.py --method mtp --data self --data training.jsonl
    """
    with exit_statuses():
        from sampling.distill.training import Schedule
        from sampling.loading.pairs import LoadOptions

        if not 0 < rate < math.inf:
            raise UserError(f"--rate {rate} given; allowed: a finite number above 0")
        schedule = Schedule(epochs, batch_tokens, rate, seed=seed)
        shape = Shape(method.value, draft_vocab, steps, layers, further)
        folder = out or ROOT / "models" / ("distilled" if method is Kind.model else method.value)
        _train(shape, LoadOptions(target, device=device, dtype=dtype), Source(tuple(data), tokens), schedule, folder)


@dataclass(frozen=True, slots=True)
class Shape:
    """What is trained: a new drafter of these sizes, or the one in the folder `further`.

    draft_vocab: None = `DRAFT_VOCAB`, or as many tokens as the drafter that learns further has.
    """

    method: "HeadKind"
    draft_vocab: int | None
    steps: int
    layers: int
    further: Path | None

    def begun(self, pair: "Pair") -> "Task | None":
        """The task that learns further, None for a new one. Raises `UserError` where `further` does not fit."""
        from sampling.distill.recipe import further_task

        return None if self.further is None else further_task(self.method, pair, self.further, self.steps)

    def task(self, begun: "Task | None", pair: "Pair", rows: "list[Row]") -> "Task":
        """The task with the weights and the draft vocabulary it begins with."""
        from sampling.distill.recipe import count_vocabulary, make_task

        if begun is None:
            return make_task(self.method, pair, rows, self.draft_vocab or DRAFT_VOCAB, self.steps, self.layers)
        count_vocabulary(begun, pair, rows, self.draft_vocab or begun.config.draft_vocab)
        return begun


@dataclass(frozen=True, slots=True)
class Source:
    """Where training data comes from: `self`, of at least so many answer tokens, and files, one or several."""

    data: tuple[str, ...]
    tokens: int


def _train(shape: Shape, options: "LoadOptions", source: Source, schedule: "Schedule", folder: Path) -> None:
    from ablation.report.training import card_of, write_card, write_picture
    from sampling.distill.batches import split
    from sampling.distill.training import CHECKPOINT, Trainer
    from sampling.heads.head_files import fingerprint, save_head
    from sampling.loading.pairs import load_pair
    from utils.provenance import machine, versions

    pair = load_pair(options)
    begun = shape.begun(pair)
    _check_out(folder, pair)
    rows, held_out = split(_rows(pair, source, schedule.seed), HELD_OUT)
    task = shape.task(begun, pair, rows)
    began = "" if begun is None else fingerprint(begun.module.state_dict())
    trainer = Trainer(task, rows, held_out, schedule, pair.target.device, began)
    with _bar("training") as told:
        found = trainer.run(folder, lambda step, total, history: told(step, total, _course(history)), time.monotonic)
    config = replace(task.config, ranks=found.ranks)
    before = "" if shape.further is None else card_of(shape.further)
    save_head(folder, config, task.module.state_dict(), task.trunk.ids)
    write_picture(folder, f"{shape.method} drafter for {config.base}", trainer.history)
    facts = {
        "command": f"`uv run {shlex.join(['scripts/train_drafter.py', *sys.argv[1:]])}`",
        "data": f"{len(rows):,} pieces, {sum(len(row.tokens) for row in rows):,} tokens ({', '.join(source.data)})",
        "machine": ", ".join(f"{name} {value}" for name, value in machine(pair.target.device).items()),
        "versions": ", ".join(f"{name} {value}" for name, value in versions().items()),
    }
    write_card(folder, config, trainer.history, found, facts, _described(held_out), before)
    (folder / CHECKPOINT).unlink(missing_ok=True)
    typer.echo(f"{folder}: {found.tokens_per_round:.2f} tokens a round on held-out answers")


def _described(held_out: "list[Row]") -> str:
    """What these rows are, for people."""
    return " and ".join(
        dict.fromkeys(
            "pieces of the text" if row.is_text else f"{'greedy' if row.greedy else 'drawn'} answers of the target"
            for row in held_out
        )
    )


def _check_out(folder: Path, pair: "Pair") -> None:
    """Create the folder. Raises `UserError` where it cannot be written or holds a model for another target."""
    from sampling.heads.head_files import CONFIG, read_json

    if (folder / CONFIG).is_file():
        found = read_json(folder / CONFIG)
        if found.get("base_digest") != pair.digest:
            what = (
                f"a drafter for {found['base']} (weights {str(found.get('base_digest'))[:16]})"
                if "base" in found
                else "a model that is no drafter"
            )
            mine = f"{pair.target_info.name} (weights {pair.digest[:16]})"
            raise UserError(f"{folder} holds {what}, and the target is {mine}; allowed: --out DIR, another folder")
    scratch = folder / f".writable.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        scratch.touch()
        scratch.unlink()
    except OSError as error:
        why = error.strerror or error
        raise UserError(f"--out {folder}: {why}; allowed: a folder that can be created and written") from error


def _rows(pair: "Pair", source: Source, seed: int) -> "list[Row]":
    """The training data of every source, which stays in the user's cache folder. All files are read first."""
    read = [(data, _contents(data)) for data in source.data]
    return [row for data, contents in read for row in _rows_of(pair, data, contents, source.tokens, seed)]


def _contents(data: str) -> str | list[str] | None:
    """A text, the prompts of a .jsonl file, or None for what the target writes by itself."""
    if data == "self":
        return None
    path = Path(data)
    return _learnable(path) if path.suffix == ".jsonl" else _text(path)


def _rows_of(pair: "Pair", data: str, contents: str | list[str] | None, tokens: int, seed: int) -> "list[Row]":
    from sampling.distill.recipe import answer_turns, data_folder, read_text, write_data

    with _bar(f"data: {data}") as told:
        if contents is None:
            return write_data(pair, data_folder(pair, f"dialogues-{seed}"), tokens, seed, _measured(), told)
        if isinstance(contents, str):
            return read_text(pair, contents, told)
        name = hashlib.sha256("\0".join(contents).encode()).hexdigest()[:16]
        return answer_turns(pair, data_folder(pair, f"{Path(data).stem}-{name}-{seed}"), contents, seed, told)


def _learnable(path: Path) -> list[str]:
    """First turns of a prompt file, without those that results are measured on."""
    from ablation.plan.prompt_file import read_prompts

    measured, turns = _measured(), [prompt.turns[0] for prompt in read_prompts(path)]
    left = [turn for turn in turns if not measured(turn)]
    if len(left) < len(turns):
        typer.echo(f"{path}: {len(turns) - len(left)} of {len(turns)} prompts are measured with and left out", err=True)
    if not left:
        raise UserError(f"{path} has no prompt left to learn from; allowed: prompts that are not measured with")
    return left


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}; allowed: self, a .jsonl of prompts, or a text") from error


def _measured() -> "Callable[[str], bool]":
    """Whether a user turn is one of the prompts that results are measured on: none of them is learned from."""
    from ablation.plan.prompt_file import read_prompts

    folder = ROOT / "ablation" / "prompts"
    known = {" ".join(turn.split()) for path in folder.glob("*.jsonl") for p in read_prompts(path) for turn in p.turns}
    return lambda text: " ".join(text.split()) in known


def _course(history: "History") -> str:
    found = f", {history.tokens_per_round[-1]:.2f} tokens a round" if history.tokens_per_round else ""
    return f"loss {history.losses[-1]:.3f}{found}"


@contextmanager
def _bar(name: str) -> "Iterator[Callable[..., None]]":
    """A progress bar on a terminal, a line now and then elsewhere."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    said = time.monotonic()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=None, note="")

        def told(done: int, total: int, note: str = "") -> None:
            nonlocal said
            progress.update(task, completed=done, total=total, note=note)
            if not console.is_terminal and (time.monotonic() - said > SILENCE or done >= total):
                said = time.monotonic()
                typer.echo(f"{name}: {done:,} of {total:,} {note}", err=True)

        yield told


if __name__ == "__main__":
    typer.run(main)

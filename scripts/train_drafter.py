"""Train a drafter for a target: a distilled model, or a Medusa, Hydra, EAGLE or MTP head."""

import utils.threads  # noqa: F401

import math
import shlex
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablation.commands.checked import run_checked
from ablation.commands.options import exit_statuses
from sampling.loading.options import DEVICES, DTYPES
from sampling.methods import MODELS
from utils.errors import UserError
from utils.provenance import ROOT

if TYPE_CHECKING:
    from sampling.distill.make_head import Data, DrafterShape, Trained
    from sampling.distill.training import Schedule
    from sampling.loading.pairs import LoadOptions
    from sampling.pair import Pair


HeadKind = StrEnum("HeadKind", [*MODELS])
Method = Annotated[HeadKind, typer.Option(help="what to train")]
Target = Annotated[str | None, typer.Option(metavar="ID|DIR|FILE.gguf", help="default: the embedded model")]
Given = Annotated[
    list[str],
    typer.Option(metavar="self|FILE", help="the target's own dialogues; a .jsonl of prompts; a text; or several"),
]
Tokens = Annotated[int, typer.Option(min=1000, help="answer tokens for the target to write for --data self")]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="default: models/METHOD")]
Further = Annotated[Path | None, typer.Option(metavar="DIR", help="a trained drafter of this kind to train further")]
Epochs = Annotated[int, typer.Option(min=1, help="passes over the data")]
Steps = Annotated[int, typer.Option(min=1, max=8, help="number of drafts ahead to train")]
Layers = Annotated[int, typer.Option(min=1, help="blocks of a distilled model or of each Medusa or Hydra head")]
DraftVocab = Annotated[
    int | None, typer.Option(min=64, help="size of the draft vocabulary, from the data; default: 8192, or as before")
]
Rate = Annotated[float, typer.Option(help="highest learning rate")]
BatchTokens = Annotated[int, typer.Option(min=64, help="tokens a step")]
Seed = Annotated[int, typer.Option(help="random seed of data and order")]
DataOnly = Annotated[bool, typer.Option("--data-only", help="write the data that lacks, and train nothing")]
Device = Annotated[str, typer.Option(help=", ".join(DEVICES))]
Dtype = Annotated[str, typer.Option(help=f"dtype of the trunk while it writes: {', '.join(DTYPES)}")]


def main(
    method: Method,
    target: Target = None,
    data: Given = ["self"],  # noqa: B006 - typer reads it, nothing writes it
    tokens: Tokens = 400_000,
    out: Out = None,
    further: Further = None,
    epochs: Epochs = 4,
    steps: Steps = 4,
    layers: Layers = 1,
    draft_vocab: DraftVocab = None,
    rate: Rate = 1e-3,
    batch_tokens: BatchTokens = 1024,
    seed: Seed = 1,
    device: Device = "auto",
    dtype: Dtype = "auto",
    data_only: DataOnly = False,
) -> None:
    """Let the target write dialogues, learn to continue them, and save a head that `infer.py` finds by itself.

    Killed or stopped, the same command continues from the last checkpoint; data already written is kept.

    \b
    uv run scripts/train_drafter.py --method eagle
    uv run scripts/train_drafter.py --method model --layers 2 --epochs 6 --out models/drafter
    uv run scripts/train_drafter.py --method eagle --steps 3 --tokens 800000 --further models/eagle
    uv run scripts/train_drafter.py --method mtp --data self --data training.jsonl
    """
    with exit_statuses():
        from sampling.distill.make_head import DrafterShape
        from sampling.distill.training import Schedule
        from sampling.loading.pairs import LoadOptions

        if not 0 < rate < math.inf:
            raise UserError(f"--rate {rate} given; expected a finite number above 0")
        schedule = Schedule(epochs, batch_tokens, rate, seed=seed)
        options = LoadOptions(target, device=device, dtype=dtype)
        if data_only:
            _write(options, data, tokens, seed)
            return
        shape = DrafterShape(method.value, draft_vocab, steps, layers, further)
        folder = out or ROOT / "models" / ("distilled" if method == "model" else method.value)
        _train(options, shape, data, tokens, schedule, folder)


def _write(options: "LoadOptions", given: list[str], tokens: int, seed: int) -> None:
    """Let the target write what lacks of the data."""
    from ablation.run.bar import told
    from sampling.loading.pairs import load_pair

    pair, data = load_pair(options), _data(given, tokens)
    rows = data.rows(pair, seed, told)
    typer.echo(f"{len(rows):,} pieces of data, {sum(len(row.tokens) - row.answer for row in rows):,} answer tokens")


def _train(
    options: "LoadOptions", shape: "DrafterShape", given: list[str], tokens: int, schedule: "Schedule", folder: Path
) -> None:
    from ablation.report.training import card_of, write_card, write_picture
    from ablation.run.bar import told
    from sampling.distill.make_head import make_head
    from sampling.distill.training import CHECKPOINT
    from sampling.loading.pairs import load_pair
    from utils.machine import Machine, disturbance

    pair, data = load_pair(options), _data(given, tokens)
    with Machine() as machine:
        made = make_head(pair, shape, data, schedule, folder, told)
    before = "" if shape.further is None else card_of(shape.further)
    write_picture(folder, f"{shape.method} drafter for {made.config.base}", made.history)
    write_card(folder, made.config, made.history, made.found, _facts(made, given, pair), made.held_out, before)
    (folder / CHECKPOINT).unlink(missing_ok=True)
    typer.echo(f"{folder}: {made.found.tokens_per_round:.2f} tokens a round on held-out answers")
    if disturbed := disturbance([machine.other_cores], "the training took longer"):
        typer.echo(disturbed, err=True)


def _facts(made: "Trained", given: list[str], pair: "Pair") -> dict[str, object]:
    """Lines of the card that say what it was made with."""
    from utils.provenance import machine, versions

    return {
        "command": f"`uv run {shlex.join(['scripts/train_drafter.py', *sys.argv[1:]])}`",
        "data": f"{made.pieces:,} pieces, {made.tokens:,} tokens ({', '.join(given)})",
        "machine": ", ".join(f"{name} {value}" for name, value in machine(pair.target.device).items()),
        "versions": ", ".join(f"{name} {value}" for name, value in versions().items()),
    }


def _data(given: list[str], tokens: int) -> "Data":
    """The corpora, all files read before anything is written."""
    from sampling.distill.make_head import Corpus, Data

    return Data(tuple(Corpus(one, _contents(one)) for one in given), tokens, refused_turns())


def _contents(data: str) -> str | list[str] | None:
    """A text, the prompts of a .jsonl file, or None for what the target writes by itself."""
    if data == "self":
        return None
    path = Path(data)
    return _learnable(path) if path.suffix == ".jsonl" else _text(path)


def _learnable(path: Path) -> list[str]:
    """First turns of a prompt file, without those that results are measured on."""
    from ablation.plan.prompt_file import read_prompts

    measured, turns = refused_turns(), [prompt.turns[0] for prompt in read_prompts(path)]
    left = [turn for turn in turns if not measured(turn)]
    if len(left) < len(turns):
        typer.echo(f"{path}: left out {len(turns) - len(left)} of {len(turns)} prompts, used in measurements", err=True)
    if not left:
        raise UserError(f"{path} has no prompt left to learn from; expected prompts that no measurement uses")
    return left


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}; expected self, a .jsonl of prompts, or a text") from error


def refused_turns() -> "Callable[[str], bool]":
    """Whether a user turn is one of the prompts that results are measured on: none of them is learned from."""
    from ablation.plan.prompt_file import read_prompts

    folder = ROOT / "ablation" / "prompts"
    known = {" ".join(turn.split()) for path in folder.glob("*.jsonl") for p in read_prompts(path) for turn in p.turns}
    return lambda text: " ".join(text.split()) in known


if __name__ == "__main__":
    run_checked(main)

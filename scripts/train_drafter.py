"""Train a drafter for a target: a distilled model, or a Medusa, Hydra, EAGLE, MTP, P-EAGLE or DSpark head."""

import utils.device.threads  # noqa: F401

import math
import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablation.commands.shared.checked import run_checked
from ablation.commands.shared.options import exit_statuses
from ablation.plan.prompts.file import read_prompts
from ablation.plan.prompts.sets import measured_turns
from sampling.loading.options import DEVICES, DTYPES
from sampling.methods.tables import MODELS
from utils.errors import UserError
from utils.parameter import LARGEST
from utils.provenance import ROOT

if TYPE_CHECKING:
    from sampling.distill.make_head import Data, DrafterShape, Trained
    from sampling.distill.training import Schedule
    from sampling.pair.pair import Pair


CANDIDATES = 32
HeadKind = StrEnum("HeadKind", [*MODELS])
# As `LOSSES`, `ANSWERS` and `PRODUCTS` of sampling/distill have them, which would load torch here.
LossKind = StrEnum("LossKind", ["kl", "lk", "acceptance"])
AnswerKind = StrEnum("AnswerKind", ["all", "drawn", "greedy"])
ProductKind = StrEnum("ProductKind", ["auto", "bfloat16", "float32"])
NormKind = StrEnum("NormKind", ["none", "each", "joined"])
FeedbackKind = StrEnum("FeedbackKind", ["raw", "normed"])
Method = Annotated[HeadKind, typer.Option(help="what to train")]
Target = Annotated[str | None, typer.Option(metavar="ID|DIR|FILE.gguf", help="default: the embedded model")]
Given = Annotated[
    list[str],
    typer.Option(metavar="self|FILE", help="the target's own dialogues; a .jsonl of prompts; a text; or several"),
]
Tokens = Annotated[
    int,
    typer.Option(
        min=1000, help="answer tokens that --data self has at least; what was written before is learned from as well"
    ),
]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="default: models/METHOD")]
Further = Annotated[Path | None, typer.Option(metavar="DIR", help="a trained drafter of this kind to train further")]
Epochs = Annotated[int, typer.Option(min=1, help="passes over the data")]
Steps = Annotated[int, typer.Option(min=1, max=8, help="number of drafts ahead to train")]
Layers = Annotated[
    int,
    typer.Option(
        min=1,
        help="blocks of a distilled model, of an EAGLE, MTP, P-EAGLE or DSpark head or of each Medusa or Hydra head",
    ),
]
DraftVocab = Annotated[
    int | None, typer.Option(min=64, help="size of the draft vocabulary, from the data; default: 8192, or as before")
]
Rate = Annotated[float, typer.Option(help="highest learning rate")]
BatchTokens = Annotated[int, typer.Option(min=64, help="tokens a step")]
Seed = Annotated[int, typer.Option(min=0, max=LARGEST, help="random seed of data and order")]
Loss = Annotated[LossKind, typer.Option(help="distance to the target's distribution")]
Decay = Annotated[float, typer.Option(help="weight of each later draft in the loss, by that of the one before it")]
Answers = Annotated[AnswerKind, typer.Option(help="which of the target's answers to learn from")]
StateNorm = Annotated[
    NormKind | None, typer.Option(help="norms of the target's states, eagle and mtp only; default: none, or as before")
]
Feedback = Annotated[
    FeedbackKind | None,
    typer.Option(
        help="own states that eagle and mtp go on from, before or behind the norm; default: raw, or as before"
    ),
]
OutputRank = Annotated[
    int | None,
    typer.Option(min=1, help="rank of an output over all tokens, eagle and mtp only; default: the draft vocabulary"),
]
CandidateRank = Annotated[
    int | None,
    typer.Option(
        min=1, help="rank of what finds the tokens that an output over all scores, eagle and mtp only; default: none"
    ),
]
Candidates = Annotated[
    int | None, typer.Option(min=1, help="tokens that --candidate-rank finds for each draft; default: 32, or as before")
]
Window = Annotated[
    int | None,
    typer.Option(min=1, help="rows that its attention sees, eagle and mtp only; default: all, or as before"),
]
Products = Annotated[
    ProductKind,
    typer.Option(
        help="dtype of matrix products while it learns; auto: bfloat16 where the machine has it, else float32"
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="replace a finished drafter in --out")]
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
    loss: Loss = LossKind.kl,
    decay: Decay = 0.8,
    answers: Answers = AnswerKind.all,
    state_norm: StateNorm = None,
    feedback: Feedback = None,
    output_rank: OutputRank = None,
    candidate_rank: CandidateRank = None,
    candidates: Candidates = None,
    attention_window: Window = None,
    products: Products = ProductKind.auto,
    data_only: DataOnly = False,
    overwrite: Overwrite = False,
) -> None:
    """Let the target write dialogues, learn to continue them, and save a head that `infer.py` finds by itself.

    Killed or stopped, the same command continues from the last checkpoint; data already written is kept, but on CUDA,
    where it stays on the card. A finished drafter in --out is never replaced unless you say so.

    \b
    uv run scripts/train_drafter.py --method eagle --out models/mine
    uv run scripts/train_drafter.py --method model --layers 2 --epochs 6 --out models/drafter
    uv run scripts/train_drafter.py --method eagle --steps 3 --tokens 800000 --further models/eagle
    uv run scripts/train_drafter.py --method mtp --data self --data training.jsonl
    uv run scripts/train_drafter.py --method eagle --loss lk --state-norm each --feedback normed
    uv run scripts/train_drafter.py --method eagle --attention-window 128 --candidate-rank 64
    """
    with exit_statuses():
        from sampling.distill.make_head import DrafterShape
        from sampling.distill.objective import Objective
        from sampling.distill.training import Schedule
        from sampling.loading.pairs import LoadOptions, load_pair

        check_rate(rate)
        if not 0 < decay <= 1:
            raise UserError(f"--decay {decay} given; expected a number above 0, at most 1")
        schedule = Schedule(
            epochs,
            batch_tokens,
            rate,
            seed=seed,
            objective=Objective(loss.value, decay),
            products=products.value,
        )
        pair = load_pair(LoadOptions(target, device=device, dtype=dtype))
        if data_only and pair.target.device.type == "cuda":
            raise UserError("--data-only given on CUDA, where data stays on the card; expected it with --device cpu")
        corpora = read_data(data, tokens, answers)
        if data_only:
            _write(pair, corpora, seed)
            return
        variant = {
            **_variant(state_norm, feedback, output_rank),
            **_candidates(candidate_rank, candidates),
            **({} if attention_window is None else {"attention_windows": (attention_window,) * layers}),
        }
        shape = DrafterShape(method.value, draft_vocab, steps, layers, further, variant)
        folder = out or ROOT / "models" / ("distilled" if method == "model" else method.value)
        _train(pair, shape, corpora, schedule, folder, overwrite)


def check_rate(rate: float) -> None:
    """Raise `UserError` for a learning rate that there is not."""
    if not 0 < rate < math.inf:
        raise UserError(f"--rate {rate} given; expected a finite number above 0")


def _variant(state_norm: NormKind | None, feedback: FeedbackKind | None, output_rank: int | None) -> dict[str, object]:
    """What was given of these, by the names of `HeadConfig`."""
    options = {
        "state_norm": state_norm and state_norm.value,
        "normed_feedback": feedback and feedback is FeedbackKind.normed,
        "output_rank": output_rank,
    }
    return {name: value for name, value in options.items() if value is not None}


def _candidates(rank: int | None, candidates: int | None) -> dict[str, object]:
    """The same of what finds candidates. Raises `UserError` for candidates that nothing finds."""
    if rank is None and candidates is not None:
        raise UserError(f"--candidates {candidates} given without --candidate-rank; expected both")
    return {} if rank is None else {"candidate_rank": rank, "candidates": candidates or CANDIDATES}


def _write(pair: "Pair", data: "Data", seed: int) -> None:
    """Let the target write what lacks of the data."""
    from ablation.run.progress.bar import told

    rows = data.rows(pair, seed, told)
    typer.echo(f"{len(rows):,} pieces of data, {sum(len(row.tokens) - row.answer for row in rows):,} answer tokens")


def _train(
    pair: "Pair", shape: "DrafterShape", data: "Data", schedule: "Schedule", folder: Path, overwrite: bool
) -> None:
    from ablation.report.plots.training import card_of, write_card, write_picture
    from ablation.run.progress.bar import told
    from sampling.distill.make_head import make_head
    from sampling.distill.objective import UNITS
    from sampling.distill.training import CHECKPOINT
    from utils.device.machine import Machine, disturbance

    with Machine() as machine:
        try:
            made = make_head(pair, shape, data, schedule, folder, told, overwrite)
        except KeyboardInterrupt:
            typer.echo(
                "the same command goes on from the last checkpoint, if there is one, and with the data so far", err=True
            )
            raise
    before = "" if shape.further is None else card_of(shape.further)
    write_picture(
        folder, f"{shape.method} drafter for {made.config.base}", made.history, UNITS[schedule.objective.loss]
    )
    facts = {**_facts(made, data, pair), **_choices(made, data, schedule)}
    write_card(folder, made.config, made.history, made.found, facts, made.held_out, before)
    (folder / CHECKPOINT).unlink(missing_ok=True)
    typer.echo(f"{folder}: {made.found.tokens_per_round:.2f} tokens a round on held-out answers")
    if disturbed := disturbance([machine.other_cores], "the training took longer"):
        typer.echo(disturbed, err=True)


def _facts(made: "Trained", data: "Data", pair: "Pair") -> dict[str, object]:
    """Lines of the card that say what it was made with."""
    from utils.provenance import machine, versions

    return {
        "command": f"`uv run {shlex.join(['scripts/train_drafter.py', *sys.argv[1:]])}`",
        "data": f"{made.pieces:,} pieces, {made.tokens:,} tokens ({', '.join(corpus.name for corpus in data.corpora)})",
        "machine": ", ".join(f"{name} {value}" for name, value in machine(pair.target.device).items()),
        "versions": ", ".join(f"{name} {value}" for name, value in versions().items()),
    }


def _choices(made: "Trained", data: "Data", schedule: "Schedule") -> dict[str, object]:
    """Lines of the card that say how it learned, and what of it is not as usual."""
    from sampling.distill.objective import UNITS

    config, objective = made.config, schedule.objective
    lines: dict[str, object] = {
        "answers learned from": data.answers,
        "loss": f"{objective.loss}: {UNITS[objective.loss]}",
        "weight of a later draft in the loss": f"{objective.decay:g} of the one before it",
        "matrix products": str(made.products).removeprefix("torch."),
    }
    if config.state_norm != "none":
        lines["norms of the target's states"] = config.state_norm
    if config.normed_feedback:
        lines["own states it goes on from"] = "behind the norm"
    if config.output_rank:
        lines["output over all tokens"] = f"of rank {config.output_rank}"
    if config.candidate_rank:
        lines["output over all tokens"] = f"{config.candidates} candidates, found by rank {config.candidate_rank}"
    if config.attention_windows:
        lines["rows that attention sees"] = config.attention_windows[0]
    return lines


def read_data(paths: list[str], tokens: int, answers: str = "all") -> "Data":
    """The corpora, all files read before anything is written."""
    from sampling.distill.make_head import Corpus, Data

    return Data(tuple(Corpus(path, _contents(path)) for path in paths), tokens, measured_turns(), str(answers))


def _contents(data: str) -> str | list[str] | None:
    """A text, the prompts of a .jsonl file, or None for what the target writes by itself."""
    if data == "self":
        return None
    path = Path(data)
    return _learnable(path) if path.suffix == ".jsonl" else _text(path)


def _learnable(path: Path) -> list[str]:
    """First turns of a prompt file, without those that results are measured on."""
    measured, turns = measured_turns(), [prompt.turns[0] for prompt in read_prompts(path)]
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


if __name__ == "__main__":
    run_checked(main)

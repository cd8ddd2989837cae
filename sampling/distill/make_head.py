"""A whole training: what is trained, from which data, into which folder. Killed, it goes on at its checkpoint."""

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from sampling.distill import recipe
from sampling.distill.accuracy import Accuracy
from sampling.distill.batches import split
from sampling.distill.lockstep.writer import LockstepWriter
from sampling.distill.shards import TrainingRow
from sampling.distill.tasks import Task, feature_layers
from sampling.distill.training import CHECKPOINT, History, Schedule, Trainer
from sampling.distill.writing import WritingOptions
from sampling.heads.config import OUTPUT_RANKS, HeadConfig
from sampling.heads.head_files import CONFIG, fingerprint, read_json, save_head
from sampling.pair.pair import Pair
from utils.errors import UserError

HELD_OUT = 64
DRAFT_VOCAB = 8192
ANSWERS: Mapping[str, Callable[[TrainingRow], bool]] = {
    "all": lambda row: True,
    "drawn": lambda row: not row.greedy,
    "greedy": lambda row: row.greedy,
}

# Opened with a name, it takes (done, total, note = "") of the work of that name.
Announce = Callable[[str], AbstractContextManager[Callable[..., None]]]


@dataclass(frozen=True, slots=True)
class DrafterShape:
    """What is trained: a new drafter of these sizes, or the one in the folder `further`.

    draft_vocab: None = `DRAFT_VOCAB`, or as many tokens as the drafter that learns further has; a head with a product
    of low rank over its tokens has all. variant: further values of its `HeadConfig` by name.
    """

    method: str
    draft_vocab: int | None
    steps: int
    layers: int
    further: Path | None
    variant: Mapping[str, Any] = field(default_factory=dict)

    def config(self, pair: Pair) -> HeadConfig:
        """What a new drafter of this shape is. Raises `UserError` where there is none for the pair's target."""
        everything = any(map(self.variant.get, OUTPUT_RANKS))
        vocabulary = self.draft_vocab or (pair.target.vocab_size if everything else DRAFT_VOCAB)
        return recipe.head_config(self.method, pair, vocabulary, self.steps, self.layers, self.variant)

    def begun(self, pair: Pair) -> Task | None:
        """The task that learns further, None for a new one. Raises `UserError` where `further` does not fit."""
        if self.further is None:
            return None
        task = recipe.further_task(self.method, pair, self.further, self.steps, self.variant)
        everything = any(getattr(task.config, name) for name in OUTPUT_RANKS)
        if everything and self.draft_vocab not in (None, task.config.draft_vocab):
            raise UserError(
                f"--draft-vocab {self.draft_vocab} given, and {self.further} has an output over all "
                f"{task.config.draft_vocab} tokens; leave it out"
            )
        return task

    def task(self, begun: Task | None, pair: Pair, rows: list[TrainingRow], seed: int) -> Task:
        """The task with the weights and the draft vocabulary it begins with."""
        if begun is None:
            return recipe.make_task(pair, self.config(pair), rows, seed)
        recipe.count_vocabulary(begun, pair, rows, self.draft_vocab or begun.config.draft_vocab)
        return begun


@dataclass(frozen=True, slots=True)
class Corpus:
    """One corpus to train on: a text, user turns to answer, or None for the target's own dialogues.

    name: `self`, or the file's. A part of the folder that keeps what the target writes.
    """

    name: str
    contents: str | Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Data:
    """All corpora; `tokens`: answer tokens of own dialogues, at least; `refused`: user turns not to learn from.

    answers: which are learned from, a key of `ANSWERS`; texts are learned from in any case.
    """

    corpora: tuple[Corpus, ...]
    tokens: int
    refused: Callable[[str], bool]
    answers: str = "all"

    def rows(self, pair: Pair, seed: int, announce: Announce) -> list[TrainingRow]:
        """The rows of every corpus. What the target writes stays in the user's cache folder; on CUDA, on the card."""
        return [row for corpus in self.corpora for row in self._rows(pair, corpus, seed, announce)]

    def _rows(self, pair: Pair, corpus: Corpus, seed: int, announce: Announce) -> list[TrainingRow]:
        with announce(f"data: {corpus.name}") as say:
            if pair.target.device.type == "cuda" and not isinstance(corpus.contents, str):
                return self._on_card(pair, corpus.contents, seed, say)
            if corpus.contents is None:
                folder = recipe.data_folder(pair, f"dialogues-{seed}")
                return recipe.write_data(pair, folder, self.tokens, seed, self.refused, say)
            if isinstance(corpus.contents, str):
                return recipe.read_text(pair, corpus.contents, say)
            digest = hashlib.sha256("\0".join(corpus.contents).encode()).hexdigest()[:16]
            folder = recipe.data_folder(pair, f"{Path(corpus.name).stem}-{digest}-{seed}")
            return recipe.answer_turns(pair, folder, corpus.contents, seed, say)

    def _on_card(
        self, pair: Pair, turns: Sequence[str] | None, seed: int, say: Callable[..., None]
    ) -> list[TrainingRow]:
        model = recipe.lean_target(pair)
        layers, how = feature_layers(model.num_layers), WritingOptions(seed=seed)
        writer = LockstepWriter(model, pair.tokenizer, pair.stop, layers, how)
        return writer.converse(self.tokens, self.refused, say) if turns is None else writer.answer(turns, say)


def learned_from(rows: Sequence[TrainingRow], answers: str) -> list[TrainingRow]:
    """Those that are learned from: texts, and answers as `Data` has them. Raises `UserError` where none is left."""
    left = [row for row in rows if row.is_text or ANSWERS[answers](row)]
    if not left:
        raise UserError(f"no {answers} answers in the data; expected some to learn from")
    return left


@dataclass(frozen=True, slots=True)
class Trained:
    """What came out. pieces, tokens: of the data learned from; held_out: what `found` was measured on, in words.

    products: the dtype that matrix products were computed in.
    """

    config: HeadConfig
    history: History
    found: Accuracy
    pieces: int
    tokens: int
    held_out: str
    products: torch.dtype


def make_head(
    pair: Pair,
    shape: DrafterShape,
    data: Data,
    schedule: Schedule,
    folder: Path,
    announce: Announce,
    overwrite: bool = False,
) -> Trained:
    """Train and save into the folder; its checkpoint stays until the caller has done what else belongs to it.

    overwrite: a finished drafter there may be replaced; one that learns further into its own folder always may.
    Raises `UserError` before any data is written where the shape or the folder does not fit the pair.
    """
    begun = shape.begun(pair)
    if begun is None:
        shape.config(pair)
    onward = shape.further is not None and shape.further.resolve() == folder.resolve()
    check_out(folder, pair, replaces=overwrite or onward)
    rows, held_out = split(data.rows(pair, schedule.seed, announce), HELD_OUT)
    rows = learned_from(rows, data.answers)
    task = shape.task(begun, pair, rows, schedule.seed)
    began = "" if begun is None else fingerprint(begun.module.state_dict())
    trainer = Trainer(task, rows, held_out, schedule, pair.target.device, began)
    with announce("training") as say:
        trained = trainer.run(folder, lambda step, total, history: say(step, total, _course(history)), time.monotonic)
    config = replace(task.config, ranks=trained.ranks, recommended=task.config.recommended or trained.recommended)
    save_head(folder, config, task.module.state_dict(), task.trunk.ids)
    tokens = sum(len(row.tokens) for row in rows)
    return Trained(config, trainer.history, trained, len(rows), tokens, _words(held_out), trainer.products)


def check_out(folder: Path, pair: Pair, replaces: bool) -> None:
    """Create the folder. Raises `UserError` where it cannot be written or holds a model for another target.

    replaces: a finished drafter for this target goes; else that is an error, too. With a checkpoint it is not finished.
    """
    if (folder / CONFIG).is_file():
        config = read_json(folder / CONFIG)
        if config.get("base_digest") != pair.digest:
            what = (
                f"a drafter for {config['base']} (weights {str(config.get('base_digest'))[:16]})"
                if "base" in config
                else "a model that is not a drafter"
            )
            mine = f"{pair.target_info.name} (weights {pair.digest[:16]})"
            raise UserError(f"{folder} holds {what}, and the target is {mine}; give another folder with --out DIR")
        if not replaces and not (folder / CHECKPOINT).is_file():
            raise UserError(
                f"{folder} holds a finished drafter for this target; give another folder with --out DIR, train it "
                f"further with --further {folder}, or replace it with --overwrite"
            )
    scratch = folder / f".writable.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        scratch.touch()
        scratch.unlink()
    except OSError as error:
        why = error.strerror or error
        raise UserError(f"--out {folder}: {why}; expected a folder that can be created and written") from error


def _course(history: History) -> str:
    rate = f", {history.tokens_per_round[-1]:.2f} tokens a round" if history.tokens_per_round else ""
    return f"loss {history.losses[-1]:.3f}{rate}"


def _words(rows: Sequence[TrainingRow]) -> str:
    """What these rows are, for people."""
    return " and ".join(
        dict.fromkeys(
            "pieces of the text" if row.is_text else f"{'greedy' if row.greedy else 'drawn'} answers of the target"
            for row in rows
        )
    )

"""From a loaded pair to a trained head: its data, its configuration, the weights it starts from."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig

from sampling.distill.batches import frequent_tokens
from sampling.distill.shards import TrainingRow, answer_tokens, read_shards, save_shard, shard_count, writing
from sampling.distill.start import start
from sampling.distill.tasks import RecurrentTask, Task, Trunk, feature_layers
from sampling.distill.writing import Dialogue, Writer, WritingOptions
from sampling.forward.models.lean import LeanModel
from sampling.forward.runner import prefill
from sampling.heads.config import HeadConfig
from sampling.heads.head_files import load_head
from sampling.heads.published.formats import check_fit
from sampling.methods.tables import MODELS
from sampling.pair.pair import Pair
from utils.errors import UserError
from utils.files import cache_folder

SHARD = 64
CHECKPOINT = "model.safetensors"
_PIECE = 512
_SHORTEST = 16
# Rows that first weights are made from, on the CPU.
_BEGINNING = 2000
_WHOLE = "whole"
NOTHING: Mapping[str, Any] = MappingProxyType({})

_WAITS = "waits for another process that writes this data"

# Takes (done, total) and perhaps a note.
Told = Callable[..., None]


def lean_target(pair: Pair) -> LeanModel:
    """The target's lean form. Raises `UserError` for another architecture."""
    model = pair.target.model
    if not isinstance(model, LeanModel):
        raise UserError(f"{pair.target_info.name}: drafters can be trained only for targets with the lean forward")
    return model


def answer_turns(pair: Pair, folder: Path, turns: Sequence[str], seed: int, say: Told) -> list[TrainingRow]:
    """The target's answers to these user turns, in the folder, written now as far as they lack.

    A run that was killed goes on behind the last whole shard; what was written to the end is never added to.
    """
    if not (folder / _WHOLE).is_file():
        with writing(folder, lambda: say(0, len(turns), _WAITS)):
            _answer(pair, folder, turns, seed, say)
    return read_shards(folder)


def _answer(pair: Pair, folder: Path, turns: Sequence[str], seed: int, say: Told) -> None:
    """Write the answers that lack."""
    rows = read_shards(folder)
    how = WritingOptions(seed=1_000_003 * seed + shard_count(folder))
    model = lean_target(pair)
    writer = Writer(model, pair.tokenizer, pair.stop, feature_layers(model.num_layers), how, turns)
    writer.leave_out((row.tokens.tolist(), row.answer) for row in rows)
    done, dialogues = len(rows), writer.write()
    while part := list(islice(dialogues, SHARD)):
        save_shard(folder, part)
        done += len(part)
        say(done, len(turns))
    (folder / _WHOLE).touch()


def read_text(pair: Pair, text: str, say: Told) -> list[TrainingRow]:
    """A text as training data: pieces of `_PIECE` tokens with the states of the target that reads them.

    What is left at the end is a piece of its own from `_SHORTEST` tokens on.
    """
    model, ids = lean_target(pair), pair.tokenizer.encode(text)
    layers, size = feature_layers(model.num_layers), min(_PIECE, model.window)
    if len(ids) < 2 * size:
        raise UserError(f"the text has {len(ids)} tokens; expected at least {2 * size}, as some are held out")
    pieces = [ids[at : at + size] for at in range(0, len(ids), size)]
    pieces = [piece for piece in pieces if len(piece) >= min(_SHORTEST, size)]
    rows = []
    for number, piece in enumerate(pieces, start=1):
        states = prefill(pair.target, piece, layers)
        rows.append(
            TrainingRow(
                torch.tensor(piece), 1, False, {layer: part.to(torch.bfloat16) for layer, part in states.items()}
            )
        )
        say(number, len(pieces))
    return rows


def write_data(
    pair: Pair, folder: Path, tokens: int, seed: int, refused: Callable[[str], bool], say: Told
) -> list[TrainingRow]:
    """At least `tokens` answer tokens of the target's own dialogues in the folder, written now as far as they lack.

    refused: user turns that must not be learned from, such as prompts that are measured with. Each shard has
    its own seed, so that a run that was killed goes on behind the last whole one.
    """
    if _answered(folder) < tokens:
        with writing(folder, lambda: say(0, tokens, _WAITS)):
            _converse(pair, folder, tokens, seed, refused, say)
    return read_shards(folder)


def _answered(folder: Path) -> int:
    """Answer tokens in the folder."""
    return answer_tokens(read_shards(folder))


def _converse(pair: Pair, folder: Path, tokens: int, seed: int, refused: Callable[[str], bool], say: Told) -> None:
    """Write the dialogues that lack."""
    model, done = lean_target(pair), _answered(folder)
    while done < tokens:
        how = WritingOptions(seed=1_000_033 * seed + shard_count(folder))
        writer = Writer(model, pair.tokenizer, pair.stop, feature_layers(model.num_layers), how)
        say(done, tokens)
        for part in _shards(writer, pair, refused):
            save_shard(folder, part)
            done += answer_tokens(part)
            say(done, tokens)
            if done >= tokens:
                break


def _shards(writer: Writer, pair: Pair, refused: Callable[[str], bool]) -> Iterable[list[Dialogue]]:
    part: list[Dialogue] = []
    for dialogue in writer.write():
        if not refused(pair.decode(writer.user_turn(dialogue))):
            part.append(dialogue)
        if len(part) == SHARD:
            yield part
            part = []


def data_folder(pair: Pair, name: str) -> Path:
    """Where training data of this name for the pair's target is kept."""
    return cache_folder() / "distill" / f"{pair.target_info.name}-{pair.digest[:16]}" / name


def head_config(
    method: str, pair: Pair, draft_vocab: int, steps: int = 4, layers: int = 1, variant: Mapping[str, Any] = NOTHING
) -> HeadConfig:
    """What a new drafter of a method for the pair's target is; variant: further values by name.

    Raises `UserError` for values that no such drafter has.
    """
    model, kind = lean_target(pair), MODELS[method].load_task()
    if variant and not issubclass(kind, RecurrentTask):
        options = ", ".join(option(*item) for item in variant.items())
        raise UserError(f"{options} given for a {method} drafter; expected eagle or mtp, which have such parts")
    shape, like = model.blocks.shape, AutoConfig.from_pretrained(pair.target_info.place)
    return HeadConfig(
        method=method,
        base=pair.target_info.name,
        base_digest=pair.digest,
        hidden_size=like.hidden_size,
        vocab_size=model.vocab_size,
        draft_vocab=min(draft_vocab, model.vocab_size),
        steps=steps,
        layers=layers,
        intermediate_size=like.intermediate_size,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        rms_norm_eps=like.rms_norm_eps,
        rope_theta=like.rope_parameters["rope_theta"],
        window=model.window,
        **{**kind.configure(model.num_layers), **variant},
    )


def option(name: str, value: Any) -> str:
    """How a user gives this further value of a `HeadConfig`."""
    if name == "normed_feedback":
        return f"--feedback {'normed' if value else 'raw'}"
    if name == "attention_windows":
        return f"--attention-window {value[0]}" if value else "no --attention-window"
    return f"--{name.replace('_', '-')} {value}"


def make_task(pair: Pair, config: HeadConfig, rows: Sequence[TrainingRow], seed: int) -> Task:
    """The task of a new drafter for the pair's target, its module at its starting weights.

    Where the target's checkpoint is in a folder, an EAGLE or MTP head starts from its last block and a distilled model
    from evenly chosen ones. seed: of what begins by chance, as nothing in the target is like it.
    """
    kind: type[Task] = MODELS[config.method].load_task()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        task = kind(config, _counted(pair, rows, config.draft_vocab))
    begin = [row.on(torch.device("cpu")) for row in rows[:_BEGINNING]]
    start(task, begin, Path(pair.target_info.place) / CHECKPOINT, lean_target(pair).num_layers)
    return task


def further_task(method: str, pair: Pair, folder: Path, steps: int, variant: Mapping[str, Any] = NOTHING) -> Task:
    """The task of a head that learns further: its own configuration, draft vocabulary and weights.

    Raises `UserError` where the folder has no such head, one for another target, for other steps, or another variant.
    """
    model, head, info = lean_target(pair), load_head(folder), pair.target_info
    check_fit(head, info.name, info.place, model, pair.digest)
    if head.config.method != method:
        raise UserError(f"{folder} is a {head.config.method} drafter; expected a {method} drafter to train further")
    for name, value in variant.items():
        if getattr(head.config, name) != value:
            has = option(name, getattr(head.config, name))
            raise UserError(f"{option(name, value)} given, and {folder} has {has}; expected the same")
    config = replace(head.config, steps=steps, ranks=())
    task: Task = MODELS[method].load_task()(config, _trunk(model, head.draft_ids.to(model.device)))
    task.learned = head.config.steps
    try:
        task.module.load_state_dict(head.weights)
    except RuntimeError as error:
        raise UserError(f"{folder} was trained for {task.learned} steps; expected --steps {task.learned}") from error
    return task


def count_vocabulary(task: Task, pair: Pair, rows: Sequence[TrainingRow], draft_vocab: int) -> None:
    """Let the task draft what these rows say most; no weight of a head depends on its draft vocabulary."""
    task.trunk = _counted(pair, rows, draft_vocab)
    task.config = replace(task.config, draft_vocab=len(task.trunk.ids))


def _counted(pair: Pair, rows: Sequence[TrainingRow], draft_vocab: int) -> Trunk:
    """The target's trunk over the tokens that these rows say most."""
    model = lean_target(pair)
    return _trunk(model, frequent_tokens(rows, draft_vocab, pair.stop, model.vocab_size).to(model.device))


def _trunk(model: LeanModel, ids: Tensor) -> Trunk:
    return Trunk(model.embedding.float(), model.output_rows(ids).float(), ids, model.num_layers)

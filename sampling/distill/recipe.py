"""From a loaded pair to a trained head: its data, its configuration, the weights it starts from."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from sampling.distill.batches import frequent_tokens
from sampling.distill.shards import Row, answer_tokens, read_shards, save_shard
from sampling.distill.tasks import TASKS, Task, Trunk
from sampling.distill.training import start_from
from sampling.distill.writing import Dialogue, Writer, Writing
from sampling.heads.checkpoint import fingerprint
from sampling.heads.config import HeadConfig, Kind
from sampling.lean import LeanModel
from sampling.pair import Pair
from utils.errors import UserError

SHARD = 64
DRAFT_VOCABULARY = 8192

Told = Callable[[int, int], None]


def lean_target(pair: Pair) -> LeanModel:
    """The target's lean form. Raises `UserError` for another architecture."""
    model = pair.target.model
    if not isinstance(model, LeanModel):
        raise UserError(f"{pair.target_info.name}: only targets with the lean forward can be trained for")
    return model


def feature_layers(model: LeanModel) -> tuple[int, ...]:
    """A low, a middle and the last layer, as EAGLE-3 reads them (arXiv 2503.01840)."""
    return model.num_layers // 3, 2 * model.num_layers // 3, model.num_layers


def write_data(
    pair: Pair, folder: Path, tokens: int, seed: int, refused: Callable[[str], bool], told: Told
) -> list[Row]:
    """At least `tokens` answer tokens of the target's own dialogues in the folder, written now as far as they lack.

    refused: user turns that must not be learned from, such as prompts that are measured with. Each shard has
    its own seed, so that a run that was killed goes on behind the last whole one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model = lean_target(pair)
    rows = read_shards(folder)
    done = sum(len(row.tokens) - row.answer for row in rows)
    while done < tokens:
        number = len(list(folder.glob("shard-*.safetensors")))
        how = Writing(seed=1_000_003 * seed + number)
        writer = Writer(model, pair.tokenizer, pair.stop, feature_layers(model), how)
        told(done, tokens)
        for part in _shards(writer, pair, refused):
            save_shard(folder, part)
            done += answer_tokens(part)
            told(done, tokens)
            if done >= tokens:
                break
    return read_shards(folder)


def _shards(writer: Writer, pair: Pair, refused: Callable[[str], bool]) -> Iterable[list[Dialogue]]:
    part: list[Dialogue] = []
    for dialogue in writer.write():
        if not refused(pair.decode(writer.user_turn(dialogue))):
            part.append(dialogue)
        if len(part) == SHARD:
            yield part
            part = []


def make_task(
    method: Kind, pair: Pair, rows: Iterable[Row], place: Path | None, draft_vocab: int, **changes: object
) -> Task:
    """The task of a method for the pair's target, its module at its starting weights.

    place: the folder with the target's checkpoint, whose last block an EAGLE or MTP head starts from; a
    distilled model starts from evenly chosen blocks. changes: fields of `HeadConfig`.
    """
    model = lean_target(pair)
    ids = frequent_tokens(rows, draft_vocab, pair.stop, model.vocab_size)
    trunk = Trunk(model.embedding.float(), model.output_rows(ids).float(), ids, model.num_layers)
    shape = model.blocks.shape
    config = HeadConfig(
        method=method,
        base=pair.target_info.name,
        base_digest=fingerprint(model.landmarks()),
        hidden_size=model.embedding.shape[1],
        vocab_size=model.vocab_size,
        draft_vocab=len(ids),
        features=feature_layers(model) if method == "eagle" else (model.num_layers,) if method == "mtp" else (),
        normed=method == "mtp",
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        window=model.window,
    )
    config = replace(config, **changes)  # type: ignore[arg-type]
    task = TASKS[method](config, trunk)
    if place is not None:
        start_from(task, _inherited(config, place, model.num_layers))
    return task


def _inherited(config: HeadConfig, place: Path, layers: int) -> dict[str, Tensor]:
    """Weights of the target's checkpoint under the names of the module."""
    if config.method in ("medusa", "hydra"):
        return {}
    if config.method == "model":
        spread = torch.linspace(0, layers - 1, config.layers).round().int().tolist()
        sources = {f"blocks.{place}.": f"model.layers.{layer}." for place, layer in enumerate(spread)}
    else:
        sources = {"block.": f"model.layers.{layers - 1}."}
    with safe_open(place / "model.safetensors", framework="pt") as file:
        found = {
            own + name.removeprefix(theirs): file.get_tensor(name).float()
            for name in file.keys()  # noqa: SIM118
            for own, theirs in sources.items()
            if name.startswith(theirs)
        }
        found["norm.weight"] = file.get_tensor("model.norm.weight").float()
    if config.method == "eagle":
        size = config.hidden_size
        found["fc.weight"] = torch.cat([torch.eye(size), torch.eye(size)], dim=1) * 0.5
        found["feature.weight"] = torch.cat([torch.eye(size) * (1.0 if last else 0.0) for last in _last(config)], dim=1)
    return found


def _last(config: HeadConfig) -> list[bool]:
    return [place == len(config.features) - 1 for place in range(len(config.features))]

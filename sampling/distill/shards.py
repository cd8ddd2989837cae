"""Dialogues on disk: safetensors files that are written whole, one after the other, and read as one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from filelock import FileLock, Timeout
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from sampling.distill.writing import Dialogue

_NAME, _EVERY, _LOCK = "shard-{:05d}.safetensors", "shard-*.safetensors", ".lock"


@contextmanager
def writing(folder: Path, waits: Callable[[], None]) -> Iterator[None]:
    """Hold the folder: two that write at once would write the same shards. waits: called where another one holds it.

    Read what is there inside, for what was read before may have grown meanwhile. Readers need no lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / _LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        waits()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def save_shard(folder: Path, dialogues: Sequence[Dialogue]) -> Path:
    """Write the next shard of a folder; it appears whole, by one rename."""
    path = folder / _NAME.format(shard_count(folder))
    layers = dialogues[0].states
    tensors = {
        "tokens": torch.tensor([t for d in dialogues for t in d.tokens], dtype=torch.int32),
        "lengths": torch.tensor([len(d.tokens) for d in dialogues], dtype=torch.int32),
        "greedy": torch.tensor([d.greedy for d in dialogues], dtype=torch.uint8),
        "answers": torch.tensor([d.answer for d in dialogues], dtype=torch.int32),
        **{f"states.{layer}": torch.cat([_padded(d.states[layer]) for d in dialogues]) for layer in layers},
    }
    scratch = path.with_suffix(".part")
    save_file(tensors, scratch)
    scratch.rename(path)
    return path


def shard_count(folder: Path) -> int:
    """How many shards a folder has."""
    return len(list(folder.glob(_EVERY)))


def _padded(states: Tensor) -> Tensor:
    """A row of zeros for the last token, which was never fed: then rows and tokens have one numbering."""
    return torch.cat([states, states.new_zeros(1, states.shape[1])])


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """A dialogue as read: ids `[n]`, where its answer starts, states `{layer: [n, H]}` (the last row is void)."""

    tokens: Tensor
    answer: int
    greedy: bool
    states: dict[int, Tensor]

    @property
    def is_text(self) -> bool:
        """Whether it is a piece of a text that was only read."""
        return self.answer <= 1

    def on(self, device: torch.device) -> "TrainingRow":
        """The same with its states there."""
        return replace(self, states={layer: states.to(device) for layer, states in self.states.items()})


def read_shards(folder: Path) -> list[TrainingRow]:
    """All dialogues of a folder; the states stay views of the mapped files."""
    return [row for path in sorted(folder.glob(_EVERY)) for row in _rows(path)]


def _rows(path: Path) -> Iterator[TrainingRow]:
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    states = {int(name.partition(".")[2]): tensor for name, tensor in tensors.items() if name.startswith("states.")}
    start = 0
    columns = (tensors[name].tolist() for name in ("lengths", "answers", "greedy"))
    for length, answer, greedy in zip(*columns, strict=True):
        part = slice(start, start + length)
        yield TrainingRow(
            tensors["tokens"][part].long(), answer, bool(greedy), {layer: rows[part] for layer, rows in states.items()}
        )
        start += length


def answer_tokens(dialogues: Iterable[Dialogue | TrainingRow]) -> int:
    """Tokens that the target wrote as answers: what a training budget counts."""
    return sum(len(d.tokens) - d.answer for d in dialogues)

"""The training loop: a checkpoint that goes on exactly where a kill stopped it, and a history that shows it."""

import errno
import hashlib
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sampling.distill.accuracy import Accuracy, accuracy
from sampling.distill.batches import TrainingBatch, batches
from sampling.distill.objective import Objective
from sampling.distill.shards import TrainingRow
from sampling.distill.tasks import Task
from sampling.forward.kernels.probe import claims_bfloat16
from utils.errors import UserError

CHECKPOINT = "training.pt"


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how fast: passes over the data, tokens a batch, learning rate at its highest.

    The rate rises over `warmup` steps and falls as a cosine to a tenth. every: steps between checkpoints,
    which are also where held-out drafts are counted. products: the dtype of matrix products, a key of `PRODUCTS`;
    weights, their changes and the loss are in float32 in any case.
    """

    epochs: int = 4
    batch_tokens: int = 1024
    rate: float = 1e-3
    warmup: int = 50
    every: int = 150
    seed: int = 0
    objective: Objective = field(default_factory=Objective)
    products: str = "auto"


@dataclass
class History:
    """What training has seen so far: one entry a step, and one a checkpoint."""

    losses: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    checked: list[int] = field(default_factory=list)
    conditional: list[tuple[float, ...]] = field(default_factory=list)
    tokens_per_round: list[float] = field(default_factory=list)
    seconds: float = 0.0


Watch = Callable[[int, int, History], None]


class Trainer:
    """Trains a task's module on rows. `run` may be killed at any moment and run again with the same arguments.

    began: hash of the weights of the head that learns further, empty for a new one.
    """

    def __init__(
        self,
        task: Task,
        rows: Sequence[TrainingRow],
        held_out: Sequence[TrainingRow],
        schedule: Schedule,
        device: torch.device,
        began: str = "",
    ) -> None:
        self.task, self.rows, self.schedule, self.device = task, rows, schedule, device
        self.history, self.products = History(), PRODUCTS[schedule.products](device)
        self._belongs = {
            **task.config.as_dict(),
            **asdict(schedule),
            "draft vocabulary": hash_of([task.trunk.ids]),
            "training data": hash_of([row.tokens for row in rows]),
            "weights it began with": began,
            "products": str(self.products),
        }
        self._layers = sorted({*task.config.features, task.trunk.last})
        self._held_out = [
            TrainingBatch.of(part, self._layers, device)
            for part in batches(held_out, schedule.batch_tokens, schedule.seed, epoch=0)
        ]
        self._epoch_steps = sum(1 for _ in batches(rows, schedule.batch_tokens, schedule.seed, epoch=0))
        task.module.to(device)
        self._optimizer = torch.optim.AdamW(task.module.parameters(), lr=schedule.rate, betas=(0.9, 0.95))

    @property
    def steps(self) -> int:
        """Steps in all."""
        return self._epoch_steps * self.schedule.epochs

    def run(self, folder: Path, watch: Watch, clock: Callable[[], float]) -> Accuracy:
        """Train to the end, from the folder's checkpoint where there is one; held-out accuracy at the end."""
        done = self._resume(folder)
        before = clock() - self.history.seconds
        for step, rows in self._batches(done):
            self._learn(step, TrainingBatch.of(rows, self._layers, self.device))
            self.history.tokens.append(sum(len(row.tokens) for row in rows))
            if (step + 1) % self.schedule.every == 0 or step + 1 == self.steps:
                accuracy_now = accuracy(self.task, self._held_out)
                self.history.checked.append(step + 1)
                self.history.conditional.append(accuracy_now.conditional)
                self.history.tokens_per_round.append(accuracy_now.tokens_per_round)
                self.history.seconds = clock() - before
                self._save(folder, step + 1)
            watch(step + 1, self.steps, self.history)
        return accuracy(self.task, self._held_out)

    def _batches(self, done: int) -> Any:
        """(step, rows) of all steps that are not done yet."""
        for epoch in range(done // self._epoch_steps, self.schedule.epochs):
            parts = batches(self.rows, self.schedule.batch_tokens, self.schedule.seed, epoch)
            for place, rows in enumerate(parts):
                step = epoch * self._epoch_steps + place
                if step >= done:
                    yield step, rows

    def _learn(self, step: int, batch: TrainingBatch) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = self.schedule.rate * self._factor(step)
        self._optimizer.zero_grad(set_to_none=True)
        with _products_in(self.products, self.device):
            loss = self.task.loss(batch, step / self.steps, self.schedule.objective)
        if not torch.isfinite(loss):
            lower = f"a --rate below {self.schedule.rate:g}"
            raise UserError(f"step {step + 1}: the loss is {loss.item()}; expected a finite one. Try {lower}")
        loss.backward()
        nn.utils.clip_grad_norm_(self.task.module.parameters(), 1.0)
        self._optimizer.step()
        self.history.losses.append(loss.item())

    def _factor(self, step: int) -> float:
        rise = min(1.0, (step + 1) / self.schedule.warmup)
        return rise * (0.55 + 0.45 * math.cos(math.pi * step / self.steps))

    def _save(self, folder: Path, step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        state = {
            "step": step,
            "belongs": self._belongs,
            "module": self.task.module.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "history": asdict(self.history),
        }
        scratch = folder / f".{CHECKPOINT}.{os.getpid()}"
        try:
            torch.save(state, scratch)
            scratch.replace(folder / CHECKPOINT)
        except RuntimeError as error:  # torch's word for a full disk
            why = f"cannot be written: {str(error).splitlines()[0]}"
            raise OSError(errno.EIO, why, str(folder / CHECKPOINT)) from error
        finally:
            scratch.unlink(missing_ok=True)

    def _resume(self, folder: Path) -> int:
        """Steps done so far, 0 without a checkpoint. Raises `UserError` for one of another training."""
        path = folder / CHECKPOINT
        if not path.is_file():
            return 0
        state: dict[str, Any] = torch.load(path, map_location=self.device, weights_only=True)
        there = state.get("belongs", {})
        other = [name for name, mine in self._belongs.items() if name not in there or there[name] != mine]
        if other:
            what = f"differs in {', '.join(other)}" if there else "does not say which"
            raise UserError(f"{path} is from another training: it {what}; repeat that command, or choose another --out")
        self.task.module.load_state_dict(state["module"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.history = History(**state["history"])
        return int(state["step"])


def _fastest_products(device: torch.device) -> torch.dtype:
    """bfloat16 on CUDA and on a CPU that has instructions for it, float32 elsewhere."""
    half = claims_bfloat16() if device.type == "cpu" else device.type == "cuda"
    return torch.bfloat16 if half else torch.float32


PRODUCTS: Mapping[str, Callable[[torch.device], torch.dtype]] = {
    "auto": _fastest_products,
    "bfloat16": lambda device: torch.bfloat16,
    "float32": lambda device: torch.float32,
}


@contextmanager
def _products_in(dtype: torch.dtype, device: torch.device) -> Iterator[None]:
    with warnings.catch_warnings(), torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
        warnings.filterwarnings("ignore", "Mismatch dtype between input and weight")  # norms have weights in float32
        yield


def hash_of(parts: Sequence[Tensor]) -> str:
    """sha256 of lists of ids, and of their lengths."""
    total = hashlib.sha256()
    for part in parts:
        ids = part.to("cpu", torch.int64).contiguous()
        total.update(len(ids).to_bytes(8, "little") + ids.numpy().tobytes())
    return total.hexdigest()

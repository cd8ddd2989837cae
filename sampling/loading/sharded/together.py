"""The processes of torchrun: connected once a call is known to be right, and what each does from then on."""

import atexit
import json
from dataclasses import replace
from functools import cache
from typing import NoReturn

import torch

from sampling.forward.causal_model import CausalModel
from sampling.forward.kernels.probe import AUTO, CALLED, kernel, use_kernel
from sampling.forward.sharded.follow import RankWorker
from sampling.forward.sharded.group import ProcessGroup
from sampling.forward.sharded.model import Leader, ShardedModel
from sampling.loading.checkpoint import LoadedModel, Placement
from sampling.loading.devices import prepared
from sampling.loading.heads import is_trained_model
from sampling.loading.options import RANDOM, SELF, LoadOptions
from sampling.loading.origin import resolve
from sampling.loading.sharded.checkpoint import Landmarks, load_part
from sampling.loading.stages import Progress, silent
from utils.device.torchrun import START, ProcessRank, seat
from utils.errors import UserError, wrong_value
from utils.text import first_line

_DEVICES = ("auto", "cpu", "cuda")


def refuse_together(options: LoadOptions, size: int) -> None:
    """Raise `UserError` for what several processes cannot do; all of them find it."""
    for name, allowed in (("target_weights", ("full",)), ("graphs", ("auto", "off")), ("compile", ("auto", "off"))):
        value = getattr(options, name)
        if value not in allowed:
            raise wrong_value(f"--{name.replace('_', '-')}", value, f"{' or '.join(allowed)} over {size} processes")
    if options.device not in _DEVICES:
        raise wrong_value("--device", options.device, f"{' or '.join(_DEVICES)}: each process takes its own of cuda")
    if (options.target or "").startswith(RANDOM):
        raise wrong_value("--target", options.target, f"a checkpoint: random weights are not cut over {size} processes")
    if options.drafter_tp and (options.drafter is None or is_trained_model(options.drafter)):
        raise wrong_value("--drafter-tp beside --drafter", options.drafter, "a model of its own, which can be cut")
    if (options.drafter or "").startswith(SELF):
        raise wrong_value("--drafter", options.drafter, f"a model of its own: the target is cut over {size} processes")


@cache
def leader() -> Leader:
    """The first process's hold on the others, who are told to stop when it ends."""
    leader = Leader(_connected())
    atexit.register(leader.stop)
    return leader


def follow_first() -> NoReturn:
    """What the other processes do: their part, until the first is through; then they end with status 0."""
    group = _connected()
    RankWorker(group, lambda text: _load_as_told(text, group)).follow()
    raise SystemExit(0)


def load_together(model: str | None, place: Placement, trust: bool, progress: Progress) -> LoadedModel:
    """A model over all processes, as the first one has it. Raises `UserError` where one of them does."""
    if (model or "").startswith(RANDOM):
        raise wrong_value("--drafter", model, "a checkpoint: random weights are not cut")
    first = leader()
    name = CALLED[kernel(place.device.type, place.dtype)]
    dtype = str(place.dtype).removeprefix("torch.")
    request = {"given": model, "device": place.device.type, "dtype": dtype, "trust": trust, "kernel": name}
    number, (loaded, landmarks) = first.load(
        json.dumps(request), lambda: _part(model, place, trust, first.group, progress)
    )
    return replace(loaded, model=ShardedModel(loaded.model, number, first, landmarks))


def own_device(device: torch.device, here: ProcessRank) -> torch.device:
    """The device of this process: of cuda the one with its number. Raises `UserError` where there is none."""
    if device.type != "cuda":
        return device
    count = torch.cuda.device_count()
    if here.local_rank >= count:
        raise UserError(
            f"this machine has {count} GPUs, and process {here.rank} is number {here.local_rank} here; expected "
            f"--nproc-per-node {count} or less, or --device cpu"
        )
    torch.cuda.set_device(here.local_rank)
    return prepared(torch.device("cuda", here.local_rank))


def _load_as_told(text: str, group: ProcessGroup) -> CausalModel:
    """The part of a process that is not the first."""
    request = json.loads(text)
    kind, dtype = torch.device(request["device"]), getattr(torch, request["dtype"])
    use_kernel(request["kernel"] if kind.type == "cpu" else AUTO)
    loaded, _ = _part(request["given"], Placement(kind, dtype), request["trust"], group, silent)
    return loaded.model


def _part(
    model: str | None, place: Placement, trust: bool, group: ProcessGroup, progress: Progress
) -> tuple[LoadedModel, Landmarks]:
    """The model that a user's words mean; on each machine one process looks first, as it may have to convert a file."""
    here = group.seat
    agreed_origin = group.agreed(lambda: None if here.local_rank else resolve(model, progress))
    origin = group.agreed(lambda: agreed_origin or resolve(model, progress))
    progress(f"Loading {origin.name} over {here.size} processes")
    device = group.agreed(lambda: own_device(place.device, here))
    return load_part(origin, replace(place, device=device), trust, group)


def _connected() -> ProcessGroup:
    """All processes. Raises `SystemExit` with a line where they do not find each other."""
    here = seat()
    assert here is not None
    try:
        return ProcessGroup(here)
    except (RuntimeError, ValueError) as error:
        raise SystemExit(
            f"error: process {here.rank} of {here.size} cannot reach the others ({first_line(error)}); expected a "
            f"start by torchrun, as in `{START}`"
        ) from error

"""Where a model runs and in which dtype: what a user may write, and what `auto` decides by looking."""

import re

import torch

from sampling.forward.kernels.probe import computes_bfloat16
from sampling.loading.options import DEVICES, DTYPES
from utils.errors import UnknownName, UserError, one_of


def choose_device(name: str) -> torch.device:
    """The device a user named; `auto` takes CUDA, then MPS, then the CPU.

    Raises `UserError` for a name that is none and for a device that this machine lacks.
    """
    if name == "auto":
        return prepared(torch.device("cuda" if torch.cuda.is_available() else "mps" if _has_mps() else "cpu"))
    matched = re.fullmatch(r"(cpu|mps|cuda)(?::(\d+))?", name)
    if matched is None or (matched[2] and matched[1] != "cuda"):
        raise UnknownName("device", name, DEVICES)
    usable = _usable()
    if name not in usable:
        raise UserError(f"device {name!r} given, which this machine does not have; expected {one_of(usable)}")
    return prepared(torch.device(name))


def prepared(device: torch.device) -> torch.device:
    """The device, once torch was told what suits decoding.

    cuDNN's attention plans anew for every number of rows and columns, which takes longer than a forward where a text
    grows by a few tokens a round.
    """
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype a user named; `auto` takes the one that the device computes fastest in.

    CUDA: bfloat16 where supported, else float16. MPS: float16. CPU: float32, unless a probe finds
    bfloat16 faster. Raises `UnknownName`.
    """
    if name not in DTYPES:
        raise UnknownName("dtype", name, DTYPES)
    if name != "auto":
        dtype: torch.dtype = getattr(torch, name)
        return dtype
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    if device.type == "cpu":
        return torch.bfloat16 if computes_bfloat16() else torch.float32
    return torch.float16


def _has_mps() -> bool:
    return torch.backends.mps.is_available()


def _usable() -> tuple[str, ...]:
    """Names that this machine can serve."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    cuda = ("cuda", *(f"cuda:{index}" for index in range(count))) if count else ()
    return ("auto", "cpu", *cuda, *(("mps",) if _has_mps() else ()))

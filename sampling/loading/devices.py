"""Where a model runs and in which dtype: what a user may write, and what `auto` decides by looking."""

import os
import re
from pathlib import Path

import torch

from sampling.forward.kernels.probe import computes_bfloat16
from sampling.loading.options import DEVICES, DTYPES
from utils.errors import UnknownName, UserError, one_of
from utils.text import first_line

_DRIVER = Path("/proc/driver/nvidia/version")


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


def why_no_cuda() -> str | None:
    """Why torch finds no CUDA device beside an NVIDIA driver, as a sentence; None where it finds one, or no driver is.

    Example: "An NVIDIA driver 550.54.15 is there, and torch 2.15.0 finds no CUDA device: ..."
    """
    if torch.cuda.is_available() or not _DRIVER.exists():
        return None
    found = re.search(r"Module.*?(\d+(?:\.\d+)+)", _DRIVER.read_text(encoding="utf-8", errors="replace"))
    driver = f"An NVIDIA driver {found[1]}" if found else "An NVIDIA driver"
    lacking = f"torch {torch.__version__} finds no CUDA device: {_cuda_error()}"
    return f"{driver} is there, and {lacking}. Computing on the CPU (docs/gpu.md)."


def _cuda_error() -> str:
    if torch.version.cuda is None:
        return "it was built without CUDA"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return first_line(error).rstrip(".")
    return f"CUDA_VISIBLE_DEVICES is {os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')}"


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

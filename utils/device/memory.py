"""How much memory a run took."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
import torch
from torch import Tensor

_LINE = 64


def reset_peak_memory(device: torch.device) -> None:
    """Start a new peak on a CUDA device; a process's own peak cannot be reset."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_mb(device: torch.device) -> float | None:
    """CUDA: peak allocated since the last reset; else the process's peak resident memory, in 10^6 bytes.

    None where the system does not tell (Windows).
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    return process_peak_mb()


def process_peak_mb() -> float | None:
    """The most resident memory that this process has had, in 10^6 bytes; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    if sys.platform == "linux":  # there `ru_maxrss` is at least the peak of the process that started this one
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def process_memory_mb() -> float:
    """Resident memory of this process now, in 10^6 bytes."""
    return float(psutil.Process().memory_info().rss) / 1e6


def device_memory_mb(device: torch.device) -> float | None:
    """Memory that is allocated on a CUDA device now, in 10^6 bytes; None elsewhere."""
    return torch.cuda.memory_allocated(device) / 1e6 if device.type == "cuda" else None


def zeros(shape: Sequence[int], like: Tensor) -> Tensor:
    """Zeros with the type and device of another tensor. On a CPU a page takes memory only once it is written."""
    size = math.prod(shape) * like.element_size()
    if like.device.type != "cpu" or not size:
        return like.new_zeros(tuple(shape))
    held = np.zeros(size + _LINE, np.uint8)  # by calloc, where torch writes the zeros
    start = -held.ctypes.data % _LINE
    return torch.from_numpy(held)[start : start + size].view(like.dtype).view(*shape)

"""Where a model runs and in which dtype: what a user may write, and what `auto` decides by looking."""

import re
from functools import cache

import torch

from sampling.linear import kernel, median_s
from utils.errors import UnknownName, UserError

DEVICES = ("auto", "cpu", "cuda", "cuda:1", "mps")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_PROBE_SHAPE = (1536, 576)
_PROBE_ROWS = (1, 5)


def choose_device(name: str) -> torch.device:
    """The device a user named; `auto` takes CUDA, then MPS, then the CPU.

    Raises `UserError` for a name that is none and for a device that this machine lacks.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "mps" if _has_mps() else "cpu")
    matched = re.fullmatch(r"(cpu|mps|cuda)(?::(\d+))?", name)
    if matched is None or (matched[2] and matched[1] != "cuda"):
        raise UnknownName("device", name, DEVICES)
    usable = _usable()
    if name not in usable:
        raise UserError(f"device {name!r} given; this machine has no such device; allowed: {', '.join(usable)}")
    return torch.device(name)


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype a user named; `auto` takes the one that the device computes fastest in.

    CUDA: bfloat16 where supported, else float16. MPS: float16. CPU: float32, unless a probe finds
    bfloat16 faster. Raises `UnknownName`.
    """
    if name != "auto" and name not in DTYPES:
        raise UnknownName("dtype", name, ("auto", *DTYPES))
    if name != "auto":
        return DTYPES[name]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    if device.type == "cpu":
        return _cpu_dtype()
    return torch.float16


@cache
def _cpu_dtype() -> torch.dtype:
    """bfloat16 where its product is faster for 1 row and for 5 rows, which CPU flags do not tell."""
    half = all(_product_s(torch.bfloat16, rows) < _product_s(torch.float32, rows) for rows in _PROBE_ROWS)
    return torch.bfloat16 if half else torch.float32


def _product_s(dtype: torch.dtype, rows: int) -> float:
    """Median seconds of one linear layer of a small model, by the kernel that the engine would use."""
    generator = torch.Generator().manual_seed(0)
    layer = kernel("cpu", dtype)(torch.randn(_PROBE_SHAPE, generator=generator).to(dtype))
    x = torch.randn(rows, _PROBE_SHAPE[1], generator=generator).to(dtype)
    return median_s(layer, x)


def _has_mps() -> bool:
    return torch.backends.mps.is_available()


def _usable() -> tuple[str, ...]:
    """Names that this machine can serve."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    cuda = ("cuda", *(f"cuda:{index}" for index in range(count))) if count else ()
    return ("auto", "cpu", *cuda, *(("mps",) if _has_mps() else ()))

"""Where our Triton kernels may compute: on CUDA cards with tensor cores of bfloat16, where Triton is installed."""

import os
from functools import cache
from importlib.util import find_spec

import torch

from sampling.forward.cpp.library import own_kernels

CAPABILITY = (8, 0)


def may_use(device: torch.device) -> bool:
    """Whether they are allowed, and can be had on this device."""
    return own_kernels() and (
        interpreted() if device.type == "cpu" else device.type == "cuda" and _on_cards(device.index)
    )


def interpreted() -> bool:
    """Whether Triton's interpreter is asked for, which runs kernels on a CPU, very slowly, to see what they compute."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def _on_cards(index: int | None) -> bool:
    if find_spec("triton") is None or torch.version.hip is not None or not torch.cuda.is_available():
        return False
    return torch.cuda.get_device_capability(index) >= CAPABILITY

"""A call of a Triton kernel as data: tests compile it for cards that are not there."""

from dataclasses import dataclass
from typing import Any

import torch

OPTIONS = {"num_stages": 2, "enable_fp_fusion": True}
"""How kernels are compiled: two steps of a loop are under way at a time, and a sum of a product is rounded once."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel and what it is called with: `kernel[grid](*arguments, **constants)`."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: dict[str, Any]

    def run(self) -> None:
        """Queue it on the device of its first tensor."""
        with torch.cuda.device_of(self.arguments[0]):
            self.kernel[self.grid](*self.arguments, **self.constants)


def power_of_two(size: int) -> int:
    """The next one, 16 at the least, as products of tiles need it."""
    return max(16, 1 << (size - 1).bit_length())

"""The formats that a model's weights may have: which products compute it."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from sampling.forward import int4, int8
from sampling.forward.int4 import Int4Linear
from sampling.forward.int8 import FineInt8Linear
from sampling.forward.kernels import make_linear
from sampling.forward.linear import Kernel
from utils.errors import UserError

FULL = "full"


@dataclass(frozen=True, slots=True)
class Format:
    """What computes the products of the blocks and that of the output matrix.

    steady: whether a row has to come out the same, bit for bit, whatever is computed beside it. Where inputs are
    rounded, a difference in the last bit before becomes one of a whole step behind.
    """

    blocks: Kernel
    output: Kernel
    steady: bool = False


FORMATS: Mapping[str, Format] = {
    FULL: Format(make_linear, make_linear),
    "int8": Format(FineInt8Linear, FineInt8Linear, steady=True),
    # As files of 4 bits have it: the output matrix, which is often the embedding, is left at 8.
    "int4": Format(Int4Linear, FineInt8Linear, steady=True),
}


def refuse_format(name: str, device: torch.device, asked: str) -> None:
    """Raise `UserError` where this machine has no products of a format. asked: the words that asked for it."""
    if name == FULL:
        return
    if device.type != "cpu" or not int8.runs() or (name == "int4" and not int4.runs()):
        raise UserError(
            f"{asked} given; the products in {name} run on x86 CPUs, and the model is on {device}; expected full"
        )

"""The formats that a model's weights may have: which products compute it, and where they run."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from sampling.forward.kernels import int4, int8
from sampling.forward.kernels.autotuning import KernelTrial, autotune
from sampling.forward.kernels.cuda_formats import FP8_CAPABILITY, CudaInt4Linear, CudaInt8Linear, Fp8Linear, agrees
from sampling.forward.kernels.int4 import OUTPUTS, int4_product
from sampling.forward.kernels.int8 import fine_int8
from sampling.forward.kernels.linear import Kernel, Product
from sampling.forward.kernels.probe import make_linear
from sampling.forward.kernels.q8_0 import grouped_or_fine
from sampling.forward.kernels.quantisation_scales import GROUP
from utils.errors import UserError, one_of

FULL = "full"


@dataclass(frozen=True, slots=True)
class Format:
    """What computes the products of the blocks and that of the output matrix.

    batch_invariant: whether a row has to come out the same on a CPU, bit for bit, whatever is computed beside it. Where
    inputs are rounded, a difference in the last bit before becomes one of a whole step behind. multiples: of what the
    inputs and the outputs of the blocks' products have to be.
    """

    blocks: Kernel
    output: Kernel
    batch_invariant: bool = False
    multiples: tuple[int, int] = (1, 1)

    def batch_invariant_on(self, device: torch.device) -> bool:
        """Whether it can be had here: elsewhere products choose the order of their sums by their shape."""
        return self.batch_invariant and device.type == "cpu"


def _by_device(**kernels: Kernel) -> Kernel:
    """The kernel of the type of device that a weight is on."""

    def make(weight: Tensor, bias: Tensor | None = None) -> Product:
        return kernels[weight.device.type](weight, bias)

    return make


def _where_it_divides(kernel: Kernel, otherwise: Kernel) -> Kernel:
    """A kernel that takes only some shapes, and another for matrices of the others."""

    def make(weight: Tensor, bias: Tensor | None = None) -> Product:
        return (kernel if int4.divides(weight) else otherwise)(weight, bias)

    return make


_INT8 = _by_device(cpu=fine_int8, cuda=CudaInt8Linear)

FORMATS: Mapping[str, Format] = {
    FULL: Format(make_linear, make_linear),
    "int8": Format(_by_device(cpu=grouped_or_fine, cuda=CudaInt8Linear), _INT8, batch_invariant=True),
    # As files of 4 bits have it: the output matrix, which is often the embedding, is left at 8. On CUDA it is left
    # whole: torch's product in 8 bits is slower there than one in bfloat16.
    "int4": Format(
        _by_device(cpu=int4_product, cuda=CudaInt4Linear),
        _by_device(cpu=fine_int8, cuda=make_linear),
        batch_invariant=True,
        multiples=(GROUP, OUTPUTS),
    ),
    "fp8": Format(Fp8Linear, _where_it_divides(Fp8Linear, make_linear), multiples=(GROUP, OUTPUTS)),
}

_LARGE = 4096, 4096
"""A layer of a model of 8 billion weights: where a format ought to pay on a card."""
_log = logging.getLogger(__name__)
_BOTH = "x86 CPUs and on CUDA"
_WHERE = {
    "int8": _BOTH,
    "int4": _BOTH,
    "fp8": f"CUDA cards of compute capability {'.'.join(map(str, FP8_CAPABILITY))} or more",
}


def refuse_format(name: str, device: torch.device, asked: str) -> None:
    """Raise `UserError` where this machine has no products of a format. asked: the words that asked for it."""
    if _runs(name, device):
        if name != FULL and device.type == "cuda":
            warn_where_slower(name, device)
        return
    allowed = one_of([name for name in FORMATS if _runs(name, device)])
    raise UserError(
        f"{asked} given; the products in {name} run on {_WHERE[name]}, and the model is on {_told(device)}; "
        f"expected {allowed}"
    )


@cache
def warn_where_slower(name: str, device: torch.device, size: tuple[int, int] = _LARGE) -> None:
    """Say it where products in a format take longer than those of full weights in bfloat16; size: see `KernelTrial`."""
    race = KernelTrial([(FORMATS[name].blocks, torch.bfloat16), (make_linear, torch.bfloat16)], device, size)
    if not autotune(race.turn, lambda fastest: sum(fastest[0]) <= sum(fastest[1]), otherwise=True).answer:
        _log.warning("products in %s take longer on %s than those of full weights in bfloat16", name, _told(device))


def _runs(name: str, device: torch.device) -> bool:
    if name == FULL:
        return True
    if device.type == "cpu":
        return name != "fp8" and int8.runs() and (name == "int8" or int4.runs())
    if device.type != "cuda":
        return False
    return agrees({"int8": CudaInt8Linear, "int4": CudaInt4Linear, "fp8": Fp8Linear}[name], device)


def _told(device: torch.device) -> str:
    """The device in words, with what a card can do."""
    if device.type != "cuda":
        return str(device)
    major, minor = torch.cuda.get_device_capability(device)
    return f"{device} of compute capability {major}.{minor}"

"""Our fused steps, and products of rounded weights."""

from collections.abc import Iterator
from functools import partial

import torch

from ablation.gpu_check.probe.trial import Numbers, Probe, ProbeDevice, compared
from ablation.gpu_check.record import LeftOut
from sampling.forward.kernels.cuda_formats import FP8_CAPABILITY, CudaInt4Linear, CudaInt8Linear, Fp8Linear
from sampling.forward.kernels.formats import FORMATS, refuse_format
from sampling.forward.models.steps import BlockShape
from sampling.forward.triton.checked import Trial, step_trials
from sampling.forward.triton.choice import may_use
from sampling.forward.triton.steps import TritonSteps
from utils.errors import UserError

_SHAPES = {"8B": BlockShape(32, 8, 128), "135M": BlockShape(9, 3, 64)}
_ROWS = (1, 5, 17, 64)
_OF_CARDS = {"int8": CudaInt8Linear, "int4": CudaInt4Linear, "fp8": Fp8Linear}
# How far a product may be from one of whole weights, in shares of its largest number.
_ROUNDED = {"int8": 0.03, "int4": 0.15, "fp8": 0.1}
_SIDE, _TINY_SIDE = 4096, 256


def fused(on: ProbeDevice) -> Iterator[Probe]:
    """Each kernel beside plain operations, in the heads of two models and two number formats."""
    for model, shape in _SHAPES.items():
        for dtype in (torch.float32, torch.bfloat16):
            for name, trial in step_trials(on.device, dtype, shape).items():
                told = f"{name}: {model}, {str(dtype).removeprefix('torch.')}"
                yield Probe(told, TritonSteps, partial(_fused, on, trial, dtype))


def _fused(on: ProbeDevice, trial: Trial, dtype: torch.dtype) -> Numbers:
    if not may_use(on.device):
        raise LeftOut("needs Triton and a card of compute capability 8.0")
    with torch.inference_mode():
        found, expected = trial()
        return compared(lambda: found, expected, on, 0.03 if dtype == torch.bfloat16 else 1e-4, timed=False)


def products(on: ProbeDevice) -> Iterator[Probe]:
    """Each format of weights, few rows and many."""
    for name in _ROUNDED:
        for rows in _ROWS:
            of = _OF_CARDS[name] if on.card else FORMATS[name].blocks
            yield Probe(f"product in {name}: {rows} rows", of, partial(_product, on, name, rows))


def _product(on: ProbeDevice, name: str, rows: int) -> Numbers:
    if not on.card:
        try:
            refuse_format(name, on.device, name)
        except UserError as error:
            raise LeftOut(str(error)) from error
    elif name == "fp8" and torch.cuda.get_device_capability(on.device) < FP8_CAPABILITY:
        raise LeftOut(f"needs compute capability {'.'.join(map(str, FP8_CAPABILITY))}")
    side = _TINY_SIDE if on.tiny else _SIDE
    weight, x = on.drawn(side, side, seed=4), on.drawn(rows, side, seed=5)
    with torch.inference_mode():
        product = FORMATS[name].blocks(weight)
        return compared(lambda: product(x), x.double() @ weight.double().T, on, _ROUNDED[name])

"""The choice of the kernel that computes products on this machine, and of the number format on a CPU."""

from collections.abc import Mapping, Sequence
from functools import cache

import torch
from torch import Tensor

from sampling.forward.cpp.dense import DenseNativeLinear, dense_kernel
from sampling.forward.kernels import autotune_cache
from sampling.forward.kernels.autotuning import KernelTrial, Times, TrialVerdict, autotune
from sampling.forward.kernels.linear import DenseLinear, Kernel, Linear, PackedLinear, Product, WideningLinear
from utils.errors import UserError

_OWN, _PACKED, _HALF = "own kernel", "packed kernel", "bfloat16"
_CLEARLY = 1.05
AUTO = "auto"
# How a user calls each kernel of a CPU.
CALLED: dict[object, str] = {
    DenseNativeLinear: "own",
    PackedLinear: "packed",
    DenseLinear: "plain",
    WideningLinear: "plain",
}
KERNELS = {AUTO: (None, None), "own": (True, None), "packed": (False, True), "plain": (False, False)}
"""By what a user types, whether our own products and packed ones are taken; None: what a probe found faster."""


def use_kernel(name: str) -> None:
    """What every layer made from now on has: one of `KERNELS`; auto: what a probe found faster."""
    own, packed = KERNELS[name]
    autotune_cache.give(_OWN, own)
    autotune_cache.give(_PACKED, packed)


def refuse_kernel(name: str, places: Mapping[torch.device, torch.dtype]) -> None:
    """Raise `UserError` where own or packed products are asked for, and no place is a CPU, or one lacks them."""
    formats = [dtype for device, dtype in places.items() if device.type == "cpu"]
    if name not in ("own", "packed") or (formats and all(_runs(name, dtype) for dtype in formats)):
        return
    where = " and ".join(f"{_name(dtype)} on {device}" for device, dtype in places.items())
    others = ", ".join(other for other in KERNELS if other != name)
    raise UserError(f"kernel {name!r} given; this machine has no {name} products in {where}; expected one of {others}")


def _runs(name: str, dtype: torch.dtype) -> bool:
    return packs(dtype) if name == "packed" else dense_kernel(dtype) is not None


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Product:
    """The layer with the kernel that is in use for this device and dtype."""
    weight = weight.detach().contiguous()
    bias = None if bias is None else bias.detach()
    return kernel(weight.device.type, weight.dtype)(weight, bias)


def kernel(device_type: str, dtype: torch.dtype) -> Kernel:
    """Our own kernel where it runs and is not clearly slower than torch's for 1 plus 5 tokens."""
    if device_type != "cpu":
        return DenseLinear
    ours = dense_kernel(dtype) is not None
    if ours and autotune_cache.choose(
        _OWN, _name(dtype), lambda: _first_or_second(DenseNativeLinear, _torchs(dtype), dtype)
    ):
        return DenseNativeLinear
    return _torchs(dtype)


def copies_weights(device_type: str, dtype: torch.dtype) -> bool:
    """Whether the kernel in use lays a weight out anew, so that it holds a copy."""
    return kernel(device_type, dtype) not in (DenseLinear, WideningLinear)


def _torchs(dtype: torch.dtype) -> Kernel:
    """`PackedLinear` where it runs, agrees with the plain kernel and is not clearly slower.

    Where oneDNN refuses the dtype, because the CPU has no arithmetic of it: `WideningLinear`.
    """
    if not torch.backends.mkldnn.enabled:
        return DenseLinear
    if not packs(dtype):
        return DenseLinear if dtype == torch.float32 else WideningLinear
    packed = autotune_cache.choose(_PACKED, _name(dtype), lambda: _first_or_second(PackedLinear, DenseLinear, dtype))
    return PackedLinear if packed else DenseLinear


def kernel_name(layer: Linear, device: torch.device) -> str | None:
    """How a user calls the kernel of a layer; None where there was no choice: off a CPU, and of rounded weights."""
    return None if device.type != "cpu" else CALLED.get(type(layer))


@cache
def packs(dtype: torch.dtype) -> bool:
    """Whether oneDNN computes packed products of this dtype here, and rightly."""
    chance = torch.Generator().manual_seed(0)
    weight, x = (torch.randn(rows, 64, generator=chance).to(dtype) for rows in (96, 5))
    try:
        packed, dense = PackedLinear(weight)(x), DenseLinear(weight)(x)
    except (RuntimeError, AttributeError):
        return False
    return torch.allclose(packed, dense, rtol=2e-2, atol=2e-2 * weight.shape[1] ** 0.5)


def _first_or_second(first: Kernel, second: Kernel, dtype: torch.dtype) -> TrialVerdict:
    """The first, unless the second is clearly faster."""
    race = KernelTrial([(first, dtype), (second, dtype)])
    return autotune(race.turn, lambda fastest: first_wins(*fastest), otherwise=True)


def first_wins(first: Times, second: Times) -> bool:
    """Seconds of a pass of each, for each of `ROWS` rows -> whether the first is taken; a draw is its."""
    return sum(first) <= _CLEARLY * sum(second)


def computes_bfloat16() -> bool:
    """Whether a CPU's products in bfloat16 are faster for 1 row and for 5 rows, which its flags do not tell."""
    contenders = [(kernel("cpu", dtype), dtype) for dtype in (torch.bfloat16, torch.float32)]
    case = " against ".join(CALLED[kind] for kind, _ in contenders)
    return autotune_cache.choose(_HALF, case, lambda: _half_or_full(contenders))


def _half_or_full(contenders: Sequence[tuple[Kernel, torch.dtype]]) -> TrialVerdict:
    """bfloat16 where it always wins; undecided, where the CPU says that it has instructions of it."""
    race = KernelTrial(contenders)
    return autotune(race.turn, lambda fastest: always_faster(*fastest), otherwise=claims_bfloat16())


def claims_bfloat16() -> bool:
    """Whether the CPU says that it has instructions for products in bfloat16 (AVX512-BF16 or AMX)."""
    claims = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(bool(getattr(torch.cpu, claim, bool)()) for claim in claims)


def always_faster(half: Times, full: Times) -> bool:
    """Whether the first is faster at every row count."""
    return all(a < b for a, b in zip(half, full, strict=True))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")

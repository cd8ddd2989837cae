"""The choice of the kernel that computes products on this machine, and of the number format on a CPU."""

from collections.abc import Mapping, Sequence
from functools import cache

import torch
from torch import Tensor

from sampling.forward.kernels import autotune_cache
from sampling.forward.kernels.autotuning import KernelTrial, Times, TrialVerdict, autotune
from sampling.forward.kernels.linear import DenseLinear, Kernel, Linear, PackedLinear, Product, WideningLinear
from utils.errors import UserError

_PACKED, _HALF = "packed kernel", "bfloat16"
_CLEARLY = 1.05
# How a user calls each kernel of a CPU.
CALLED: dict[object, str] = {PackedLinear: "packed", DenseLinear: "plain", WideningLinear: "plain"}


def use_packed(answer: bool | None) -> None:
    """Whether every layer made from now on has the packed kernel; None: where a probe found it faster."""
    autotune_cache.give(_PACKED, answer)


def refuse_unpacked(places: Mapping[torch.device, torch.dtype]) -> None:
    """Raise `UserError` where packed products are asked for and none of these places, or not every CPU, has them."""
    formats = [dtype for device, dtype in places.items() if device.type == "cpu"]
    if not formats or not all(packs(dtype) for dtype in formats):
        where = " and ".join(f"{_name(dtype)} on {device}" for device, dtype in places.items())
        raise UserError(
            f"kernel 'packed' given; this machine has no packed products in {where}; expected one of auto, plain"
        )


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Product:
    """The layer with the kernel that is in use for this device and dtype."""
    weight = weight.detach().contiguous()
    bias = None if bias is None else bias.detach()
    return kernel(weight.device.type, weight.dtype)(weight, bias)


def kernel(device_type: str, dtype: torch.dtype) -> Kernel:
    """`PackedLinear` where it runs, agrees with the plain kernel and is not clearly slower for 1 plus 5 tokens.

    Where oneDNN refuses the dtype, because the CPU has no arithmetic of it: `WideningLinear`.
    """
    if device_type != "cpu" or not torch.backends.mkldnn.enabled:
        return DenseLinear
    if not packs(dtype):
        return DenseLinear if dtype == torch.float32 else WideningLinear
    return (
        PackedLinear if autotune_cache.choose(_PACKED, _name(dtype), lambda: _packed_or_plain(dtype)) else DenseLinear
    )


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


def _packed_or_plain(dtype: torch.dtype) -> TrialVerdict:
    """Packed, unless the plain kernel is clearly faster."""
    race = KernelTrial([(PackedLinear, dtype), (DenseLinear, dtype)])
    return autotune(race.turn, lambda fastest: packed_wins(*fastest), otherwise=True)


def packed_wins(packed: Times, plain: Times) -> bool:
    """Seconds of a pass of each, for each of `ROWS` rows -> whether the packed kernel is taken; a draw is its."""
    return sum(packed) <= _CLEARLY * sum(plain)


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

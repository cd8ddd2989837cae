"""A product of weights in 8 bits by our kernel (W8A16): inputs keep their format, levels are exact in it."""

import torch
from torch import Tensor

from sampling.forward.triton.choice import interpreted
from sampling.forward.triton.launch import OPTIONS, Launch

_FEW, _MANY = 16, 64


def product_of_bytes(x: Tensor, levels: Tensor, scale: Tensor) -> Tensor:
    """`[n, in]` by levels `[out, in]` in int8, each output times its scale `[out]` -> `[n, out]`; sums in float32."""
    out = x.new_empty(len(x), len(levels))
    multiplying(x, levels, scale, out).run()
    return out


def multiplying(x: Tensor, levels: Tensor, scale: Tensor, out: Tensor) -> Launch:
    """The kernel that does it. The last dimension of x lies side by side; all of a matrix is read once for 16 rows."""
    from sampling.forward.triton.byte_kernels import rows_by_bytes

    (rows, inputs), outputs = x.shape, len(levels)
    tall = _FEW if rows <= _FEW or x.dtype == torch.float32 else _MANY
    sizes = {"TALL": tall, "WIDE": 16 if tall == _FEW else 64, "DEEP": 64 if x.dtype == torch.float32 else 128}
    return Launch(
        rows_by_bytes,
        (-(-outputs // sizes["WIDE"]), -(-rows // tall)),
        (x, levels, scale, out, rows, outputs, inputs, x.stride(0)),
        {**sizes, "WIDENED": interpreted(), "num_warps": 4, **OPTIONS},
    )

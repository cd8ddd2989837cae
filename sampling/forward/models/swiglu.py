"""The gate of an MLP, SiLU(gate) * up, whose rows do not depend on where torch divides its work among threads."""

import torch
from torch import Tensor
from torch.nn import functional as F

ONE_THREAD = 2**15 - 1


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """Gate and up side by side, `[n, 2 I]` -> `[n, I]`.

    Of 2^15 numbers on, torch gives each thread of a CPU a share, which may end inside a row. The numbers beside such a
    border are computed one by one, and differ in the last bit from those computed side by side.
    """
    gate, up = gate_up.chunk(2, dim=-1)
    rows = max(1, ONE_THREAD // gate.shape[1])
    if gate.device.type != "cpu" or len(gate) <= rows:
        return F.silu(gate) * up
    return torch.cat([F.silu(few) for few in gate.split(rows)]) * up

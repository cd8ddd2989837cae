"""Products with weights in 8 bits, each of which is read once for all rows of a tile."""

import triton
import triton.language as tl

from sampling.forward.triton.attention_kernels import product


@triton.jit(do_not_specialize=["rows"])
def rows_by_bytes(
    x,  # [rows, inputs], rows x_row apart
    levels,  # [outputs, inputs] int8
    scale,  # [outputs] float32
    out,  # [rows, outputs]
    rows,
    outputs,
    inputs,
    x_row,
    TALL: tl.constexpr,
    WIDE: tl.constexpr,
    DEEP: tl.constexpr,
    WIDENED: tl.constexpr,
):
    row = tl.program_id(1) * TALL + tl.arange(0, TALL)
    column = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    fed, wanted = row < rows, column < outputs
    total = tl.zeros([TALL, WIDE], tl.float32)
    for start in range(0, inputs, DEEP):
        at = start + tl.arange(0, DEEP)
        inside = at < inputs
        given = tl.load(x + row.to(tl.int64)[:, None] * x_row + at, mask=fed[:, None] & inside, other=0.0)
        bytes = tl.load(levels + column.to(tl.int64)[:, None] * inputs + at, mask=wanted[:, None] & inside, other=0)
        weight = bytes.to(tl.float32) if WIDENED else bytes.to(given.dtype)
        total += product(given, tl.trans(weight), WIDENED)
    answer = total * tl.load(scale + column, mask=wanted, other=0.0)
    place = row.to(tl.int64)[:, None] * outputs + column
    tl.store(out + place, answer.to(out.dtype.element_ty), mask=fed[:, None] & wanted)

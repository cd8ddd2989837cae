"""What lies between the products of a block, in three kernels. Numbers are rounded where the plain steps round them."""

import triton
import triton.language as tl


@triton.jit
def root_mean_square(x, width, eps):
    """1 / sqrt(mean(x^2) + eps) of a row of float32 that zeros fill up."""
    return tl.rsqrt(tl.sum(x * x, 0) / width + eps)


@triton.jit
def fp8_scale(largest, LARGEST: tl.constexpr, LOWEST: tl.constexpr):
    """The scale of a row in e4m3 whose largest number this is; see `in_fp8`."""
    return tl.math.div_rn(tl.maximum(largest, LOWEST), LARGEST)


@triton.jit(do_not_specialize=["width"])
def add_and_norm(
    x,  # [n, width], as all rows here
    added,
    after,  # [width]: the norm of what is added
    norm,  # [width]: that of the sum
    joined,
    normed,
    scales,  # [n]: of normed, where it is in fp8
    scale,
    after_eps,
    norm_eps,
    width,
    x_row,
    added_row,
    WIDE: tl.constexpr,  # width as a power of two
    AFTER: tl.constexpr,
    NORM: tl.constexpr,
    LARGEST: tl.constexpr,  # of the numbers of fp8; 0: normed is no fp8
    LOWEST: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, WIDE)
    inside = at < width
    more = tl.load(added + row * added_row + at, mask=inside, other=0.0).to(tl.float32)
    before = tl.load(x + row * x_row + at, mask=inside, other=0.0).to(tl.float32)
    if AFTER:
        weight = tl.load(after + at, mask=inside, other=0.0).to(tl.float32)
        more = (more * root_mean_square(more, width, after_eps) * weight).to(joined.dtype.element_ty).to(tl.float32)
    total = (before + more * scale).to(joined.dtype.element_ty)
    tl.store(joined + row * width + at, total, mask=inside)
    answer = total
    if NORM:
        wide = total.to(tl.float32)
        weight = tl.load(norm + at, mask=inside, other=0.0).to(tl.float32)
        answer = (wide * root_mean_square(wide, width, norm_eps) * weight).to(total.dtype)
    if LARGEST > 0.0:
        rounded = answer.to(tl.float32)
        step = fp8_scale(tl.max(tl.abs(rounded), 0), LARGEST, LOWEST)
        tl.store(scales + row, step)
        tl.store(normed + row * width + at, tl.math.div_rn(rounded, step).to(normed.dtype.element_ty), mask=inside)
    elif NORM:
        tl.store(normed + row * width + at, answer, mask=inside)


@triton.jit
def turn_and_store(
    mixed,  # [n, (HEADS + 2 KV_HEADS) * DIM], rows mixed_row apart: queries, keys and values
    cos,  # [n, DIM], sin with the sign of the turn
    sin,
    query_norm,  # [DIM]
    key_norm,
    query,  # [n, HEADS, DIM]
    keys,  # see `Destination`
    values,
    places,
    query_eps,
    key_eps,
    mixed_row,
    row_step,
    head_step,
    head_rows,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    WIDE: tl.constexpr,
    NORMED: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = tl.arange(0, WIDE)
    inside = at < DIM
    half: tl.constexpr = DIM // 2
    across = tl.where(at < half, at + half, at - half)
    source = mixed + row * mixed_row + head * DIM
    own = tl.load(source + at, mask=inside, other=0.0)
    turned = own
    if head < HEADS + KV_HEADS:
        number, other = own.to(tl.float32), tl.load(source + across, mask=inside, other=0.0).to(tl.float32)
        if NORMED:
            if head < HEADS:
                share = root_mean_square(number, DIM, query_eps)
                weight = tl.load(query_norm + at, mask=inside, other=0.0).to(tl.float32)
                crossed = tl.load(query_norm + across, mask=inside, other=0.0).to(tl.float32)
            else:
                share = root_mean_square(number, DIM, key_eps)
                weight = tl.load(key_norm + at, mask=inside, other=0.0).to(tl.float32)
                crossed = tl.load(key_norm + across, mask=inside, other=0.0).to(tl.float32)
            number = (number * share * weight).to(own.dtype).to(tl.float32)
            other = (other * share * crossed).to(own.dtype).to(tl.float32)
        cosine = tl.load(cos + row * DIM + at, mask=inside, other=0.0).to(tl.float32)
        sine = tl.load(sin + row * DIM + at, mask=inside, other=0.0).to(tl.float32)
        turned = ((number * cosine).to(own.dtype).to(tl.float32) + other * sine).to(own.dtype)
    if head < HEADS:
        tl.store(query + (row * HEADS + head) * DIM + at, turned, mask=inside)
    else:
        kv_head = (head - HEADS) % KV_HEADS
        place = tl.load(places + row * row_step + kv_head * head_step) + kv_head * head_rows
        if head < HEADS + KV_HEADS:
            tl.store(keys + place * DIM + at, turned, mask=inside)
        else:
            tl.store(values + place * DIM + at, turned, mask=inside)


@triton.jit
def gated_part(both, at, width, SILU: tl.constexpr):
    """Numbers of a row of gate and up side by side: SiLU, or GELU by its tanh formula, of gate, times up."""
    inside = at < width
    gate = tl.load(both + at, mask=inside, other=0.0)
    up = tl.load(both + width + at, mask=inside, other=0.0).to(tl.float32)
    wide = gate.to(tl.float32)
    # GELU's formula: x (1 + tanh(y)) / 2 = x sigmoid(2 y), and 2 y begins with 2 sqrt(2 / pi) = 1.5957...
    steep = wide if SILU else 1.5957691216057308 * (wide + 0.044715 * wide * wide * wide)
    return ((wide * tl.sigmoid(steep)).to(gate.dtype).to(tl.float32) * up).to(gate.dtype)


@triton.jit(do_not_specialize=["width"])
def gate_and_up(both, out, width, both_row, TILE: tl.constexpr, SILU: tl.constexpr):
    """`[n, 2 width]`, gate and up side by side -> `[n, width]`."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * TILE + tl.arange(0, TILE)
    tl.store(out + row * width + at, gated_part(both + row * both_row, at, width, SILU), mask=at < width)


@triton.jit(do_not_specialize=["width"])
def gate_up_and_round(
    both,
    out,  # in fp8
    scales,  # [n]
    width,
    both_row,
    TILE: tl.constexpr,
    SILU: tl.constexpr,
    LARGEST: tl.constexpr,
    LOWEST: tl.constexpr,
):
    """The same in fp8. A program has a whole row, which it goes over twice: the scale is that of its largest number."""
    row = tl.program_id(0).to(tl.int64)
    source = both + row * both_row
    largest = tl.zeros((TILE,), tl.float32)
    for start in range(0, width, TILE):
        part = gated_part(source, start + tl.arange(0, TILE), width, SILU).to(tl.float32)
        largest = tl.maximum(largest, tl.abs(part))
    step = fp8_scale(tl.max(largest, 0), LARGEST, LOWEST)
    tl.store(scales + row, step)
    for start in range(0, width, TILE):
        at = start + tl.arange(0, TILE)
        part = gated_part(source, at, width, SILU).to(tl.float32)
        tl.store(out + row * width + at, tl.math.div_rn(part, step).to(out.dtype.element_ty), mask=at < width)

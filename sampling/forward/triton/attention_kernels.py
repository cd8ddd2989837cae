"""Attention with split keys (Flash-Decoding, https://pytorch.org/blog/flash-decoding): the kernels.

Each program attends with a tile of query rows to one part of the keys, and writes down what it found: the values summed
with their weights, the largest score, and the sum of the weights. A second kernel joins the parts of each query row.

A part is always the same columns, so a query row adds up in the same order whatever the length of the text. Columns
that it does not see add exact zeros.
"""

import triton
import triton.language as tl

_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def tanh(x):
    """tanh of float32, without a library of CUDA's."""
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def product(left, right, WIDENED: tl.constexpr):
    """A product of tiles, summed in float32. Triton's interpreter has none of bfloat16: it takes them widened."""
    if WIDENED:
        return tl.dot(left.to(tl.float32), right.to(tl.float32), input_precision="ieee")
    return tl.dot(left, right, input_precision="ieee")


@triton.jit(do_not_specialize=["rows", "fed", "window", "capacity", "table_line"])
def attend_part(
    query,  # [sequences * rows, heads, DIM], strides query_row, query_head, 1
    keys,  # [sequences, kv_heads, capacity, DIM], strides stored_sequence, stored_head, DIM, 1; or in blocks
    values,
    table,  # [sequences, any], strides table_line, 1: where keys are [any, kv_heads, BLOCK, DIM], the blocks of each
    length,  # [sequences] int64: rows that all query rows of the sequence see, but for a window
    behind,  # [sequences, rows, fed] int32: see `SplitKeys`
    counts,  # [sequences, rows] int32
    sums,  # [sequences, kv_heads, parts, rows * GROUP, DIM] float32
    largest,  # [sequences, kv_heads, parts, rows * GROUP] float32, to the base 2
    weights,  # as `largest`
    scale,
    cap,
    rows,
    fed,
    window,
    capacity,
    table_line,
    query_row,
    query_head,
    stored_sequence,
    stored_head,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    WIDE: tl.constexpr,  # DIM as a power of two
    PART: tl.constexpr,
    TILE: tl.constexpr,  # query rows
    STEP: tl.constexpr,  # columns at a time, which divide a block
    BLOCK: tl.constexpr,  # 0 where there are none
    CAPPED: tl.constexpr,
    WIDENED: tl.constexpr,
):
    part, tile, place = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    sequence, kv_head = place // KV_HEADS, place % KV_HEADS
    known = tl.load(length + sequence)
    stop = tl.minimum(tl.minimum((part + 1) * PART, known + fed), capacity)
    first = tl.maximum(known + 1 - window, 0) // STEP * STEP
    first = tl.maximum(part * PART, first)
    at = tile * TILE + tl.arange(0, TILE)
    used = at < rows * GROUP
    token, head = at // GROUP, kv_head * GROUP + at % GROUP
    out = (place * tl.num_programs(0) + part) * rows * GROUP + at
    if first >= stop:
        tl.store(largest + out, tl.full([TILE], float("-inf"), tl.float32), mask=used)
        tl.store(weights + out, tl.zeros([TILE], tl.float32), mask=used)
    else:
        wide = tl.arange(0, WIDE)
        inside = wide < DIM
        row = sequence * rows + token
        asked = tl.load(
            query + row[:, None] * query_row + head[:, None] * query_head + wide[None, :],
            mask=used[:, None] & inside[None, :],
            other=0.0,
        )
        count = tl.load(counts + row, mask=used, other=0)
        lines = table + sequence * table_line
        if BLOCK and BLOCK % PART == 0:  # a part lies in one block
            number = part * PART // BLOCK
            stored = tl.load(lines + number) * stored_sequence + kv_head * stored_head - number * (BLOCK * DIM)
        else:
            stored = sequence * stored_sequence + kv_head * stored_head
        most = tl.full([TILE], float("-inf"), tl.float32)
        total = tl.zeros([TILE], tl.float32)
        summed = tl.zeros([TILE, WIDE], tl.float32)
        for begin in range(first, stop, STEP):
            column = begin + tl.arange(0, STEP)
            there = column < stop
            if BLOCK and BLOCK % PART != 0:
                number = begin // BLOCK
                stored = tl.load(lines + number) * stored_sequence + kv_head * stored_head - number * (BLOCK * DIM)
            key = tl.load(
                keys + stored + column[None, :] * DIM + wide[:, None],
                mask=there[None, :] & inside[:, None],
                other=0.0,
            )
            score = product(asked, key, WIDENED) * scale
            if CAPPED:
                score = tanh(score / cap) * cap
            new = column - known
            further = tl.load(
                behind + row[:, None] * fed + new[None, :],
                mask=used[:, None] & there[None, :] & (new >= 0)[None, :],
                other=0,
            )
            further = tl.where((new < 0)[None, :], count[:, None] - 1 - new[None, :], further)
            score = tl.where(there[None, :] & (further < window), score * _LOG2E, float("-inf"))
            before, most = most, tl.maximum(most, tl.max(score, 1))
            reference = tl.where(most == float("-inf"), 0.0, most)
            share = tl.exp2(score - reference[:, None])
            shrunk = tl.exp2(before - reference)
            value = tl.load(
                values + stored + column[:, None] * DIM + wide[None, :],
                mask=there[:, None] & inside[None, :],
                other=0.0,
            )
            total = total * shrunk + tl.sum(share, 1)
            summed = summed * shrunk[:, None] + product(share.to(value.dtype), value, WIDENED)
        tl.store(largest + out, most, mask=used)
        tl.store(weights + out, total, mask=used)
        tl.store(sums + out[:, None] * DIM + wide[None, :], summed, mask=used[:, None] & inside[None, :])


@triton.jit(do_not_specialize=["rows", "fed", "window", "parts"])
def join_parts(
    sums,  # see `attend_part`
    largest,
    weights,
    length,
    sinks,  # [heads]: see `Scores`
    out,  # [sequences * rows, heads, DIM]
    rows,
    fed,
    window,
    parts,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    WIDE: tl.constexpr,
    PART: tl.constexpr,
    AT_ONCE: tl.constexpr,
    SINKS: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    sequence, token = row // rows, row % rows
    known = tl.load(length + sequence)
    first = tl.maximum(known + 1 - window, 0) // PART
    stop = tl.minimum(tl.cdiv(known + fed, PART), parts)
    wide = tl.arange(0, WIDE)
    place = (sequence * KV_HEADS + head // GROUP) * parts * rows * GROUP + token * GROUP + head % GROUP
    if SINKS:
        most, total = tl.load(sinks + head).to(tl.float32) * _LOG2E, 1.0
    else:
        most, total = float("-inf"), 0.0
    summed = tl.zeros([WIDE], tl.float32)
    for begin in range(first, stop, AT_ONCE):
        part = begin + tl.arange(0, AT_ONCE)
        at = place + part * rows * GROUP
        score = tl.load(largest + at, mask=part < stop, other=float("-inf"))
        before, most = most, tl.maximum(most, tl.max(score, 0))
        reference = tl.where(most == float("-inf"), 0.0, most)
        share, shrunk = tl.exp2(score - reference), tl.exp2(before - reference)
        found = tl.load(
            sums + at[:, None] * DIM + wide[None, :],
            mask=(score > float("-inf"))[:, None] & (wide < DIM)[None, :],
            other=0.0,
        )
        total = total * shrunk + tl.sum(share * tl.load(weights + at, mask=part < stop, other=0.0), 0)
        summed = summed * shrunk + tl.sum(share[:, None] * found, 0)
    answer = summed / total
    tl.store(out + (row * KV_HEADS * GROUP + head) * DIM + wide, answer.to(out.dtype.element_ty), mask=wide < DIM)

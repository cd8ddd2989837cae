"""Attention with split keys against the plain one, over chains, trees, windows, caps, sinks, formats and batches."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sampling.forward.caches.cache import additive
from sampling.forward.caches.fixed import seen_by
from sampling.forward.kernels.attention import folded_mask, grouped_attention
from sampling.forward.kernels.scores import Masks, Scores
from sampling.forward.tree import seen_in_tree
from sampling.forward.triton.attention import SplitKeys

TREE = (-1, -1, 0)
# What half of the last digit of a format comes to where values are of about 1.
ROUNDING = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}


@dataclass(frozen=True)
class Case:
    """One call. lengths: rows known of each sequence. rows: fed; None: those of `TREE`. block: rows of one, or 0."""

    lengths: tuple[int, ...] = (300,)
    rows: int | None = 4
    heads: tuple[int, int] = (2, 1)
    dim: int = 64
    dtype: torch.dtype = torch.float32
    window: int | None = None
    cap: float | None = None
    sinks: bool = False
    scale: float | None = None
    capacity: int = 600
    block: int = 0

    def __str__(self) -> str:
        changed = [f"{name} {value}" for name, value in vars(self).items() if value != vars(Case()).get(name)]
        return ", ".join(changed) or "plain"


CASES = [
    Case(),
    Case((0,), 1, (2, 2)),
    Case((255,), rows=None),
    Case((256,), rows=9, heads=(2, 2), dim=96),
    Case((520,), rows=None, dtype=torch.bfloat16, heads=(4, 1), dim=128),
    Case((592,), rows=None, dtype=torch.float16, heads=(3, 1), dim=80),
    Case((40,), rows=18, dim=128, dtype=torch.bfloat16),
    Case(rows=1, dim=256, dtype=torch.bfloat16),
    Case((100,), rows=1, dim=256, heads=(2, 2)),
    Case(rows=None, window=3),
    Case((520,), rows=None, window=250),
    Case((520,), rows=1, window=8, dtype=torch.bfloat16),
    Case((70,), rows=2, window=1000),
    Case(rows=None, cap=2.0, scale=0.5),
    Case(rows=None, sinks=True),
    Case(rows=None, window=4, cap=1.5, sinks=True, heads=(4, 2), dtype=torch.float16),
    Case((0, 257, 31), rows=3),
    Case((511, 2), rows=None, window=7, sinks=True, dtype=torch.bfloat16),
    Case((252,), block=256, capacity=512),
    Case((253, 0, 257), rows=None, block=256, capacity=512, heads=(4, 2)),
    Case((509, 256), rows=1, block=256, capacity=768, dtype=torch.bfloat16, heads=(4, 1), dim=128),
    Case((62, 190), rows=18, block=64, capacity=256, dtype=torch.float16, window=70, cap=1.5, sinks=True),
]


def _seen(case: Case) -> Tensor:
    """`[S, n, n]` bool; the last row of each sequence fills up, and sees itself alone."""
    if case.rows is None:
        one = seen_in_tree(TREE, torch.device("cpu"))
    else:
        one = torch.ones(case.rows, case.rows, dtype=torch.bool).tril()
    seen = one.expand(len(case.lengths), -1, -1).clone()
    if case.rows is not None and case.rows > 2:
        seen[:, -1, :-1] = False
    return seen


def inputs(case: Case) -> tuple[Tensor, Tensor, Tensor, Tensor, Scores]:
    """Queries, keys, values, what is seen among the fed rows, and scores."""
    chance = torch.Generator().manual_seed(1)
    seen, (heads, kv_heads) = _seen(case), case.heads

    def drawn(*size: int) -> Tensor:
        return torch.randn(*size, generator=chance).to(case.dtype)

    sequences, count = seen.shape[:2]
    mixed = drawn(sequences * count, heads + 1, case.dim)  # queries are a part of a wider row, as models have them
    keys, values = (drawn(sequences, kv_heads, case.capacity, case.dim) for _ in range(2))
    sinks = torch.randn(heads, generator=chance) if case.sinks else None
    return mixed[:, :heads], keys, values, seen, Scores(case.scale, case.window, case.cap, sinks)


def expected(case: Case, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, scores: Scores) -> Tensor:
    """In float32, one sequence after the other, through masks."""
    parts, group = [], case.heads[0] // case.heads[1]
    for place, length in enumerate(case.lengths):
        mask = additive(seen_by(seen[place], torch.tensor([length]), case.capacity), torch.float32)
        rows = query.unflatten(0, (len(case.lengths), -1))[place]
        stored = keys[place : place + 1].float(), values[place : place + 1].float()
        masks = Masks(folded_mask(mask, group))
        parts.append(grouped_attention(rows.float(), *stored, masks.within(scores.window), scores))
    return torch.cat(parts)


def blocked(stored: Tensor, case: Case) -> tuple[Tensor, Tensor]:
    """The rows in blocks that are in no order, and the table of each sequence; what belongs to nobody is no number."""
    sequences, kv_heads, _, dim = stored.shape
    parts = stored.unflatten(2, (-1, case.block)).transpose(1, 2).flatten(0, 1)
    count = len(parts)
    order = 1 + torch.randperm(count, generator=torch.Generator().manual_seed(2))
    blocks = stored.new_full((count + 2, kv_heads, case.block, dim), torch.nan)
    blocks[order] = parts
    return blocks, order.view(sequences, -1)


def check(case: Case) -> None:
    """Equal to rounding; rows behind those that are seen are never read, whatever they hold."""
    query, keys, values, seen, scores = inputs(case)
    wanted = expected(case, query, keys, values, seen, scores)
    for place, length in enumerate(case.lengths):
        keys[place, :, length + seen.shape[1] :] = values[place, :, length + seen.shape[1] :] = torch.nan
    table = None
    if case.block:
        (keys, table), (values, _) = blocked(keys, case), blocked(values, case)
    found = SplitKeys.of(torch.tensor(case.lengths), seen, table).attend(query, keys, values, scores)
    assert found.dtype == case.dtype
    torch.testing.assert_close(found.float(), wanted, rtol=0.0, atol=ROUNDING[case.dtype])


def check_that_faults_show(_: Any = None) -> None:
    """What is planted is seen: another length, another tree, a window that is one row wider, no sinks."""
    case = Case((60,), rows=None, window=4, sinks=True, capacity=80)
    query, keys, values, seen, scores = inputs(case)
    wanted = expected(case, query, keys, values, seen, scores)
    other = seen.clone()
    other[0, -1, 1] ^= True
    faults = [
        (60, other, scores),
        (59, seen, scores),
        (60, seen, Scores(None, 5, None, scores.sinks)),
        (60, seen, Scores(None, 4)),
    ]
    for length, saw, asked in faults:
        found = SplitKeys.of(torch.tensor([length]), saw).attend(query, keys, values, asked)
        assert (found - wanted).abs().max() > 100 * ROUNDING[torch.float32]


def check_that_faults_of_a_table_show(_: Any = None) -> None:
    """What is planted is seen: blocks in another order, those of another sequence, a table one block too late."""
    case = Case((70, 130), rows=3, block=64, capacity=192)
    query, keys, values, seen, scores = inputs(case)
    wanted = expected(case, query, keys, values, seen, scores)
    (keys, table), (values, _) = blocked(keys, case), blocked(values, case)
    faults = table.flip(1), table.flip(0), table.roll(1, 1)
    for lines, right in ((table, True), *((fault.contiguous(), False) for fault in faults)):
        found = SplitKeys.of(torch.tensor(case.lengths), seen, lines).attend(query, keys, values, scores)
        assert (float((found - wanted).abs().max()) <= 100 * ROUNDING[torch.float32]) is right


def check_bits(_: Any = None) -> None:
    """A row has the same bits wherever it stands among as many others, and whatever those are."""
    query, keys, values, _, scores = inputs(Case((520,), rows=3, window=300))
    chain = torch.ones(1, 3, 3, dtype=torch.bool).tril()
    whole = SplitKeys.of(torch.tensor([510]), chain).attend(query, keys, values, scores)
    found = SplitKeys.of(torch.tensor([512]), chain).attend(torch.cat([query[2:], query[:2]]), keys, values, scores)
    assert torch.equal(found[0], whole[2])

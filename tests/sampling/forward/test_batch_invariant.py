"""Batch-invariant attention: a row has the same bits whatever is fed with it, on any number of threads."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sampling.forward.caches.cache import seen, seen_by_branches
from sampling.forward.caches.rows import RowsCache
from sampling.forward.caches.rows_slot import RowsSlot
from sampling.forward.kernels import batch_invariant
from sampling.forward.kernels.batch_invariant import columns_for
from sampling.forward.kernels.scores import PLAIN_SCORES
from sampling.forward.models.steps import BlockShape
from sampling.forward.models.swiglu import silu_and_mul
from sampling.forward.tree import depths

KINDS = 64
# (heads, kv_heads, head_dim): one query head or many a group, and widths that are no multiple of 16.
SHAPES = [(9, 3, 64), (6, 2, 16), (8, 1, 64), (4, 4, 8), (9, 3, 20), (14, 2, 64), (1, 1, 128)]
Threads = Callable[[int], None]


@pytest.fixture
def threads() -> Iterator[Threads]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@dataclass
class Told:
    """A cache of one layer, the tokens of its rows, and what a row alone attends to; a token has one q, k and v."""

    cache: RowsSlot
    shape: BlockShape
    query: Tensor
    keys: Tensor
    values: Tensor
    tokens: list[int]

    @classmethod
    def begin(cls, shape: tuple[int, int, int], dtype: torch.dtype = torch.float32) -> "Told":
        heads, kv_heads, dim = shape
        chance = torch.Generator().manual_seed(0)
        parts = (torch.randn(KINDS, count, dim, generator=chance).to(dtype) for count in (heads, kv_heads, kv_heads))
        sizes = BlockShape(heads, kv_heads, dim)
        return cls(_empty(sizes, dtype), sizes, *parts, [])

    def feed(self, tokens: list[int], sees: Tensor) -> None:
        """Feed tokens that see these rows, `[n, length + n]`, and compare each with itself alone."""
        self.cache.lay_out_seen(torch.arange(len(tokens)), sees)
        found = self._attend(self.cache, tokens)
        self.cache.advance(len(tokens))
        self.tokens += tokens
        for row, saw in zip(found, sees, strict=True):
            path = [self.tokens[place] for place in saw.nonzero().flatten().tolist()]
            assert torch.equal(row, self._alone(path)), f"{len(tokens)} rows behind {self.cache.length}"

    def crop(self, length: int) -> None:
        self.cache.crop(length)
        del self.tokens[length:]

    def keep(self, base: int, path: tuple[int, ...]) -> None:
        self.cache.keep(base, path)
        self.tokens = [*self.tokens[: base + 1], *(self.tokens[base + 1 + row] for row in path)]

    def _alone(self, path: list[int]) -> Tensor:
        cache = _empty(self.shape, self.cache.dtype)
        self.fill(cache, path[:-1])
        cache.lay_out(1)
        return self._attend(cache, path[-1:])[0]

    def fill(self, cache: RowsSlot, tokens: list[int]) -> None:
        """Rows of which nobody asks what they attend to."""
        if tokens:
            cache.lay_out(len(tokens))
            cache.layers[0].write(self.keys[tokens], self.values[tokens])
            cache.advance(len(tokens))

    def _attend(self, cache: RowsSlot, tokens: list[int]) -> Tensor:
        q, k, v = (one[tokens] for one in (self.query, self.keys, self.values))
        return cache.layers[0].attend(q, k, v, None, PLAIN_SCORES)


def _empty(shape: BlockShape, dtype: torch.dtype) -> RowsSlot:
    return RowsSlot(RowsCache(1, shape, torch.device("cpu"), dtype, batch_invariant=True))


def chain(told: Told, draw: st.DrawFn, tokens: st.SearchStrategy[int]) -> None:
    fed = draw(st.lists(tokens, min_size=1, max_size=20))
    told.feed(fed, seen(told.cache.length, len(fed), None, told.cache.device))


def crop(told: Told, draw: st.DrawFn, tokens: st.SearchStrategy[int]) -> None:
    told.crop(draw(st.integers(0, told.cache.length)))


def tree(told: Told, draw: st.DrawFn, tokens: st.SearchStrategy[int]) -> None:
    """A tree of drafts, of which one path is kept."""
    base = told.cache.length
    count = draw(st.integers(1, 12))
    parents = [draw(st.integers(-1, row - 1)) for row in range(count)]
    fed = [draw(tokens) for _ in range(count + 1)]
    told.feed(fed, seen(base, count + 1, parents, told.cache.device))
    leaf = draw(st.integers(-1, count - 1))
    path = [leaf] * (leaf >= 0)
    while path and parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    assert len(path) == (depths(parents)[leaf] if leaf >= 0 else 0)
    told.keep(base, tuple(path))


def branches(told: Told, draw: st.DrawFn, tokens: st.SearchStrategy[int]) -> None:
    """Texts side by side, as beams are, of which one is kept."""
    base, lines = told.cache.length, torch.zeros(1, 0, dtype=torch.long)
    for _ in range(draw(st.integers(1, 3))):
        lines = lines[draw(st.lists(st.integers(0, len(lines) - 1), min_size=1, max_size=4))]
        fed = [draw(tokens) for _ in lines]
        own = torch.arange(len(fed)).unsqueeze(1) + told.cache.length
        told.feed(fed, seen_by_branches(told.cache.length, base, lines))
        lines = torch.cat([lines, own], dim=1)
    first, *rest = draw(st.sampled_from(lines.tolist()))
    if first == base:
        told.keep(base, tuple(row - base - 1 for row in rest))
    else:
        told.crop(base)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_feeds_give_every_row_the_bits_that_it_has_alone(data: st.DataObject) -> None:
    told = Told.begin(data.draw(st.sampled_from(SHAPES)))
    before, tokens = torch.get_num_threads(), st.integers(0, KINDS - 1)
    torch.set_num_threads(data.draw(st.sampled_from([1, 2, 3])))
    try:
        start = data.draw(st.sampled_from([1, 9, 170, 250, 380, 500, 760]))
        told.tokens = [place % KINDS for place in range(start)]
        told.fill(told.cache, told.tokens)
        for _ in range(data.draw(st.integers(1, 4))):
            data.draw(st.sampled_from([chain, chain, tree, branches, crop]))(told, data.draw, tokens)
    finally:
        torch.set_num_threads(before)


def spread(shape: tuple[int, int, int], starts: tuple[int, ...], dtype: torch.dtype = torch.float32) -> None:
    """Two and five rows behind some lengths."""
    told = Told.begin(shape, dtype)
    text = torch.randint(0, KINDS, (starts[-1] + 5,), generator=torch.Generator().manual_seed(1)).tolist()
    for start in starts:
        told.fill(told.cache, text[told.cache.length : start])
        told.tokens = text[:start]
        for count in (2, 5):
            told.feed(text[start : start + count], seen(start, count, None, told.cache.device))
            told.crop(start)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_threads_and_lengths_change_nothing(shape: tuple[int, int, int], dtype: torch.dtype, threads: Threads) -> None:
    for count in (1, 2, 3):
        threads(count)
        spread(shape, (4, 14, 188, 254, 382, 510, 766, 1022), dtype)


ANY = {"rows": tuple(range(1, 33)), "columns": tuple(range(16, 513, 16))}


@pytest.mark.parametrize("what", ANY)
def test_products_of_any_size_are_noticed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control; skipped where products do not mind."""
    sizes = batch_invariant._sizes
    if getattr(sizes(torch.float32, 64), what) == ANY[what]:
        pytest.skip("this machine gives the same sums in any shape")
    monkeypatch.setattr(batch_invariant, "_sizes", lambda dtype, dim: sizes(dtype, dim)._replace(**{what: ANY[what]}))
    with pytest.raises(AssertionError):  # which shapes show it depends on the machine
        for shape in SHAPES:
            spread(shape, (4, 14, 188, 254, 382, 510))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_what_is_left_over_is_filled_up_to_sizes_that_were_tried(dtype: torch.dtype) -> None:
    rows, columns = batch_invariant._sizes(dtype, 64)
    assert rows[-1] == 32 and columns[-1] == 512 and len(rows) > 1 and len(columns) > 1
    for count, filled in ((1, columns[0]), (512, 512), (513, 512 + columns[0]), (1536, 1536)):
        assert columns_for(count, dtype, 64) == filled


@pytest.mark.parametrize("inner", [100, 4864, 8960, 40000])
def test_a_gate_does_not_depend_on_the_rows_beside_it(inner: int, threads: Threads) -> None:
    """Sizes at which shares of three and five threads end inside a row."""
    x = torch.randn(33, 2 * inner, generator=torch.Generator().manual_seed(0)) * 3
    for count in (1, 3, 5):
        threads(count)
        alone = torch.cat([silu_and_mul(row) for row in x.split(1)])
        for rows in (2, 8, 16, 33):
            assert torch.equal(silu_and_mul(x[:rows]), alone[:rows])

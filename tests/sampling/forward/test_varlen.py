"""Attention in C++ over each text's own columns: the plain formula, the same bits in any company, who goes without."""

from collections.abc import Iterator, Sequence
from ctypes import c_float, memset
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sampling.forward.caches.attention_metadata import QueryRows
from sampling.forward.caches.blocks import BlockRows
from sampling.forward.caches.rows import RowsCache
from sampling.forward.caches.rows_slot import RowsSlot
from sampling.forward.cpp import kernel, library
from sampling.forward.cpp.library import use_own_kernels
from sampling.forward.kernels.scores import PLAIN_SCORES, Scores, explicit_attention
from sampling.forward.models.steps import BlockShape
from tests.sampling.forward.found_compiler import found_compiler, needs_compiler

CPU = torch.device("cpu")
KV_HEADS, GROUP = 2, 3
pytestmark = needs_compiler


@pytest.fixture(scope="module", autouse=True)
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A compiler, and a cache folder for all tests here."""
    folder = tmp_path_factory.mktemp("cache")
    with found_compiler(folder):
        yield folder


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    """As decoding runs."""
    with torch.inference_mode():
        yield


def shape(dim: int) -> BlockShape:
    """Two key heads, each of three query heads."""
    return BlockShape(heads=KV_HEADS * GROUP, kv_heads=KV_HEADS, head_dim=dim)


class Texts:
    """Texts of these lengths in one cache, whose rows are drawn; each then feeds a chain or a tree."""

    def __init__(self, lengths: Sequence[int], dim: int = 16, dtype: torch.dtype = torch.float32, **how: Any) -> None:
        made = how.pop("made", RowsCache)
        self.cache: RowsCache = made(1, shape(dim), CPU, dtype, **how)
        assert self.cache.varlen is not None
        self.chance, self.dim, self.dtype = torch.Generator().manual_seed(1), dim, dtype
        self.slots = [RowsSlot(self.cache) for _ in lengths]
        self.rows: list[tuple[Tensor, Tensor]] = []
        for slot, length in zip(self.slots, lengths, strict=True):
            self.rows.append((self.drawn(length, KV_HEADS), self.drawn(length, KV_HEADS)))
            self.cache.lay_out_writes(QueryRows(slot, length))
            self.cache.layers[0].write(*self.rows[-1])
            slot.advance(length)

    def drawn(self, *size: int) -> Tensor:
        """Rows of heads."""
        return torch.randn(*size, self.dim, generator=self.chance).to(self.dtype)

    def feed(self, at: int, count: int, parents: Sequence[int] | None) -> QueryRows:
        """What a text feeds."""
        return self.slots[at].fed(count, parents)

    def attend(self, feeds: Sequence[QueryRows], fed: Sequence[Tensor], scores: Scores = PLAIN_SCORES) -> Tensor:
        """Flat rows `[N, heads * D]`; fed: query, keys and values of all rows."""
        self.cache.lay_out(feeds)
        return self.cache.layers[0].attend(*fed, None, scores)

    def given(self, count: int) -> list[Tensor]:
        """Query, keys and values of so many rows."""
        return [self.drawn(count, KV_HEADS * GROUP), self.drawn(count, KV_HEADS), self.drawn(count, KV_HEADS)]


def expected(texts: Texts, at: int, fed: Sequence[Tensor], seen: Tensor, scores: Scores) -> Tensor:
    """What the plain formula gives for a text's rows, in float64, row by row; seen: `[n, L]` bool."""
    query, keys, values = (rows.double() for rows in fed)
    all_keys, all_values = (
        torch.cat(both) for both in zip(map(Tensor.double, texts.rows[at]), (keys, values), strict=True)
    )
    outs = []
    for row, columns in enumerate(seen):
        places = columns.nonzero().flatten()[-(scores.window or len(columns)) :]
        known, meant = (stored[places].transpose(0, 1).unsqueeze(0) for stored in (all_keys, all_values))
        folded = query[row].view(1, KV_HEADS, GROUP, texts.dim)
        outs.append(explicit_attention(folded, known, meant, None, scores).flatten())
    return torch.stack(outs)


TREE = [-1, -1, 0, 0, 1, 2]
KINDS: dict[str, dict[str, Any]] = {
    "slots": {},
    "blocks": {"made": BlockRows},
    "bfloat16": {"dtype": torch.bfloat16},
    "wide": {"dim": 80},
}
SCORES = {
    "plain": PLAIN_SCORES,
    "scaled": Scores(scale=0.3),
    "window": Scores(window=40),
    "capped": Scores(cap=2.0),
    "sinks": Scores(sinks=torch.linspace(-1, 2, KV_HEADS * GROUP)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("score", SCORES)
def test_it_is_the_plain_formula(kind: str, score: str) -> None:
    """Texts of one column, of a part, and of several; a row, a chain, a tree, and a chunk of a prompt."""
    texts, scores = Texts([0, 255, 300, 530], **KINDS[kind]), SCORES[score]
    fed = [(1, None), (4, None), (7, TREE), (70, None)]
    feeds = [texts.feed(at, *one) for at, one in enumerate(fed)]
    given = [texts.given(count) for count, _ in fed]
    flat = [torch.cat(parts) for parts in zip(*given, strict=True)]
    out = texts.attend(feeds, flat, scores)
    for at, (part, mine, feed) in enumerate(zip(out.split([1, 4, 7, 70]), given, feeds, strict=True)):
        chain = torch.ones(feed.count, feed.start + feed.count, dtype=torch.bool).tril(feed.start)
        meant = expected(texts, at, mine, chain if feed.seen is None else feed.seen, scores)
        assert (part.double() - meant).norm() / meant.norm() < (0.01 if texts.dtype == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize("made", [RowsCache, BlockRows])
@pytest.mark.parametrize("length", [3, 250, 256, 700])
def test_a_row_has_its_bits_in_any_company(made: type[RowsCache], length: int) -> None:
    """A chain, row by row; beside other texts; and as one path of a tree."""
    texts = Texts([length, 400], made=made)
    query, keys, values = texts.given(9)
    together = texts.attend([texts.feed(0, 9, None)], (query, keys, values))
    other = texts.given(60)
    both = [torch.cat(parts) for parts in zip((query, keys, values), other, strict=True)]
    assert torch.equal(texts.attend([texts.feed(0, 9, None), texts.feed(1, 60, None)], both)[:9], together)
    for row in range(9):
        alone = texts.attend([texts.feed(0, 1, None)], [rows[row : row + 1] for rows in (query, keys, values)])
        assert torch.equal(alone[0], together[row])
        texts.slots[0].advance(1)
    texts.slots[0].crop(length)
    path = [-1, -1, 1, 1, 3]  # 0, 2, 4, 5 is the chain
    order = torch.tensor([0, 7, 1, 8, 2, 3])
    tree = texts.attend([texts.feed(0, 6, path)], [rows[order] for rows in (query, keys, values)])
    assert torch.equal(tree[[0, 2, 4, 5]], together[:4])


def test_what_is_no_number_is_seen_by_those_who_see_its_column_alone() -> None:
    texts = Texts([300, 300])
    query, keys, values = texts.given(6)
    keys[1] = torch.nan
    out = texts.attend([texts.feed(0, 3, None), texts.feed(1, 3, None)], (query, keys, values))
    assert out.isnan().all(1).tolist() == out.isnan().any(1).tolist() == [False, True, True, False, False, False]


def test_who_cannot_have_it_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel.varlen_kernel(CPU, torch.float64, shape(16)) is None
    assert kernel.varlen_kernel(CPU, torch.float32, shape(24)) is None
    assert RowsCache(1, shape(16), CPU, torch.float32, padded=True).varlen is None
    use_own_kernels(False)
    try:
        assert kernel.varlen_kernel(CPU, torch.float32, shape(16)) is None
    finally:
        use_own_kernels(True)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert kernel.varlen_kernel(CPU, torch.float32, shape(16)) is None


def test_it_is_made_once_and_again_where_it_is_damaged(found: Path) -> None:
    def made() -> dict[Path, int]:
        kernel._checked.cache_clear()
        assert kernel.varlen_kernel(CPU, torch.float32, shape(48)) is not None
        return {path: path.stat().st_mtime_ns for path in (found / "cpp").iterdir()}

    before = set((found / "cpp").iterdir())
    first = made()
    assert made() == first and len(first) == len(before) + 1
    (new,) = set(first) - before
    new.unlink()
    new.write_bytes(b"no library")
    assert made()[new] > first[new] and set(made()) == set(first)


@pytest.mark.parametrize(("fault", "said"), [(0.0, "it is off by 100"), (1e-6, "other bits among others")])
def test_a_kernel_that_is_not_right_is_not_used(
    fault: float, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that gives nothing, and one whose result moves from call to call."""
    honest, calls = kernel._made, count()

    def faulty(*words: Any) -> Any:
        right = honest(*words)

        def attend(layout: int, query: int, keys: int, values: int, out: int) -> None:
            right(layout, query, keys, values, out)
            first = c_float.from_address(out)
            first.value += fault * next(calls)
            if not fault:
                memset(out, 0, KV_HEADS * GROUP * 16 * 4)

        return attend

    monkeypatch.setattr(kernel, "_made", faulty)
    kernel._checked.cache_clear()
    assert kernel.varlen_kernel(CPU, torch.float32, shape(16)) is None
    assert said in caplog.text
    kernel._checked.cache_clear()


def test_a_compiler_that_fails_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(library, "_FOLDER", tmp_path)
    (tmp_path / "varlen.cpp").write_text("no C++")
    kernel._checked.cache_clear()
    for _ in range(2):
        assert kernel.varlen_kernel(CPU, torch.float32, shape(16)) is None
    assert caplog.text.count("attention in C++ is not used") == 1
    kernel._checked.cache_clear()

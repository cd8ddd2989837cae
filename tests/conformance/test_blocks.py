"""Texts whose rows lie in blocks: each is what it is alone, and none is copied as it grows."""

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sampling.batch import Batch, decode_many
from sampling.forward import sharing
from sampling.forward.caches import blocks
from sampling.forward.caches.blocks import BlockRows
from sampling.forward.graphs import block_graphs
from sampling.forward.kernels.linear import DenseLinear
from sampling.forward.models.lean import LeanModel, from_transformers
from sampling.forward.runner import ModelRunner, feed
from sampling.forward.sharing import SequenceSlot, SharedRunner
from sampling.pair import share
from sampling.pair.share import shared_runner
from sampling.scheduling.live_text import Request
from tests.conformance.matrix import case
from tests.conformance.test_batches import GREEDY, SAMPLED, alone, pair, shuffled, together, weights
from tests.emulated_graphs import emulate
from tests.tiny import llama, random_model
from utils.device.captured import failures
from utils.errors import UserError
from utils.logits_processor import LogitsProcessor

SMALL = 4
TREE = (-1, -1, 0, 1)
VOCABULARY = 40
DRAFTERS = ["none", "model", "suffix tree", "eagle", "staged ngram"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows, so that short texts have many of them, and drafts cross their edges."""
    monkeypatch.setattr(blocks, "BLOCK", SMALL)


def blocked(model: LeanModel, fixed_shapes: bool = False) -> SharedRunner:
    made = SharedRunner(model, fixed_shapes=fixed_shapes, blocks=True)
    assert isinstance(made.cache, BlockRows)
    return made


def check(drafter: str, processor: LogitsProcessor, size: int, fixed_shapes: bool = False) -> SharedRunner:
    """All texts of `test_batches`, the target's rows and a drafter model's in blocks."""
    one, target = case(drafter, forgetful=True), blocked(weights(0), fixed_shapes)
    shared = pair(shared=True, share=lambda runner: blocked(runner.model, fixed_shapes))  # type: ignore[arg-type]
    found = together(one, processor, size, shuffled(size), one.drafter(shared), target)
    assert found == alone((drafter,), processor)
    assert target.cache.keys.shape[1] > 2 * size
    return target


@pytest.mark.parametrize("drafter", [*DRAFTERS, "mtp dynamic tree", "medusa static tree", "suffix tree or model"])
def test_greedy_texts_are_those_of_one_sequence(drafter: str, small: None) -> None:
    check(drafter, GREEDY, 8)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_drawn_texts_are_those_of_one_sequence(drafter: str, small: None) -> None:
    check(drafter, SAMPLED[0], 3)


@pytest.mark.parametrize("drafter", [*DRAFTERS, "mtp dynamic tree", "model + suffix"])
def test_forwards_of_fixed_shapes_say_the_same(drafter: str, small: None) -> None:
    """What fills them up goes to the block that nobody has."""
    for processor in (GREEDY, SAMPLED[0]):
        target = check(drafter, processor, 3, fixed_shapes=True)
        assert target.graphs is not None and target.graphs.shapes


def model(**changed: Any) -> LeanModel:
    """Float64 and the plain kernel, over texts of several whole blocks."""
    sizes = {"vocab_size": VOCABULARY, "max_position_embeddings": 1024, **changed}
    return from_transformers(random_model(llama(**sizes)).double()).with_kernel(DenseLinear)


def text(seed: int, length: int) -> list[int]:
    return torch.randint(VOCABULARY, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


Step = tuple[Sequence[int], Sequence[int] | None, Sequence[int]]
"""Tokens, their parents, and the drafts that are kept."""


def play(runner: Any, prompt: Sequence[int], steps: Sequence[Step]) -> Iterator[Tensor]:
    """Logits of a text alone."""
    feed(runner, prompt)
    for tokens, parents, path in steps:
        base = runner.length
        yield runner.forward(tokens, parents).logits.clone()
        runner.keep(base, path)


def steps_of(seed: int) -> list[Step]:
    tokens = text(100 + seed, 60)
    return [
        (tokens[:5], TREE, (1, 3)),
        (tokens[5:6], None, ()),
        (tokens[6:10], None, (0, 1)),
        (tokens[10:15], TREE, (0,)),
        (tokens[15:18], None, ()),
        (tokens[18:19], None, ()),
    ]


def check_logits(many: SharedRunner, prompts: Sequence[int]) -> None:
    """Prompts of these lengths, then chains and trees of all in one forward, beside each text alone."""
    slots = [many.another() for _ in prompts]
    expected = [
        list(play(ModelRunner(many.model), text(seed, length), steps_of(seed))) for seed, length in enumerate(prompts)
    ]
    for seed, (slot, length) in enumerate(zip(slots, prompts, strict=True)):
        feed(slot, text(seed, length))
    for number in range(len(steps_of(0))):
        fed = [steps_of(seed)[number] for seed in range(len(slots))]
        bases = [slot.length for slot in slots]
        feeds = [slot.feed(tokens, parents) for slot, (tokens, parents, _) in zip(slots, fed, strict=True)]
        for seed, output in enumerate(many.run(feeds)):
            torch.testing.assert_close(output.logits, expected[seed][number], rtol=0.0, atol=1e-12)
        for slot, base, (_, _, path) in zip(slots, bases, fed, strict=True):
            slot.keep(base, path)


LENGTHS = (255, 3, 256, 257, 510, 100)


@pytest.mark.parametrize("fixed_shapes", [False, True])
def test_rows_at_the_edges_of_whole_blocks(fixed_shapes: bool) -> None:
    check_logits(blocked(model(), fixed_shapes), LENGTHS)


def check_chunks() -> None:
    """A prompt that is read in chunks beside the rounds of others, a tree among them, in captured forwards alone."""
    many = blocked(model(), fixed_shapes=True)
    prompt, prompts = text(50, 700), (9, 66, 130)
    slots, late = [many.another() for _ in prompts], many.another()
    for seed, (slot, length) in enumerate(zip(slots, prompts, strict=True)):
        feed(slot, text(seed, length))
    with torch.inference_mode():
        hidden = ModelRunner(many.model).forward(prompt, hidden=(1,)).hidden[1]
    expected = [
        list(play(ModelRunner(many.model), text(at, length), steps_of(at))) for at, length in enumerate(prompts)
    ]
    begun = 0
    for number, chunk in enumerate((500, 3, 70, 127)):
        fed = [steps_of(seed)[number] for seed in range(len(slots))]
        bases = [slot.length for slot in slots]
        feeds = [slot.feed(tokens, parents) for slot, (tokens, parents, _) in zip(slots, fed, strict=True)]
        feeds.insert(number % 3, late.feed(prompt[begun : begun + chunk], hidden=(1,), rows=0))
        outputs = many.run(feeds)
        found = outputs.pop(number % 3)
        torch.testing.assert_close(found.hidden[1], hidden[begun : begun + chunk], rtol=0.0, atol=1e-12)
        begun += chunk
        for seed, output in enumerate(outputs):
            torch.testing.assert_close(output.logits, expected[seed][number], rtol=0.0, atol=1e-12)
        for slot, base, (_, _, path) in zip(slots, bases, fed, strict=True):
            slot.keep(base, path)
    last = ModelRunner(many.model).forward([*prompt, 5], rows=1).logits
    torch.testing.assert_close(late.forward([5]).logits, last, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("eager", [False, True])
def test_prompts_are_read_in_chunks_beside_rounds(eager: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over fixed shapes, never in shapes that follow what is fed; or all of it in those."""
    if eager:
        monkeypatch.setattr(block_graphs.BlockGraphs, "can_replay", lambda self, feeds: False)
    else:
        monkeypatch.setattr(SharedRunner, "run_eager", None)
    check_chunks()


def test_captures_of_chunks_hold_nothing_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch)
    before = failures()
    check_chunks()
    assert failures() == before


def test_captured_forwards_have_blocks_where_our_kernel_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for reads in (False, True):
        monkeypatch.setattr(share, "splits_keys", lambda *about, reads=reads: reads)
        assert shared_runner(ModelRunner.with_graphs(model())).cache.in_blocks is reads
        assert not shared_runner(ModelRunner(model())).cache.in_blocks


@pytest.mark.parametrize(
    ("counts", "groups", "width"),
    [
        ((1,), [(1, 1)], 1),
        ((1, 1, 1), [(4, 1)], 3),
        ((500,), [(1, 512)], 512),
        ((66,), [(1, 128)], 128),
        ((1, 300, 4), [(2, 5), (1, 512)], 517),
        ((129, 200, 130, 2), [(1, 2), (4, 256)], 1026),
    ],
)
def test_no_round_is_filled_up_to_a_prompt(
    counts: Sequence[int], groups: list[tuple[int, int]], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, found = blocked(model(), fixed_shapes=True), list[tuple[list[tuple[int, int]], int]]()
    honest = BlockRows.lay_out_groups

    def noted(self: BlockRows, of: Tensor, *given: Any) -> None:
        found.append(([tuple(seen.shape[:2]) for seen, _ in given[-1]], len(of)))
        honest(self, of, *given)

    monkeypatch.setattr(BlockRows, "lay_out_groups", noted)
    many.run([many.another().feed(text(0, count), rows=0) for count in counts])
    assert found == [(groups, width)]


def test_rows_have_the_same_bits_where_attention_is_batch_invariant(small: None) -> None:
    """In blocks and in parts of a buffer, alone and with others."""
    shape = model().with_batch_invariance(True)
    found = []
    for make in (SharedRunner, blocked):
        many = make(shape)
        slots = [many.another() for _ in range(3)]
        for seed, slot in enumerate(slots):
            feed(slot, text(seed, 5 + 6 * seed))
        fed = [slot.feed(text(9, 3), parents) for slot, parents in zip(slots, (None, (-1, -1), None), strict=True)]
        found.append([output.logits.clone() for output in many.run(fed)])
        found.append([slots[0].forward([7]).logits.clone()])
    assert all(torch.equal(*both) for one, other in (found[::2], found[1::2]) for both in zip(one, other, strict=True))


def test_a_state_is_taken_out_of_blocks_and_put_into_others(small: None) -> None:
    many, tokens = blocked(model()), text(0, 30)
    other, slot, last = (many.another() for _ in range(3))
    feed(other, text(1, 9))
    feed(slot, tokens[:-1])
    expected = slot.forward(tokens[-1:]).logits.clone()
    slot.crop(len(tokens) - 1)
    last.cache.fill(slot.cache.rows(), len(tokens) - 1)
    assert not set(many.cache.tables[last.cache.index]) & set(many.cache.tables[slot.cache.index])  # type: ignore[attr-defined]
    torch.testing.assert_close(last.forward(tokens[-1:]).logits, expected, rtol=0.0, atol=1e-12)


class _Written(TorchDispatchMode):
    """Rows of a buffer that operations write to, by operation."""

    def __init__(self, buffers: Callable[[], tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self._buffers, self.found = buffers, dict[str, int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func._schema.name.split("::")[1])
        held = {buffer.untyped_storage().data_ptr() for buffer in self._buffers()}
        mine = [one for one in args[:1] if isinstance(one, Tensor) and one.untyped_storage().data_ptr() in held]
        if mine and name.endswith("_"):
            rows = args[3].numel() // args[3].shape[-1] if name == "index_copy_" else mine[0].numel()
            self.found[name] = self.found.get(name, 0) + rows
        return func(*args, **(kwargs or {}))


def grown(many: SharedRunner, slot: SequenceSlot, until: int) -> _Written:
    """A text fed token by token, and what was written meanwhile."""
    with _Written(lambda: (many.cache.keys, many.cache.values)) as written:
        while slot.length < until:
            slot.forward([slot.length % VOCABULARY])
    return written


def test_a_text_that_grows_copies_no_row(small: None) -> None:
    """Only the rows that are fed are written, the buffer stays where it is, and rows of others stay as they are."""
    many = blocked(model())
    other, slot = many.another(), many.another()
    feed(other, text(0, 2 * SMALL))
    slot.forward([1])
    spare, kept, address = many.cache.free_blocks, other.cache.rows(), many.cache.addresses  # type: ignore[attr-defined]
    assert spare >= 3
    written = grown(many, slot, 1 + SMALL * spare)
    kv_heads = many.cache.keys.shape[2]
    assert written.found.pop("index_copy_") == 2 * SMALL * spare * kv_heads * many.cache.keys.shape[0]
    assert set(written.found) == {"index_fill_"}, "blocks are zeroed as they are taken"
    assert many.cache.addresses == address and many.cache.free_blocks == 0  # type: ignore[attr-defined]
    for layer, rows in other.cache.rows().items():
        assert all(torch.equal(*both) for both in zip(rows, kept[layer], strict=True))
    slot.forward([1] * SMALL)
    assert many.cache.addresses != address


def test_rows_of_parts_of_a_buffer_are_copied_as_one_grows() -> None:
    """What blocks are for: the test above sees it where they are not."""
    many = SharedRunner(model())
    slot, address = many.another(), many.cache.addresses
    feed(slot, text(0, 500))
    address = many.cache.addresses
    grown(many, slot, 600)
    assert many.cache.addresses != address


def test_blocks_are_used_again(small: None) -> None:
    """Those of a text that is gone, is wiped, or goes on from fewer rows."""
    many = blocked(model())
    held: BlockRows = many.cache  # type: ignore[assignment]
    slots = [many.another() for _ in range(3)]
    for slot in slots:
        feed(slot, text(0, 5 * SMALL))
    there, free = held.keys.shape[1], held.free_blocks
    slots.pop()
    slot = None  # type: ignore[assignment]
    gc.collect()
    assert held.free_blocks == free + 5
    slots[0].wipe()
    assert held.free_blocks == free + 10
    slots[1].held = text(0, 5 * SMALL)
    slots[1].crop(0)
    assert slots[1].resume(text(0, SMALL + 1), 100) == SMALL + 1
    assert held.free_blocks == free + 13
    again = many.another()
    feed(again, text(0, 13 * SMALL))
    assert held.free_blocks == free and held.keys.shape[1] == there
    mine = [block for table in held.tables.values() for block in table]
    assert len(mine) == len(set(mine)) and 0 not in mine


def test_a_batch_has_no_more_blocks_than_its_texts_need(small: None) -> None:
    target, one = blocked(weights(0)), case("none")
    batch = Batch(target, one.drafter(pair()), one.gamma, one.verifier(), 2)
    for _ in range(5):
        for _ in decode_many(batch, [Request([1, 2, 3], GREEDY, 20, 0) for _ in range(6)]):
            pass
    assert target.cache.keys.shape[1] <= 2 * (1 + 2 * -(-23 // SMALL))


class TestPlantedFaults:
    """Each of these breaks something above, so that a green test means what it says."""

    @staticmethod
    def fails(prompts: Sequence[int] = (3, 4, 9, 16), fixed_shapes: bool = False) -> bool:
        many = blocked(model(), fixed_shapes)
        first = many.another()
        feed(first, text(5, 40))  # whose blocks are used again
        del first
        try:
            check_logits(many, prompts)
        except (AssertionError, UserError, IndexError, RuntimeError):
            return True
        return False

    def test_nothing_planted(self, small: None) -> None:
        assert not self.fails() and not self.fails(fixed_shapes=True)

    def test_a_block_of_another_text(self, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is handed out stays free for the next."""
        honest = BlockRows._extend

        def shared(self: BlockRows, rows: Any) -> None:
            free = [*self.pool._free]
            honest(self, rows)
            self.pool._free[:] = free or self.pool._free

        monkeypatch.setattr(BlockRows, "_extend", shared)
        assert self.fails()

    def test_numbers_that_are_none_in_a_block_that_is_used_again(
        self, small: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert self.stays_finite()
        monkeypatch.setattr(Tensor, "index_fill_", lambda self, *args: self)
        assert not self.stays_finite()

    @staticmethod
    def stays_finite() -> bool:
        """Two texts, one of which takes a block that held no numbers."""
        many = blocked(model())
        bad, *slots = (many.another() for _ in range(3))
        feed(bad, text(0, 7))
        with torch.inference_mode():
            many.cache.keys[:, many.cache.tables[bad.cache.index]] = torch.nan  # type: ignore[attr-defined]
        bad.wipe()
        feed(slots[0], text(2, 2))  # the last row of its block is hidden from it
        feed(slots[1], text(1, 5))
        outputs = many.run([slot.feed([1]) for slot in slots])
        return all(bool(output.logits.isfinite().all()) for output in outputs)

    @pytest.mark.parametrize("off", [-1, 1])
    def test_rows_off_by_one_at_the_edge_of_a_block(
        self, off: int, small: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The last row of a block is stored in the next one, or the first in the one before."""
        honest = BlockRows.stored

        def shifted(self: BlockRows, of: Tensor, places: Tensor, table: Tensor | None = None) -> Tensor:
            edge = places % SMALL == (SMALL - 1 if off > 0 else 0)
            moved = torch.where(edge, (places // SMALL + off).clamp(min=0) * SMALL + places % SMALL, places)
            return honest(self, of, moved.clamp(max=table.shape[1] * SMALL - 1), table)  # type: ignore[union-attr]

        monkeypatch.setattr(BlockRows, "stored", shifted)
        assert self.fails()

    def test_a_table_that_is_not_told_of_growth(self, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
        honest, first = BlockRows.table_of, dict[int, list[int]]()

        def stale(self: BlockRows, feeds: Any, *sizes: int) -> Tensor:
            for fed in feeds:
                first.setdefault(fed.slot.index, [*self.tables[fed.slot.index]])
            tables, self.tables = self.tables, first
            made = honest(self, feeds, *sizes)
            self.tables = tables
            return made

        monkeypatch.setattr(BlockRows, "table_of", stale)
        assert self.fails()

    def test_lines_of_a_table_in_another_order(self, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(BlockRows, "numbers", lambda self, feeds: range(len(feeds))[::-1])
        assert self.fails()

    def test_groups_in_another_order(self, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = block_graphs._firsts
        monkeypatch.setattr(block_graphs, "_firsts", lambda groups: honest(groups)[::-1])
        with pytest.raises((AssertionError, RuntimeError)):
            check_chunks()

    def test_logits_of_other_rows_than_are_asked_for(self, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sharing, "wanted_rows", lambda feeds, wanted, device: sum(wanted))
        with pytest.raises(AssertionError):
            check_chunks()

    def test_a_table_that_is_part_of_a_graph(self, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
        honest, first = BlockRows.lay_out_groups, dict[Any, Tensor]()

        def fixed(self: BlockRows, *given: Any) -> None:
            *others, table, groups = given
            honest(self, *others, first.setdefault(table.shape, table.clone()), groups)

        monkeypatch.setattr(BlockRows, "lay_out_groups", fixed)
        assert self.fails(fixed_shapes=True)

    def test_rows_that_fill_up_go_to_a_block_of_a_text(self, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = BlockRows.lines

        def with_blocks(self: BlockRows, feeds: Any, width: int) -> list[int]:
            return honest(self, [feeds[0] if feed is None else feed for feed in feeds], width)

        monkeypatch.setattr(BlockRows, "lines", with_blocks)
        assert self.fails((3, 4, 9, 16, 5), fixed_shapes=True)

    def test_trees_that_are_not_compacted(self, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(BlockRows, "move", lambda self, *args: None)
        assert self.fails()

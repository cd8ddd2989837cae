"""Layers behind windows keep the rows that a token can still see, and no others: the logits are those of all rows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from sampling.forward.caches import rows_windowed
from sampling.forward.caches.rows import RowsCache
from sampling.forward.caches.rows_windowed import LastRows, WindowedRowsCache
from sampling.forward.models.lean import LeanModel, from_transformers
from sampling.forward.recomputing import RecomputingRunner
from sampling.forward.runner import ModelRunner, Runner
from sampling.forward.sharing import SharedRunner
from sampling.forward.state import put, taken
from sampling.loading.families.configs import FAMILIES, VOCABULARY
from sampling.loading.families.judge import random_model
from utils.errors import UserError

WINDOW, DRAFT = 8, 6
NEAR = 1e-5
"""Norms are computed in float32."""
TEXT = [(7 * place + 3 + place // 11) % VOCABULARY for place in range(100)]
NAMES = ["mistral", "gemma2", "gpt_oss"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are dropped every few tokens."""
    monkeypatch.setattr(rows_windowed, "LONGEST_DRAFT", DRAFT)
    monkeypatch.setattr(rows_windowed, "_ROOM", 10)
    monkeypatch.setattr(rows_windowed, "_UNIT", 2)


@cache
def lean(name: str) -> LeanModel:
    family = next(one for one in FAMILIES if one.model_type == name and not one.setting)
    model = from_transformers(random_model(family.config(), 0).to(torch.float64))
    assert {layer.scores.window for layer in model.layers} <= {WINDOW, None}
    return model


@cache
def expected(name: str, seed: int = 0) -> Tensor:
    return RecomputingRunner(lean(name)).forward(text(seed)).logits


def text(seed: int = 0) -> list[int]:
    return [(token + 5 * seed) % VOCABULARY for token in TEXT]


def rounds(runner: Runner, name: str, seed: int = 0) -> Iterator[tuple[str, Tensor, Tensor]]:
    """What a runner says of a text, a place and a way at a time, and what it should say."""
    tokens, right = text(seed), expected(name, seed)
    runner.read([])
    for start in range(0, 20, 10):
        yield "a prompt's chunk", runner.forward(tokens[start : start + 10]).logits, right[start : start + 10]
    wrong = [(token + 1) % VOCABULARY for token in tokens]
    while (at := runner.length) + 12 < len(tokens):
        drafts = [tokens[at], *tokens[at + 1 : at + 3], *wrong[at + 3 : at + 3 + DRAFT - 2]]
        yield "a chain", runner.forward(drafts).logits[:3], right[at : at + 3]
        runner.keep(at, (0, 1))
        at += 3
        nodes = [tokens[at], wrong[at + 1], tokens[at + 1], wrong[at + 2], tokens[at + 2], tokens[at + 3]]
        tree = runner.forward(nodes, (-1, -1, 1, 1, 3)).logits
        yield "a tree", tree[[0, 2, 4, 5]], right[at : at + 4]
        runner.keep(at, (1, 3, 4))
        at += 4
        for token in wrong[at : at + DRAFT]:
            runner.forward([token])
        runner.crop(at)
        yield "alone, behind tokens that were taken back", runner.forward([tokens[at]]).logits, right[at : at + 1]


def near(got: Tensor, right: Tensor) -> None:
    torch.testing.assert_close(got, right, rtol=0, atol=NEAR)


def difference(runner: Runner, name: str, seed: int = 0) -> float:
    return max(float((got - right).abs().max()) for _, got, right in rounds(runner, name, seed))


RUNNERS: dict[str, Callable[[LeanModel], Any]] = {
    "alone": ModelRunner,
    "over fixed shapes": ModelRunner.with_graphs,
    "shared": lambda model: SharedRunner(model).another(),
    "shared, over fixed shapes": lambda model: SharedRunner(model, fixed_shapes=True).another(),
}


@pytest.mark.parametrize("way", RUNNERS)
@pytest.mark.parametrize("name", NAMES)
def test_dropped_rows_change_nothing(name: str, way: str) -> None:
    runner = RUNNERS[way](lean(name))
    for what, got, right in rounds(runner, name):
        torch.testing.assert_close(got, right, rtol=0, atol=NEAR, msg=lambda text, what=what: f"{what}: {text}")
    storage = runner.cache.storage
    assert isinstance(storage, WindowedRowsCache)
    assert storage.last.gone(runner.cache.index) > 40 and storage.keys.shape[3] > len(TEXT)
    assert storage.last.keys.shape[3] == storage.last.most == 24


def test_texts_of_a_batch_drop_rows_of_their_own() -> None:
    for fixed in (False, True):
        many = SharedRunner(lean("gemma2"), fixed_shapes=fixed)
        slots = [many.another() for _ in range(3)]
        for seed, (slot, begun) in enumerate(zip(slots, (40, 3, 21), strict=True)):
            for start in range(0, begun, 7):
                slot.forward(text(seed)[start : min(start + 7, begun)])
        for _ in range(9):
            at = [slot.length for slot in slots]
            feeds = [slot.feed(text(seed)[slot.length : slot.length + 5]) for seed, slot in enumerate(slots)]
            for seed, (slot, output) in enumerate(zip(slots, many.run(feeds), strict=True)):
                near(output.logits, expected("gemma2", seed)[at[seed] : at[seed] + 5])
                slot.crop(at[seed] + 1 + seed)
        assert len({many.cache.gone(slot.cache.index) for slot in slots}) == 1
        assert len({many.cache.last.gone(slot.cache.index) for slot in slots}) > 1  # type: ignore[attr-defined]


def test_branches_keep_what_they_share() -> None:
    """Their rows lie between each other: the window of one is far back among them."""
    for make in RUNNERS.values():
        runner: Runner = make(lean("mistral"))
        tokens, right = text(), expected("mistral")
        runner.forward(tokens[:20])
        lines = torch.zeros(3, 0, dtype=torch.long)
        for place in range(20, 34):
            fed = [tokens[place], (tokens[place] + 1) % VOCABULARY, (tokens[place] + 2) % VOCABULARY]
            there = torch.arange(3).unsqueeze(1) + runner.length
            logits = runner.fork(fed, 20, lines).logits
            near(logits[:1], right[place : place + 1])
            lines = torch.cat([lines, there], dim=1)


def test_a_state_goes_on_in_another_cache() -> None:
    model = lean("gemma2")
    runner, other = ModelRunner(model), ModelRunner.with_graphs(model)
    for start in range(0, 60, 10):
        runner.forward(TEXT[start : start + 10])
    state = taken(runner, TEXT[:60], {})
    lengths = {keys.shape[1] for keys, _ in state.rows.values()}
    assert len(lengths) == 2 and max(lengths) == 60 and min(lengths) <= 24
    put(state, other, ())
    right = expected("gemma2")
    near(other.forward(TEXT[60:70]).logits, right[60:70])
    other.crop(62)
    near(other.forward(TEXT[62:64]).logits, right[62:64])
    short = {layer: (keys[:, -3:], values[:, -3:]) for layer, (keys, values) in state.rows.items()}
    with pytest.raises(UserError, match="3 rows are given of a layer that goes on from"):
        put(type(state)(state.tokens, short, {}), other, ())


def test_a_state_of_all_rows_goes_on_and_drops_what_is_behind() -> None:
    model = lean("gemma2").with_batch_invariance(True)
    runner, other = ModelRunner(model), ModelRunner(lean("gemma2"))
    assert not isinstance(runner.cache.storage, WindowedRowsCache)
    runner.forward(TEXT[:60])
    put(taken(runner, TEXT[:60], {}), other, ())
    assert other.cache.storage.last.gone(other.cache.index) == 60 - WINDOW - DRAFT
    near(other.forward(TEXT[60:70]).logits, expected("gemma2")[60:70])


def test_no_text_goes_back_behind_what_is_gone() -> None:
    slot = SharedRunner(lean("gemma2")).another()
    for start in range(0, 60, 10):
        slot.forward(TEXT[start : start + 10])
    with pytest.raises(ValueError, match="cannot crop to 30 rows: some that the next token sees are gone"):
        slot.crop(30)
    assert slot.length == 60
    slot.held = TEXT[:60]
    slot.crop(0)
    assert slot.resume(TEXT[:30], 30) == 0 and slot.length == 0
    assert slot.resume(TEXT[:58], 60) == 58
    near(slot.forward(TEXT[58:62]).logits, expected("gemma2")[58:62])
    slot.crop(0)
    near(slot.forward(TEXT[:20]).logits, expected("gemma2")[:20])


def test_one_width_keeps_all_rows() -> None:
    runner = ModelRunner.with_one_width(lean("gemma2"))
    assert not isinstance(runner.cache.storage, WindowedRowsCache)
    assert difference(runner, "gemma2") < NEAR


def _too_many(self: LastRows, *arguments: Any) -> None:
    init(self, *arguments)
    self._kept = WINDOW - 2


def _not_moved(self: LastRows, feed: Any) -> None:
    held = self.keys.clone(), self.values.clone()
    let_go(self, feed)
    self.keys.copy_(held[0])
    self.values.copy_(held[1])


def _untold(self: LastRows, index: int, gone: int) -> None:
    self._gone[index] = gone


def _one_further(self: LastRows, index: int, rows: Tensor, to: int) -> None:
    move(self, index, rows + 1, to)


def _no_wider(self: WindowedRowsCache, index: int, rows: Tensor, mask: Tensor) -> None:
    """A row that is gone hides none: what is seen is not moved with the rows."""
    RowsCache.lay_out_fixed(self, index, rows, mask)
    gone = self.last.gone_there[index : index + 1]
    self.last.lay_out_fixed(index, rows - gone, mask[:, : self.last.most])


init, let_go, move = LastRows.__init__, LastRows.let_go, LastRows.move
FAULTS: dict[str, tuple[Any, str, Callable[..., Any], Sequence[str]]] = {
    "rows dropped that a token still sees": (LastRows, "__init__", _too_many, [*RUNNERS]),
    "dropped rows that are still seen": (LastRows, "let_go", _not_moved, [*RUNNERS]),
    "a graph not told": (LastRows, "begin", _untold, ["over fixed shapes", "shared, over fixed shapes"]),
    "an accepted row of a tree from the place beside": (LastRows, "move", _one_further, [*RUNNERS]),
    "a mask of other rows": (WindowedRowsCache, "lay_out_fixed", _no_wider, ["over fixed shapes"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, wrong, ways = FAULTS[fault]
    monkeypatch.setattr(where, name, wrong)
    for way in ways:
        with suppress(IndexError, ValueError):
            assert difference(RUNNERS[way](lean("gemma2")), "gemma2") > 100 * NEAR, way

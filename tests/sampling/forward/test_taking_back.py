"""Windows, chunks, convolutions, states and indices: rounds that take tokens back leave the logits of a fresh text."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from sampling.forward.caches.states import rollback
from sampling.forward.caches.states.recurrent import RecurrentCache
from sampling.forward.caches.states.rollback import EveryRow, Replay, Reread, Rollback
from sampling.forward.caches.transformers_cache import IndexedLayer
from sampling.forward.models.recurrent import MOST_UNREAD, RecurrentModel
from sampling.forward.models.windows import Window
from sampling.forward.recomputing import RecomputingRunner
from sampling.forward.rollback_choice import fastest_way
from sampling.forward.runner import ModelRunner
from sampling.forward.scans import table
from sampling.forward.scans.delta_rule import DeltaRule
from sampling.forward.sharing import SharedRunner
from sampling.loading.adapt import adapted
from sampling.loading.families.configs import FAMILIES, VOCABULARY
from sampling.loading.families.judge import random_model
from sampling.pair.share import why_not_shared
from tests.refusals import refused
from utils.errors import UserError

SCANNED = ["lfm2", "qwen3_next", "mamba", "mamba2", "falcon_h1", "jamba"]
COPIED = ["zamba", "zaya", "minimax", "rwkv"]
WAYS: list[Rollback] = [Replay(), EveryRow(), Reread()]
ROWS = ["mistral", "gemma2", "gpt_oss", "llama4_text", "deepseek_v32"]


@cache
def model_of(name: str) -> Any:
    family = next(one for one in FAMILIES if one.model_type == name and not one.setting)
    return adapted(name, random_model(family.config(), 0).to(torch.float32))


@torch.inference_mode()
def far(model: Any, seed: int = 0, rounds: int = 14) -> float:
    """The largest difference to what transformers' own forward says of the whole text, without a cache.

    Rounds behind a prompt feed 1 to 6 tokens, some of which are taken back.
    """
    random = torch.Generator().manual_seed(seed)
    runner = ModelRunner(model)
    runner.read([])
    text = [5, 6, 7]
    runner.forward(text)
    worst = 0.0
    for _ in range(rounds):
        count = int(torch.randint(1, 7, (1,), generator=random))
        fed = torch.randint(VOCABULARY, (count,), generator=random).tolist()
        own = model.hf(torch.tensor([text + fed]), use_cache=False).logits[0, len(text) :]
        worst = max(worst, float((runner.forward(fed).logits - own).abs().max()))
        accepted = int(torch.randint(count, (1,), generator=random))
        runner.keep(len(text), range(accepted))
        text += fed[: accepted + 1]
    return worst


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*COPIED, *ROWS])
def test_logits_are_those_of_a_text_computed_anew(name: str) -> None:
    assert far(model_of(name)) < 1e-3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
@pytest.mark.parametrize("name", SCANNED)
def test_states_go_back_in_each_way(name: str, way: Rollback, monkeypatch: pytest.MonkeyPatch) -> None:
    read, asked = [], []
    model = model_of(name).going(way)
    forward, call = ModelRunner.forward, RecurrentModel._call
    monkeypatch.setattr(ModelRunner, "forward", lambda *given: asked.append(len(given[1])) or forward(*given))
    monkeypatch.setattr(RecurrentModel, "_call", lambda *of: read.append(of[2]["input_ids"].numel()) or call(*of))
    assert far(model) < 1e-3
    again = sum(read) - sum(asked)
    assert again > 0 if isinstance(way, Reread) else again == 0, "rows are read again in one way alone"


@pytest.mark.filterwarnings("ignore")
def test_a_decay_for_each_channel_is_replayed() -> None:
    assert far(model_of("kimi_linear").going(Replay()), rounds=3) < 1e-3


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_states_behind_rows_are_kept_by_one_way_alone(way: Rollback) -> None:
    """Plain decoding would hold one of each token otherwise."""
    runner = ModelRunner(model_of("mamba2").going(way))
    runner.read([])
    for token in range(5):
        runner.forward([token])
    cache = cast(RecurrentCache, runner.cache)
    assert cache._base is not None and cache.noted == (0 if isinstance(way, Reread) else 4)
    assert all(bool(step.kept) is isinstance(way, EveryRow) for step in cache._base.steps)


@pytest.mark.parametrize(("name", "ways"), [("lfm2", {"replay"}), ("rwkv", {"reread"}), ("zamba", {"reread"})])
def test_a_model_has_the_ways_that_its_layers_allow(name: str, ways: set[str]) -> None:
    assert model_of(name).way.name in ways


def test_the_way_that_was_timed_as_the_fastest_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("mamba2")
    seconds = {"replay": 3.0, "reread": 2.0, "every_row": 1.0}
    monkeypatch.setattr("sampling.forward.rollback_choice._pass", lambda _, way: (cache, seconds[way.name]))
    cache = type("Noted", (), {"noted": 3, "recurrent_bytes": 8})
    assert fastest_way(model).name == "every_row"
    cache.recurrent_bytes = 2**30  # type: ignore[attr-defined]
    assert fastest_way(model).name == "reread", "states of a GiB are not kept behind each row"


def test_a_window_is_counted_by_position_and_a_chunk_by_its_border() -> None:
    queries, keys = torch.tensor([3, 4]), torch.arange(6)
    assert Window(2).inside(queries, keys)[:, :5].int().tolist() == [[0, 0, 1, 1, 1], [0, 0, 0, 1, 1]]
    assert Window(4, chunked=True).inside(queries, keys).int().tolist() == [[1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1]]


@pytest.mark.parametrize("name", ["mistral", "gemma2", "llama4_text"])
def test_texts_of_a_batch_see_their_own_windows(name: str) -> None:
    model = model_of(name)
    assert why_not_shared(model) is None
    texts = [[(7 * place + start) % VOCABULARY for place in range(26)] for start in (3, 50)]
    alone = [RecomputingRunner(model).forward(text).logits for text in texts]
    many = SharedRunner(model)
    slots = [many.another() for _ in texts]
    slots[0].forward(texts[0][:21])
    slots[1].forward(texts[1][:9])
    feeds = [slots[0].feed(texts[0][21:]), slots[1].feed(texts[1][9:11])]
    long, short = (output.logits for output in many.run(feeds))
    assert torch.allclose(long, alone[0][21:], atol=1e-3) and torch.allclose(short, alone[1][9:11], atol=1e-3)


def test_a_tree_of_a_batch_sees_the_windows_of_its_branches() -> None:
    model = model_of("gemma2")
    assert why_not_shared(model) is None
    text = [(7 * place + 3) % VOCABULARY for place in range(20)]
    chain = ModelRunner(model)
    chain.forward(text)
    expected = chain.forward([5, 6, 7, 8]).logits
    slot = SharedRunner(model).another()
    slot.forward(text)
    got = slot.forward([5, 90, 6, 91, 7, 8], (-1, -1, 1, 1, 3)).logits
    assert torch.allclose(got[[0, 2, 4, 5]], expected, atol=1e-3)


def test_fixed_shapes_hold_windows() -> None:
    model = model_of("gemma2")
    assert why_not_shared(model) is None
    fixed, anew = ModelRunner.with_graphs(model), RecomputingRunner(model)
    for fed in ([4] * 13, [5, 6, 7], [9]):
        assert torch.allclose(fixed.forward(fed).logits, anew.forward(fed).logits, atol=1e-3)


def test_plain_decoding_saves_a_state_once_and_chains_save_one_a_round() -> None:
    runner = ModelRunner(model_of("qwen3_next").going(Reread()))
    runner.read([])
    runner.forward([1, 2, 3])
    for token in range(5):
        runner.keep(runner.length - 1, ())
        runner.forward([token])
    cache = runner.cache
    assert isinstance(cache, RecurrentCache) and cache._base is not None and cache._base.read == 3
    spent = cache.rollback_s
    runner.forward([4, 5, 6])
    runner.keep(8, (0,))
    assert cache.rollback_s > spent
    runner.forward([7])
    assert cache.reread == 2 and cache.unread == []


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_drafter_that_feeds_single_tokens_goes_back_to_the_round_before(way: Rollback) -> None:
    model = model_of("mamba2").going(way)
    runner, anew = ModelRunner(model), RecomputingRunner(model)
    runner.read([])
    runner.forward([1, 2, 3])
    for start in (3, 4, 5):
        for token in (9, 8, 7):
            runner.forward([token])
        runner.crop(start)
        runner.forward([start])
    cache = runner.cache
    assert isinstance(cache, RecurrentCache) and cache.reread <= 6
    anew.forward([1, 2, 3, 3, 4])
    assert torch.allclose(runner.forward([6]).logits, anew.forward([5, 6]).logits[1:], atol=1e-3)


def test_tokens_that_were_taken_back_again_and_again_are_read_by_a_forward_of_their_own() -> None:
    runner = ModelRunner(model_of("lfm2").going(Reread()))
    runner.read([])
    runner.forward([1, 2, 3, 4])
    for _ in range(MOST_UNREAD):
        start = runner.length
        runner.forward([5, 6, 7])
        runner.keep(start, (0,))
        assert len(runner.cache.unread) <= MOST_UNREAD + 2  # type: ignore[attr-defined]


def test_an_interrupted_forward_leaves_the_text_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("qwen3_next")
    runner, anew = ModelRunner(model), RecomputingRunner(model)
    runner.read([])
    runner.forward([1, 2, 3, 4])
    with monkeypatch.context() as patch:
        layer = model.hf.model.layers[-1]
        patch.setattr(layer, "forward", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            runner.forward([9, 9])
    anew.forward([1, 2, 3, 4])
    assert torch.allclose(runner.forward([5, 6]).logits, anew.forward([5, 6]).logits, atol=1e-3)


def test_trees_and_beams_are_refused_on_states() -> None:
    runner = ModelRunner(model_of("mamba2"))
    runner.forward([1, 2])
    with refused("its states sum up all tokens before"):
        runner.forward([1, 2, 3], (-1, -1))
    with pytest.raises(UserError):
        runner.fork([1], 1, torch.zeros(1, 0, dtype=torch.long))


@contextmanager
def planted(where: Any, name: str, fault: Callable[..., Any]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, name, fault)
        yield


def _wide(window: Window, queries: Tensor, keys: Tensor) -> Tensor:
    return queries.unsqueeze(-1) - keys.unsqueeze(-2) < window.size + 1


def _dropped(before: Tensor, inputs: list[Tensor], rows: int) -> Tensor:
    return conv_behind(before, inputs, max(rows - 1, 0))


def _again(scan: DeltaRule, state: Tensor, rows: int) -> Tensor:
    return behind(scan, behind(scan, state, rows), 1)


def _unread(model: Any, tokens: Tensor, positions: Tensor, mask: Any, cache: Any, hidden: Any, rows: Any) -> Any:
    cache.mend()
    if cache.unread:
        with cache.reading(torch.tensor(cache.unread), 0):
            pass  # counted as read, while the states have not read them
    return read(model, tokens, positions, mask, cache, hidden, rows)


def _twice(cache: RecurrentCache) -> None:
    mend(cache)
    if cache.unread and cache.read:
        cache.read -= 1  # the token before is read once more


def _left_behind(layer: IndexedLayer, indexer_key_states: Tensor) -> Tensor:
    before = layer.keys_there
    count = layer._cache.length
    if before is not None and count:
        first = before[:, -count:] if before.shape[1] >= count else before
        indexer_key_states = torch.cat([first, indexer_key_states], dim=1)
    layer.keys_there = indexer_key_states
    return indexer_key_states


mend, read, behind, conv_behind = RecurrentCache.mend, RecurrentModel.forward, DeltaRule.behind, rollback.conv_behind
FAULTS: dict[str, tuple[str, Any, str, Callable[..., Any], Rollback | None]] = {
    "a window off by one": ("gemma2", Window, "inside", _wide, None),
    "a state not restored": ("qwen3_next", RecurrentCache, "_put", lambda *_: None, Replay()),
    "a state not restored, to be read again": ("qwen3_next", RecurrentCache, "_put", lambda *_: None, Reread()),
    "a token read twice": ("mamba2", RecurrentCache, "mend", _twice, Reread()),
    "a row replayed twice": ("qwen3_next", DeltaRule, "behind", _again, Replay()),
    "a state of another row": (
        "qwen3_next",
        EveryRow,
        "_recurrent",
        lambda _, steps, place, __: steps[-1].kept[place][0],
        EveryRow(),
    ),
    "accepted tokens not read again": ("qwen3_next", RecurrentModel, "forward", _unread, Reread()),
    "a convolution input dropped": ("lfm2", rollback, "conv_behind", _dropped, Replay()),
    "an index key left behind": ("deepseek_v32", IndexedLayer, "update_indexer", _left_behind, None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(fault: str) -> None:
    name, where, attribute, wrong, way = FAULTS[fault]
    model = model_of(name) if way is None else model_of(name).going(way)
    assert far(model) < 1e-3
    with planted(where, attribute, wrong):
        assert far(model) > 0.1


def test_a_scan_that_begins_from_nothing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("mamba")
    right = far(model)
    monkeypatch.setattr(table, "run_by", lambda _: nullcontext())
    assert right < 1e-4 and far(model.going(Reread())) > 100 * right

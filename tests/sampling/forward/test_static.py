"""The static path on a CPU: the same numbers as the dynamic one, from fixed shapes and addresses."""

import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from sampling.forward.caches import fixed as fixed_cache
from sampling.forward.caches import rows
from sampling.forward.graphs import sequence_graphs
from sampling.forward.graphs.sequence_graphs import width_for
from sampling.forward.models.lean import LeanModel, from_transformers
from sampling.forward.runner import ModelRunner, feed, prefill
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from tests.tiny import TOKENS, llama, random_model, tiny_pair
from utils.device import graphed as graphed_module
from utils.device.captured import failed_at, failures
from utils.device.graphed import Graphed
from utils.events import Round

TREE = (-1, -1, 0, 0, 1, 3)
PROMPT = [5, 9, 2, 7, 7, 30, 4]


def both(dtype: torch.dtype = torch.float64) -> tuple[ModelRunner, ModelRunner]:
    weights: LeanModel = from_transformers(random_model(llama()).to(dtype))
    return ModelRunner(weights), ModelRunner.with_graphs(weights)


def alike(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0.0, atol=1e-12)


def test_a_text_is_fed_as_by_the_dynamic_runner() -> None:
    """Prompt, chain, tree with a kept side branch, and what follows; states of layers as well."""
    dynamic, fixed = both()
    for runner in (dynamic, fixed):
        prefill(runner, PROMPT)
    for tokens, parents, path in (
        ([3, 8, 1], None, (0,)),
        ([3, 8, 1, 4, 4, 6, 2], TREE, (1, 4)),
        ([12], None, ()),
        ([3, 8, 1, 4, 4, 6, 2], TREE, (0, 3, 5)),
    ):
        base = dynamic.length
        one, other = (runner.forward(tokens, parents, hidden=(0, 2, 3)) for runner in (dynamic, fixed))
        alike(one.logits, other.logits)
        for layer in (0, 2, 3):
            alike(one.hidden[layer], other.hidden[layer])
        for runner in (dynamic, fixed):
            runner.keep(base, path)
        assert dynamic.length == fixed.length == base + 1 + len(path)


@pytest.mark.parametrize("count", [1, 2, 17, 18, 24, 33, 64, 65, 90])
def test_wider_forwards_are_filled_up(count: int) -> None:
    dynamic, fixed = both()
    ids = torch.arange(count) % TOKENS
    alike(dynamic.forward(ids).logits, fixed.forward(ids).logits)
    alike(dynamic.forward([4, 5], rows=1).logits, fixed.forward([4, 5], rows=1).logits)
    assert width_for(count) >= count


def test_no_row_of_logits_is_computed_that_nobody_asked_for() -> None:
    _, fixed = both()
    assert fixed.forward(PROMPT, rows=0).logits.shape == (0, TOKENS)
    assert fixed.forward(torch.arange(20), rows=1).logits.shape == (1, TOKENS)


def test_texts_side_by_side() -> None:
    dynamic, fixed = both()
    lines = torch.tensor([[7, 9], [7, 10], [8, 11]])
    for runner in (dynamic, fixed):
        feed(runner, [*PROMPT, 1, 2, 3, 4, 5])
    one, other = (runner.fork([1, 2, 3], 7, lines) for runner in (dynamic, fixed))
    alike(one.logits, other.logits)


def test_the_cache_grows_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed_cache, "ROOM", 16)
    monkeypatch.setattr(rows, "_ROOM", 16)
    dynamic, fixed = both()
    for start in range(0, 120, 8):
        ids = [(start + place) % TOKENS for place in range(8)]
        alike(dynamic.forward(ids).logits, fixed.forward(ids).logits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_junk_in_rows_that_do_not_count_changes_no_bit(dtype: torch.dtype) -> None:
    _, fixed = both(dtype)
    feed(fixed, PROMPT)
    clean = fixed.forward([3, 8, 1]).logits.clone()
    fixed.crop(len(PROMPT))
    with torch.inference_mode():
        for buffer in (fixed.cache.owner.keys, fixed.cache.owner.values):
            buffer[:, :, :, len(PROMPT) :] = 1e4
    assert torch.equal(fixed.forward([3, 8, 1]).logits, clean)


def test_addresses_and_shapes_stay() -> None:
    _, fixed = both()
    feed(fixed, PROMPT)

    def places() -> list[tuple[int, ...]]:
        held = fixed.cache.owner.keys, fixed.cache.owner.values, fixed.cache.length_there
        return [(one.data_ptr(), *one.shape, *one.stride()) for one in held]

    found = []
    for _ in range(4):
        fixed.forward([1, 2, 3, 4, 5])
        fixed.keep(fixed.length - 5, (0, 1))
        found.append(places())
    assert all(one == found[0] for one in found)
    assert {step.shapes for step in fixed.graphs._captured.steps.values()} == {1}


def test_a_runner_that_is_gone_leaves_its_cache_and_graphs_to_the_next() -> None:
    _, first = both()
    feed(first, PROMPT)
    second = first.another()
    assert second.cache is not first.cache and second.length == 0
    slot, captured = first.cache, first.graphs._captured
    del first
    third = second.another()
    assert third.cache is slot and third.length == 0 and captured.steps


def test_one_graph_serves_chains_and_trees_of_a_width() -> None:
    """No graph break, and no compiling anew for twenty rounds."""
    _, fixed = both(torch.float32)
    feed(fixed, PROMPT)
    step = torch.compile(
        partial(sequence_graphs._step, fixed.model, fixed.cache, fixed.cache.columns(7), 7, ()),
        backend="eager",
        fullgraph=True,
        dynamic=False,
    )
    with torch.inference_mode():
        ids = torch.arange(7)
        chain, tree = sequence_graphs.chain(7, 7, fixed.device), sequence_graphs.laid_out(TREE, 7, fixed.device)
        step(ids + 0, *chain)
        with torch.compiler.set_stance("fail_on_recompile"):
            for turn in range(20):
                fixed.cache.length_there.fill_(len(PROMPT) + turn)
                step(ids + turn, *(tree if turn % 2 else chain))


def test_an_output_is_overwritten_by_the_next_forward() -> None:
    _, fixed = both()
    first = fixed.forward([1, 2]).logits
    assert first.isfinite().all()
    fixed.forward([3, 4])
    assert first.isnan().all()


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("target", {}),
        ("speculative", {"gamma": 3}),
        ("egag", {}),
        ("suffix", {"use_tree_spec": True}),
        ("recycling", {}),
    ],
)
def test_methods_say_the_same_on_it(method: str, values: dict[str, int]) -> None:
    """Whoever keeps an output of a forward too long reads NaN here."""
    pair = tiny_pair()
    assert pair.drafter is not None
    models = pair.target.model, pair.drafter.model
    assert isinstance(models[0], LeanModel) and isinstance(models[1], LeanModel)
    fixed = replace(pair, target=ModelRunner.with_graphs(models[0]), drafter=ModelRunner.with_graphs(models[1]))  # type: ignore[arg-type]
    asked = {**Settings(), "length": 40, **values}
    one, other = (
        [event for event in PairEngine(made).stream(method, asked, PROMPT) if isinstance(event, Round)]
        for made in (pair, fixed)
    )
    assert [(round.drafts, round.path, round.next_token) for round in one] == [
        (round.drafts, round.path, round.next_token) for round in other
    ]
    for mine, its in zip(one, other, strict=True):
        assert its.entropy is None if mine.entropy is None else its.entropy == pytest.approx(mine.entropy, rel=1e-4)


def test_a_function_is_called_as_it_is_without_a_gpu() -> None:
    graphed = Graphed(lambda one, other: (one + other, one * other), torch.device("cpu"))
    total, product = graphed(torch.tensor([2]), torch.tensor([3]))
    assert (total.item(), product.item(), graphed.shapes, graphed.reason) == (5, 6, 1, "")
    graphed(torch.tensor([1]), torch.tensor([1]))
    assert total.item() < -(2**62)


def test_what_cannot_be_captured_is_called_and_the_reason_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_graph(*about: object) -> None:
        try:
            raise RuntimeError("there is no stream\nand more")
        finally:
            raise RuntimeError("a capture ended")

    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(graphed_module, "_recorded", no_graph)
    monkeypatch.setattr(graphed_module, "captures", lambda device: True)
    several = [Graphed(lambda one: (one + 1,), torch.device("cpu")) for _ in range(2)]
    for graphed in several:
        for number in range(3):
            assert graphed(torch.tensor([number]))[0].item() == number + 1
        assert graphed.reason == "there is no stream" and graphed.shapes == 0
    assert failures()[-2:] == ("there is no stream", "there is no stream")
    assert re.fullmatch(r"tests/sampling/forward/test_static\.py:\d+ in no_graph", failed_at())
    assert [record.message for record in caplog.records] == [
        "called without a CUDA graph from now on, which could not be captured: there is no stream"
    ]


def planted(name: str, fixed: ModelRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = fixed.cache
    if name == "nan behind the text":
        with torch.inference_mode():
            cache.owner.values[:, :, :, cache.length + 8 :] = torch.nan
    elif name == "a length one too high":
        cache.length_there += 1
    elif name == "a padding row that is seen":
        made = sequence_graphs.chain(20, 24, fixed.device)
        monkeypatch.setattr(sequence_graphs, "chain", lambda *given: (made[0], torch.ones_like(made[1])))
    else:
        stale = sequence_graphs.laid_out(TREE, 7, fixed.device)
        monkeypatch.setattr(sequence_graphs, "laid_out", lambda *given: stale)


@pytest.mark.parametrize(
    "name", ["nan behind the text", "a length one too high", "a padding row that is seen", "the last tree's mask"]
)
def test_planted_bugs_are_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests above compare tells each of them."""
    dynamic, fixed = both()
    for runner in (dynamic, fixed):
        feed(runner, PROMPT)
    planted(name, fixed, monkeypatch)
    given: tuple[Sequence[int], Sequence[int] | None] = (
        (range(20), None) if "padding" in name else (range(7), (-1, 0, 1, 2, 3, 4))
    )
    one, other = (runner.forward(list(given[0]), given[1]).logits for runner in (dynamic, fixed))
    with pytest.raises(AssertionError):
        alike(one, other)

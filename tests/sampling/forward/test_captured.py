"""Captures as a card makes them, emulated on a CPU: what they must not hold, and that methods say the same on them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from sampling.forward.models import lean
from sampling.forward.runner import ModelRunner
from sampling.loop import decode
from sampling.methods.choices import make_processor
from sampling.methods.settings import Settings
from sampling.methods.tables import DRAFTERS, METHODS
from sampling.methods.verifiers import make_verifier
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from tests import emulated_graphs
from tests.emulated_graphs import emulate
from tests.heads import random_heads
from tests.refusals import refused
from tests.tiny import TOKENS, WIDE, llama, random_model
from utils.device import graphed
from utils.device.captured import captured_s, failures
from utils.device.graph_pool import GraphPool
from utils.device.graphed import CaptureBroken, Graphed
from utils.events import Round

CPU = torch.device("cpu")
LAYERS, WINDOW = 3, 256
PROMPT = [5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 9, 10, 5, 6, 7, 8]
SAMPLED = "multinomial 1.0"
TREE = {"draft_tree": "dynamic", "gamma": "4", "tree_width": "4", "tree_tokens": "16"}
DRAWN = {"draft_tree": "drawn", "gamma": "4", "processor": SAMPLED}


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch)


def pair_of(with_graphs: Callable[[lean.LeanModel], ModelRunner]) -> Pair:
    """A pair with all heads."""
    model = lean.from_transformers(random_model(llama(max_position_embeddings=WINDOW)))
    small = replace(model, blocks=replace(model.blocks, layers=model.layers[:2]))
    target, drafter = with_graphs(model), with_graphs(small)
    info = ModelInfo("tiny", "cpu", "float32", graphs=target.fixed_shapes)
    heads = random_heads(WIDE["hidden_size"], LAYERS, WINDOW, tuple(range(0, TOKENS, 3)), TOKENS)
    return Pair(target, drafter, None, frozenset({-7}), info, info, heads=heads)  # type: ignore[arg-type]


def rounds(pair: Pair, name: str, given: Mapping[str, str], length: int = 48) -> Iterator[Round]:
    method, settings = METHODS[name], Settings()
    settings.assign_all(given.items())
    values = {**settings, **method.preset}
    parts = DRAFTERS[method.drafter].build(pair, values), method.rule.build(pair, values), make_verifier(method, values)
    events = decode(pair.target, *parts, make_processor(values["processor"]), PROMPT, max_new_tokens=length, seed=1)
    yield from (event for event in events if isinstance(event, Round))


@pytest.mark.parametrize(
    ("method", "values"),
    [
        ("target", {}),
        ("speculative", {"gamma": "4", "processor": SAMPLED}),
        ("egag", {}),
        ("mtp", TREE),
        ("eagle", {"gamma": "4", "processor": SAMPLED}),
        ("eagle", {**TREE, "processor": SAMPLED}),
        ("eagle", DRAWN),
        ("eagle", {**DRAWN, "verify_strategy": "traversal"}),
        ("medusa", {"gamma": "3"}),
        ("medusa", {"draft_tree": "best_first", "gamma": "3"}),
        ("hydra", {"draft_tree": "dynamic", "gamma": "3", "tree_tokens": "12"}),
        ("ngram", {}),
        ("suffix", {"use_tree_spec": "on"}),
    ],
    ids=lambda one: one if isinstance(one, str) else "-".join(one.values()),
)
def test_methods_say_the_same_on_graphs(method: str, values: dict[str, str], emulated: None) -> None:
    """No capture reads the host, and nothing that a graph left in shared memory is looked at."""
    before, took = failures(), captured_s()
    said = [
        [(round.drafts, round.path, round.next_token) for round in rounds(pair_of(runner), method, values)]
        for runner in (ModelRunner, ModelRunner.with_graphs)
    ]
    assert said[0] == said[1]
    assert failures() == before and captured_s() > took


def reads(one: Tensor) -> tuple[Tensor]:
    return (one + one.sum().item(),)


def chooses(one: Tensor) -> tuple[Tensor]:
    return (one[one > 0],)


def sends(one: Tensor) -> tuple[Tensor]:
    return (one + torch.tensor([1.0]),)


def draws(one: Tensor) -> tuple[Tensor]:
    return (one + torch.rand(1),)


@pytest.mark.parametrize("function", [reads, chooses, sends, draws], ids=lambda one: one.__name__)
def test_what_no_graph_can_hold_is_seen(function: Callable[[Tensor], tuple[Tensor]], emulated: None) -> None:
    called = Graphed(function, CPU)
    called(torch.ones(2))
    assert "capture" in called.reason and called.shapes == 0


def test_an_address_that_is_gone_is_seen(emulated: None) -> None:
    held = {"one": torch.ones(2)}
    called = Graphed(lambda one: (one + held["one"],), CPU)
    for _ in range(2):
        called(torch.ones(2))
    del held["one"]
    with pytest.raises(emulated_graphs.NotCapturable, match="is gone"):
        called(torch.ones(2))


def test_graphs_share_memory_and_no_output_lies_in_it(emulated: None) -> None:
    pool = GraphPool()
    first, second = (Graphed(lambda one: ((one * 2).cumsum(0), one + 1), CPU, pool) for _ in range(2))
    told = first(torch.ones(3))
    second(torch.zeros(3))
    second(torch.zeros(3))
    assert told[0].tolist() == [2.0, 4.0, 6.0] and told[1].tolist() == [2.0, 2.0, 2.0]
    assert {graph._pool for graph in emulated_graphs.pools[1]} == {1} and len(emulated_graphs.pools) == 1


def test_the_least_used_graph_goes_first(emulated: None) -> None:
    pool = GraphPool(most=2)
    called = Graphed(lambda one: (one + 1,), CPU, pool)
    for rows in (1, 2, 1, 3):
        assert called(torch.ones(rows))[0].tolist() == [2.0] * rows
    assert [key[1][0] for key in pool] == [(1,), (3,)]  # type: ignore[index]
    alone = Graphed(lambda one: (one + 1,), CPU, GraphPool(most=1))
    for rows in (1, 2, 1):
        alone(torch.ones(rows))
    assert alone.shapes == 1 and not alone.reason


@pytest.mark.parametrize(("version", "broken"), [("2.11.0+cu130", True), ("2.12.0", False)])
def test_a_capture_whose_end_fails(version: str, broken: bool, emulated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to torch 2.11 the allocator is not whole after it: nothing goes on then, in any function."""

    ends = emulated_graphs.Graph.__exit__

    def ends_badly(self: emulated_graphs.Graph, *given: Any) -> None:
        ends(self, *given)
        raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(emulated_graphs.Graph, "__exit__", ends_badly)
    called, other = Graphed(reads, CPU), Graphed(lambda one: (one,), CPU)
    if not broken:
        assert called(torch.ones(2))[0].tolist() == [3.0, 3.0] and "item in a capture" in called.reason
        return
    for one in (called, other, called):
        with refused("item in a capture", version, "restart", "--graphs off"):
            one(torch.ones(2))
    assert issubclass(CaptureBroken, ValueError) and graphed._broken

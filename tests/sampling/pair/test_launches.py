"""What a round queues on the device where forwards are captured: the host works as long as it queues."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from sampling.forward.models import lean
from sampling.forward.runner import ModelRunner
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from tests.heads import random_heads
from tests.launches import capture, launches, told
from tests.pretend_cuda import Pretend, pretended, watched
from tests.sampling.pair.test_crossings import LAYERS, SAMPLED, rounds_of
from tests.tiny import TOKENS, WIDE, llama, random_model

WINDOW, SKIPPED, ROUNDS = 512, 4, 8
CHAIN, DRAWN_CHAIN = {"gamma": "4"}, {"gamma": "4", "processor": SAMPLED}
TREE = {"draft_tree": "dynamic", "gamma": "6", "tree_width": "8", "tree_tokens": "60"}


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """A pair whose weights lie on the pretended device, and whose forwards are captured there."""
    made = random_model(llama(max_position_embeddings=WINDOW))
    with pretended(monkeypatch):
        capture(monkeypatch)
        weights: dict[str, Any] = {name: Pretend(weight.detach()) for name, weight in made.named_parameters()}
        model = lean.from_weights(made.config, weights)
        small = replace(model, blocks=replace(model.blocks, layers=model.layers[:2]))
        info = ModelInfo("tiny", "cuda:0", "float32", graphs=True)
        heads = random_heads(WIDE["hidden_size"], LAYERS, WINDOW, tuple(range(0, TOKENS, 3)), TOKENS)
        target, drafter = ModelRunner.with_graphs(model), ModelRunner.with_graphs(small)
        yield Pair(target, drafter, None, frozenset({-7}), info, info, heads=heads)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "values", "most"),
    [
        ("target", {}, 5),
        ("target", {"processor": SAMPLED}, 5),
        ("speculative", CHAIN, 15),
        ("speculative", DRAWN_CHAIN, 15),
        ("mtp", CHAIN, 17),
        ("eagle", CHAIN, 20),
        ("eagle", TREE, 30),
        ("eagle", {**TREE, "processor": SAMPLED}, 30),
        ("mtp", TREE, 30),
    ],
    ids=lambda one: "-".join(one.values()) if isinstance(one, dict) else str(one),
)
def test_a_round_has_few_launches(there: Pair, method: str, values: Mapping[str, str], most: int) -> None:
    rounds = rounds_of(there, method, values)
    for _ in range(SKIPPED):
        next(rounds)
    with watched() as found:
        made = list(islice(rounds, ROUNDS))
    assert len(made) == ROUNDS and launches(found) <= most * ROUNDS, told(found)

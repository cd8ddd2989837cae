"""How often a round waits for the device, for every method, on a CUDA device that is pretended.

One packet a round is read: verdict, tokens, probabilities. What reads more says why. Nothing is sent from memory that
may be paged out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, cast

import pytest
import torch

from sampling.engine import Text
from sampling.forward.caches.fixed import BUCKET
from sampling.forward.causal_model import Shareable
from sampling.forward.graphs import sequence_graphs
from sampling.forward.graphs.one_width import WIDTH
from sampling.forward.models import lean
from sampling.forward.runner import ModelRunner, WholeRunner
from sampling.loop import decode
from sampling.methods.choices import make_processor
from sampling.methods.settings import Settings
from sampling.methods.tables import DRAFTERS, METHODS
from sampling.methods.verifiers import make_verifier
from sampling.pair.model_info import ModelInfo
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from tests.heads import random_heads
from tests.pretend_cuda import Crossings, Pretend, pretended, watched
from tests.tiny import TOKENS, WIDE, llama, random_model
from utils.events import Round

PROMPT = [5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 9, 10, 5, 6, 7, 8]
LAYERS, WINDOW, SKIPPED, ROUNDS = 3, 256, 3, 6
SAMPLED, CUT = "multinomial 1.0", "nucleus 1.0 0.9"
TREE = {"draft_tree": "dynamic", "gamma": "4", "tree_width": "4", "tree_tokens": "16"}

DRAWN = {"draft_tree": "drawn", "gamma": "4", "processor": SAMPLED}


@pytest.fixture(params=[False, True], ids=["dynamic", "fixed"])
def there(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """A pair whose weights lie on the pretended device."""
    made = random_model(llama(max_position_embeddings=WINDOW))
    with pretended(monkeypatch):
        weights: dict[str, Any] = {name: Pretend(weight.detach()) for name, weight in made.named_parameters()}
        model = lean.from_weights(made.config, weights)
        small = replace(model, blocks=replace(model.blocks, layers=model.layers[:2]))
        info = ModelInfo("tiny", "cuda:0", "float32", graphs=request.param)
        heads = random_heads(WIDE["hidden_size"], LAYERS, WINDOW, tuple(range(0, TOKENS, 3)), TOKENS)
        target, drafter = (runner(one, request.param) for one in (model, small))
        yield Pair(target, drafter, None, frozenset({-7}), info, info, heads=heads)  # type: ignore[arg-type]


def runner(model: lean.LeanModel, fixed: bool) -> WholeRunner:
    return ModelRunner.with_graphs(model) if fixed else ModelRunner(model)


def rounds_of(pair: Pair, name: str, given: Mapping[str, str]) -> Iterator[Round]:
    """The rounds of a method, as they come."""
    method, settings = METHODS[name], Settings()
    settings.assign_all(given.items())
    values = {**settings, **method.preset}
    events = decode(
        pair.target,
        DRAFTERS[method.drafter].build(pair, values),
        method.rule.build(pair, values),
        make_verifier(method, values),
        make_processor(values["processor"]),
        PROMPT,
        max_new_tokens=200,
        seed=1,
    )
    yield from (event for event in events if isinstance(event, Round))


def crossings(pair: Pair, name: str, given: Mapping[str, str]) -> tuple[Crossings, int, int]:
    """What crosses in so many rounds, how many they are, and how many drafts they had."""
    rounds = rounds_of(pair, name, given)
    for _ in range(SKIPPED):
        next(rounds)
    with watched() as found:
        made = [next(rounds) for _ in range(ROUNDS)]
    return found, ROUNDS, sum(len(round.drafts) for round in made)


def output(pair: Pair, name: str, given: Mapping[str, str]) -> list[int]:
    """The first tokens that a method says."""
    return [token for round in islice(rounds_of(pair, name, given), 8) for token in round.emitted]


ONE = [
    ("target", {}),
    ("target", {"processor": SAMPLED}),
    ("target", {"processor": CUT}),
    ("speculative", {"gamma": "4"}),
    ("speculative", {"gamma": "4", "processor": SAMPLED}),
    ("speculative", {"gamma": "4", "processor": CUT}),
    ("mtp", {"gamma": "4"}),
    ("mtp", TREE),
    ("eagle", {"gamma": "4", "processor": SAMPLED}),
    ("eagle", TREE),
    ("eagle", {**TREE, "processor": SAMPLED}),
    ("eagle", DRAWN),
    ("eagle", {**DRAWN, "verify_strategy": "traversal"}),
    ("medusa", {**DRAWN, "gamma": "3", "verify_strategy": "block"}),
    ("medusa", {"gamma": "3"}),
    ("medusa", {"draft_tree": "static", "gamma": "3"}),
    ("hydra", {"gamma": "3"}),
    ("hydra", {"draft_tree": "dynamic", "gamma": "3", "tree_tokens": "12"}),
    ("ngram", {"top_k_filler": "1"}),
    ("prompt_lookup", {}),
    ("suffix", {}),
    ("suffix", {"use_tree_spec": "on"}),
]


@pytest.mark.parametrize(
    ("method", "values"), ONE, ids=lambda one: one if isinstance(one, str) else "-".join(one.values())
)
def test_a_round_is_read_once(there: Pair, method: str, values: dict[str, str]) -> None:
    found, rounds, _ = crossings(there, method, values)
    assert (found.count("read"), found.count("sent")) == (rounds, 0), found.told()


def test_counting_what_came_close_reads_twice(there: Pair) -> None:
    """The other likely tokens at each judged position are no part of a verdict."""
    found, rounds, _ = crossings(there, "ngram", {})
    assert (found.count("read"), found.count("sent")) == (2 * rounds, 0), found.told()


def test_a_rule_that_looks_at_the_first_draft_reads_twice(there: Pair) -> None:
    found, rounds, _ = crossings(there, "egag", {})
    assert (found.count("read"), found.count("sent")) == (2 * rounds, 0), found.told()


def test_the_likeliest_paths_are_found_on_the_host(there: Pair) -> None:
    found, rounds, _ = crossings(there, "medusa", {"draft_tree": "best_first", "gamma": "3"})
    assert (found.count("read"), found.count("sent")) == (2 * rounds, 0), found.told()


def test_a_rule_that_looks_at_each_draft_reads_each(there: Pair) -> None:
    found, rounds, drafts = crossings(there, "speculative", {"draft_rule": "confidence", "confidence_threshold": "0.0"})
    assert drafts and found.count("sent") == 0
    assert drafts <= found.count("read") <= rounds + drafts, found.told()  # none at the last draft that is allowed


def test_copies_behind_drafts_need_to_know_them(there: Pair) -> None:
    found, rounds, _ = crossings(there, "extended", {})
    assert (found.count("read"), found.count("sent")) == (2 * rounds, 0), found.told()


@pytest.mark.parametrize("processor", ["greedy", SAMPLED])
def test_a_drafter_on_another_device(there: Pair, processor: str) -> None:
    """The drafter model stays on the host and says there what it says beside its target."""
    made = random_model(llama(max_position_embeddings=WINDOW))
    model = lean.from_transformers(made)
    small = replace(model, blocks=replace(model.blocks, layers=model.layers[:2]))
    apart = replace(there, drafter=ModelRunner(small))
    told = [output(pair, "speculative", {"gamma": "4", "processor": processor}) for pair in (there, apart)]
    assert told[0] == told[1]


def test_two_sides_in_one_operation_are_refused(there: Pair) -> None:
    with pytest.raises(RuntimeError, match="tensors on cuda and on the cpu"):
        there.target.model.embedding + torch.ones(WIDE["hidden_size"])


@pytest.mark.parametrize(
    ("name", "values"), [("speculative", {"gamma": "4"}), ("mtp", TREE), ("suffix", {}), ("ngram", {})]
)
def test_in_one_width_the_target_runs_one_forward_for_all(
    name: str, values: dict[str, str], there: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt, plain decoding and every round are forwards of the same kernels on the same shapes."""
    model = there.target.model
    pair = replace(there, target=ModelRunner.with_one_width(cast(Shareable, model)))
    shapes, step = set[tuple[Any, ...]](), sequence_graphs._step

    def watched(model: Any, cache: Any, columns: int, rows: int, hidden: Any, *inputs: Any) -> Any:
        if model is pair.target.model:
            shapes.add((columns, rows, *(tuple(one.shape) for one in inputs)))
        return step(model, cache, columns, rows, hidden, *inputs)

    monkeypatch.setattr(sequence_graphs, "_step", watched)
    plain = output(pair, "target", {})
    said = output(pair, name, values)
    assert said[: len(plain)] == plain[: len(said)]
    assert {shape[1:] for shape in shapes} <= {(rows, (WIDTH,), (WIDTH,), (WIDTH, WIDTH)) for rows in (0, WIDTH)}
    assert {shape[0] for shape in shapes} == {BUCKET}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("target", {}),
        ("target", {"processor": SAMPLED}),
        ("speculative", {"gamma": "4"}),
        ("speculative", {"gamma": "4", "processor": SAMPLED}),
        ("mtp", {"gamma": "4"}),
        ("eagle", {"gamma": "4", "processor": SAMPLED}),
        ("medusa", {"gamma": "3"}),
        ("prompt_lookup", {}),
    ],
    ids=lambda one: one if isinstance(one, str) else "-".join(one.values()),
)
def test_a_round_of_many_texts_is_read_once(there: Pair, name: str, values: dict[str, str]) -> None:
    settings = Settings()
    settings.assign_all({**values, "length": "100"}.items())
    engine = PairEngine(there)
    batch = engine.batch(name, {**settings}, 3)
    for number in range(3):
        batch.admit(engine.request(name, {**settings}, Text(None, tuple(PROMPT[number:]), 100)))
    for _ in range(SKIPPED):
        batch.play()
    with watched() as found:
        played = [batch.play() for _ in range(ROUNDS)]
    assert all(isinstance(round, Round) for rounds in played for _, round in rounds)
    assert (found.count("read"), found.count("sent")) == (ROUNDS, 0), found.told()

"""transformers' generate behind the protocol: the same tokens, and counts that are its own."""

from pathlib import Path

import pytest

from engines.transformers_engine import TransformersEngine
from sampling.loading.options import LoadOptions
from sampling.loading.pairs import load_pair
from sampling.measure.metrics import RunMetrics
from sampling.methods.settings import PARAMETERS, Settings
from sampling.pair.pair_engine import PairEngine
from tests.refusals import refused
from tests.tiny import llama, save_checkpoint
from utils.events import WholeAnswer

PROMPT = [5, 6, 7, 5, 6, 7, 5, 6]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> TransformersEngine:
    folder: Path = tmp_path_factory.mktemp("checkpoints")
    target = save_checkpoint(folder / "target", llama(max_position_embeddings=256))
    drafter = save_checkpoint(folder / "drafter", llama(max_position_embeddings=256), noise=0.02)
    pair = load_pair(LoadOptions(target=str(target), drafter=str(drafter), dtype="float32"))
    return TransformersEngine(PairEngine(pair))


def answer(engine: TransformersEngine, method: str, **changes: object) -> WholeAnswer:
    (found,) = engine.stream(method, {**Settings(), "length": 40, **changes}, PROMPT)
    assert isinstance(found, WholeAnswer)
    return found


def ours(engine: TransformersEngine, method: str, **changes: object) -> RunMetrics:
    metrics = RunMetrics()
    for event in engine.home.stream(method, {**Settings(), "length": 40, **changes}, PROMPT):
        metrics.add(event)
    return metrics


def test_plain_greedy_is_ours(engine: TransformersEngine) -> None:
    found, expected = answer(engine, "target"), ours(engine, "target")
    assert list(found.output_ids) == expected.output_ids and found.reason == expected.finish_reason
    assert found.acceptance.rounds == len(found.output_ids) and found.acceptance.drafted == 0
    assert 0 < found.ttft_s <= found.wall_s and found.first == 1


@pytest.mark.parametrize("method", ["speculative", "prompt_lookup"])
def test_assisted_greedy_is_plain_greedy_and_counts_its_rounds(engine: TransformersEngine, method: str) -> None:
    found, plain = answer(engine, method, gamma=3), answer(engine, "target")
    told = found.acceptance
    assert found.output_ids == plain.output_ids
    assert told.by_round and told.rounds == len(told.by_round) and told.accepted
    assert told.accepted + told.rounds == len(found.output_ids)
    assert told.drafted == sum(drafted for _, drafted in told.by_round) >= told.accepted
    assert all(accepted <= drafted for accepted, drafted in told.by_round)


def test_the_same_drafter_has_the_same_rounds_as_ours(engine: TransformersEngine) -> None:
    """Greedy, three drafts a round: who accepts what is a matter of the two models alone, until the text ends."""
    found, expected = answer(engine, "speculative", gamma=3), ours(engine, "speculative", gamma=3)
    metrics = RunMetrics()
    metrics.add(found)
    assert metrics.tokens_by_round[:-1] == expected.tokens_by_round[:-1]


def test_a_seed_draws_again_what_it_drew(engine: TransformersEngine) -> None:
    sampled = {"processor": PARAMETERS["processor"].parse("topknucleus 1.2 20 0.9"), "seed": 5}
    once, again = answer(engine, "speculative", **sampled), answer(engine, "speculative", **sampled)
    assert once.output_ids == again.output_ids


def test_what_it_lacks_is_refused_by_name(engine: TransformersEngine) -> None:
    with refused("transformers", "suffix", "target"):
        list(engine.stream("suffix", Settings(), [1]))

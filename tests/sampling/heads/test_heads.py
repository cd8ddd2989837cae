"""Trained heads on a tiny Llama: what drafts is what was trained."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from egag.length_rule import FixedGamma
from sampling.distill.batches import TrainingBatch
from sampling.distill.shards import TrainingRow
from sampling.distill.tasks import feature_layers
from sampling.distill.training import Schedule, Trainer
from sampling.drafters.draft_tree import TreeShape, grow_tree
from sampling.drafters.heads.eagle_mtp import RecurrentDrafter
from sampling.forward.models import lean
from sampling.forward.requests import StepGenerator, run_single
from sampling.forward.runner import ModelRunner, prefill
from sampling.heads.head_files import load_head
from sampling.heads.inference import RecurrentForward, small_model
from sampling.heads.recurrent_runner import RecurrentRunner
from sampling.methods.settings import Settings
from sampling.methods.tables import DRAFTERS, HEADS, METHODS
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from sampling.pair.pair_messages import no_head
from tests.refusals import refused
from tests.sequences import sequence
from tests.tiny_heads import DRAFT_IDS, KINDS, pair_of, rows_of, saved, task_of
from tests.tiny_models import VOCAB, ids, make
from utils.events import Round


@pytest.fixture(scope="module")
def target() -> lean.LeanModel:
    return lean.from_transformers(make("llama"))


@pytest.mark.parametrize("kind", KINDS)
def test_what_drafts_is_what_was_trained(kind: str, target: lean.LeanModel, tmp_path: Path) -> None:
    """The module's passes over a whole text and the drafter, step by step, give the same logits."""
    task, tokens = task_of(kind, target), ids(9, seed=3)
    states = prefill(ModelRunner(target), tokens, feature_layers(target.num_layers))
    batch = TrainingBatch.of([TrainingRow(torch.tensor(tokens), 0, True, states)], states, torch.device("cpu"))
    known, steps = 5, 3
    with torch.no_grad():
        drafts = list(task.drafts(batch))
        expected = [task.logits(one.rows)[0, known + 1 - drafts[0].ahead] for one in drafts]
    folder = saved(task, tmp_path)
    pair = pair_of(target, {kind: folder})
    if kind == "model":
        pair = Pair(
            pair.target, ModelRunner(small_model(load_head(folder), target)), None, frozenset(), pair.target_info
        )  # type: ignore[arg-type]
    drafter = DRAFTERS[kind].build(pair, {**Settings(), "draft_weights": "full"})
    seq = sequence(tokens[: known + 1], pair.target)
    seq.hidden = prefill(pair.target, seq.tokens[:-1], drafter.needs_hidden)
    drafter.begin(seq)
    with torch.inference_mode():
        logits = [run_single(drafter.root(seq))]
        for step in range(1, steps):
            logits.append(run_single(drafter.feed(seq, torch.tensor(tokens[known + step : known + step + 1]))))
    for mine, theirs in zip(logits, expected, strict=True):
        torch.testing.assert_close(mine[0, DRAFT_IDS], theirs, rtol=1e-4, atol=1e-4)
        assert set(mine[0].topk(3).indices.tolist()) <= set(DRAFT_IDS.tolist()), "only the draft vocabulary is drafted"


@pytest.mark.parametrize("graphs", [False, True])
def test_one_pass_says_what_place_by_place_says(graphs: bool, target: lean.LeanModel, tmp_path: Path) -> None:
    """Also where the text went on without the heads, so that the next place is not their first."""
    pair = pair_of(target, {"medusa": saved(task_of("medusa", target), tmp_path)})
    pair = replace(pair, target=ModelRunner.with_graphs(target)) if graphs else pair
    drafter = DRAFTERS["medusa"].build(pair, {**Settings(), "draft_weights": "full", "draft_tree": "best_first"})
    seq = sequence(ids(9), pair.target)
    seq.hidden = prefill(pair.target, seq.tokens[:-1], drafter.needs_hidden)
    drafter.begin(seq)
    for skipped in range(2):
        with torch.inference_mode():
            depth = drafter.room(seq)
            ahead = run_single(drafter.ahead(seq, depth)).clone()
            places = [run_single(drafter.root(seq)).clone()]
            places += [run_single(drafter.feed(seq, torch.tensor([5]))).clone() for _ in range(1, depth)]
        assert depth == drafter.config.steps - skipped
        torch.testing.assert_close(ahead, torch.cat(places))
        seq.tokens.append(7)


@pytest.mark.parametrize("kind", ["eagle", "mtp"])
def test_the_prompt_is_read_before_the_first_round(kind: str, target: lean.LeanModel, tmp_path: Path) -> None:
    """In chunks, and timed as prefill: what is left for the first round is one row."""
    pair = pair_of(target, {kind: saved(task_of(kind, target), tmp_path)})
    fed: list[int] = []

    class Counting(RecurrentForward):
        def rows(self, tokens: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
            fed.append(len(tokens))
            return super().rows(tokens, *rest)

    forward = RecurrentForward.of(pair.head(kind), target)
    drafter = RecurrentDrafter(RecurrentRunner(Counting(**vars(forward))))
    seq = sequence(ids(9), pair.target)
    seq.hidden = prefill(pair.target, seq.tokens[:-1], drafter.needs_hidden)
    drafter.begin(seq)
    assert fed == [7]
    first = run_single(drafter.root(seq))
    assert fed == [7, 1]
    again = RecurrentDrafter(RecurrentRunner(forward), cached=False)
    again.begin(seq)
    torch.testing.assert_close(run_single(again.root(seq)), first)


@pytest.mark.parametrize("kind", ["eagle", "mtp", "parallel_eagle"])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_prompt_may_be_as_short_as_it_can(kind: str, length: int, target: lean.LeanModel, tmp_path: Path) -> None:
    engine = PairEngine(pair_of(target, {kind: saved(task_of(kind, target), tmp_path)}))
    settings = Settings()
    settings.assign("length", "6")
    said = [
        [
            token
            for event in engine.stream(name, settings, ids(length))
            if isinstance(event, Round)
            for token in event.emitted
        ]
        for name in ("target", kind)
    ]
    assert said[0] == said[1] and len(said[0]) == 6


# Every head as a chain and as a tree, greedy and drawn; every two of them.
IN_COMMON = [
    (method, tree, ("greedy", "multinomial 1.0")[(place + turn) % 2])
    for place, method in enumerate([*HEADS, "extended"])
    for turn, tree in enumerate(("chain", "dynamic"))
]


@pytest.mark.parametrize(("method", "tree", "processor"), IN_COMMON)
def test_heads_draft_from_the_vocabulary_that_the_pair_has_in_common(
    method: str, tree: str, processor: str, target: lean.LeanModel, tmp_path: Path
) -> None:
    """A drafter model with fewer padded rows cuts the target's; a head is as wide as the target's own matrix."""
    kind = "eagle" if method == "extended" else method
    folder = saved(task_of(kind, target, torch.arange(VOCAB)), tmp_path)
    small = ModelRunner(target, VOCAB - 7)
    pair = replace(pair_of(target, {kind: folder}), target=small, drafter=ModelRunner(target, VOCAB - 7))
    settings = Settings()
    settings.assign_all([("length", "12"), ("draft_tree", tree), ("processor", processor), ("hybrid_model", "eagle")])
    rounds = [event for event in PairEngine(pair).stream(method, settings, ids(6)) if isinstance(event, Round)]
    assert any(round.drafts for round in rounds)
    assert all(token < VOCAB - 7 for round in rounds for token in round.drafts)


def test_a_head_for_other_weights_is_refused(target: lean.LeanModel, tmp_path: Path) -> None:
    other = lean.from_transformers(make("llama", seed=7))
    pair = pair_of(other, {"medusa": saved(task_of("medusa", target), tmp_path)})
    with refused(tmp_path, "tiny", "target"):
        pair.head("medusa")
    with refused(no_head("eagle", "tiny", "", encoder=False)):
        pair.head("eagle")


def test_a_head_without_its_draft_vocabulary_is_refused(target: lean.LeanModel, tmp_path: Path) -> None:
    file = saved(task_of("mtp", target), tmp_path) / "model.safetensors"
    weights = load_file(file)
    del weights["draft_ids"]
    save_file(weights, file)
    with refused(file, "draft_ids"):
        load_head(tmp_path)


def test_a_tree_has_the_likeliest_paths() -> None:
    """Chances 0.6, 0.3, 0.1 everywhere: the five best nodes are 0.6, 0.36, 0.3, 0.18 and 0.18."""
    logits = torch.log(torch.tensor([[0.6, 0.3, 0.1]]))
    fed: list[tuple[list[int], list[int]]] = []

    def feed(tokens: torch.Tensor, parents: torch.Tensor | None) -> StepGenerator[torch.Tensor]:
        yield from ()
        assert parents is not None
        fed.append((tokens.tolist(), parents.tolist()))
        return logits.expand(len(parents), -1)

    grown = run_single(grow_tree(TreeShape(2, 5), 2, logits, feed, FixedGamma(2)))
    assert (grown.tokens.tolist(), grown.parents) == ([0, 0, 1, 1, 0], (-1, 0, -1, 0, 2)), "most likely first"
    assert fed == [([0, 1], [-1, -1])]
    grown = run_single(grow_tree(TreeShape(2, 3, ranks=((0.9, 0.1), (0.5, 0.4))), 2, logits, feed, FixedGamma(2)))
    assert (grown.tokens.tolist(), grown.parents) == ([0, 0, 1], (-1, 0, 0))


@pytest.mark.parametrize("method", [*HEADS])
@pytest.mark.parametrize(("name", "value"), [("draft_tree", "dynamic"), ("draft_tree", "static"), ("gamma", "1")])
def test_parameters_of_heads_change_something(
    method: str, name: str, value: str, target: lean.LeanModel, tmp_path: Path
) -> None:
    kind = method
    engine = PairEngine(pair_of(target, {method: saved(task_of(kind, target), tmp_path)}))
    assert METHODS[method].needs(Settings()) == method

    def drafts(**values: str) -> list[object]:
        made = Settings()
        made.assign_all([("length", "20"), *values.items()])
        return [(event.drafts, event.parents) for event in list(engine.stream(method, made, ids(6)))[1:-1]]  # type: ignore[union-attr]

    assert drafts() != drafts(**{name: value})
    if name == "draft_tree":
        wide = {name: value, "tree_width": "2"}
        assert drafts(**{name: value}) != drafts(**wide)
        assert drafts(**wide) != drafts(**wide, tree_tokens="3")


def test_best_paths_are_another_tree(target: lean.LeanModel, tmp_path: Path) -> None:
    engine = PairEngine(pair_of(target, {"medusa": saved(task_of("medusa", target), tmp_path)}))

    def drafts(**values: str) -> list[object]:
        made = Settings()
        made.assign_all([("length", "20"), ("draft_tree", "best_first"), *values.items()])
        rounds = [event for event in engine.stream("medusa", made, ids(6)) if isinstance(event, Round)]
        return [(round.drafts, round.parents) for round in rounds]

    assert drafts() != drafts(tree_tokens="3") and drafts() != drafts(gamma="1")
    assert drafts() != drafts(draft_tree="dynamic", tree_width="2") and drafts() == drafts(tree_width="2")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("tree", ["chain", "dynamic"])
def test_a_head_drafts_and_learns_on_a_gpu(kind: str, tree: str, tmp_path: Path) -> None:
    target = lean.from_transformers(make("llama").to("cuda"))
    rows, device = rows_of(target, 4), torch.device("cuda")
    task = task_of(kind, target, DRAFT_IDS.to(device))
    engine = PairEngine(pair_of(target, {kind: saved(task, tmp_path)}))
    values = {**Settings(), "length": 20, "draft_tree": tree}
    texts = [
        [t for e in list(engine.stream(name, values, ids(6)))[1:-1] for t in e.emitted] for name in ("target", kind)
    ]  # type: ignore[union-attr]
    assert texts[0] == texts[1]
    trainer = Trainer(task, rows, rows[:2], Schedule(2, 64, 1e-2, warmup=2, every=10_000), device)
    assert trainer.run(tmp_path / "run", lambda *_: None, float).tokens_per_round >= 1

"""A P-EAGLE head: one forward a round, mask rows that nobody keeps, and the mask of the training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ablation.gpu_check.heads import save_random_heads
from egag.draft_distribution import DraftDistribution
from egag.length_rule import FixedGamma, LengthRule
from sampling.distill.batches import TrainingBatch
from sampling.distill.parallel_eagle import ParallelEagleTask
from sampling.distill.shards import TrainingRow
from sampling.distill.start import start
from sampling.distill.tasks import Task, feature_layers
from sampling.drafter import proposal_of
from sampling.drafters.draft_tree import TreeShape
from sampling.drafters.heads.parallel_eagle import ParallelEagleDrafter
from sampling.forward.models import lean
from sampling.forward.requests import run_single
from sampling.forward.runner import ModelRunner, prefill
from sampling.heads.inference import MASK, RecurrentForward
from sampling.heads.recurrent_runner import RecurrentRunner, RecurrentSlot
from sampling.methods.settings import Settings
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from sampling.sequence import Sequence
from sampling.verify.rejection import RejectionVerifier
from tests.conformance import suite
from tests.conformance.matrix import build_drafter
from tests.conformance.suite import Case
from tests.conformance.toy import VOCAB, WINDOW, toy_pair
from tests.sequences import sequence
from tests.tiny_heads import DRAFT_IDS, pair_of, rows_of, saved, task_of, with_config
from tests.tiny_models import ids, make
from utils.events import Round
from utils.logits_processor import MultinomialProcessor

KIND, STEPS = "parallel_eagle", 3


@pytest.fixture(scope="module")
def target() -> lean.LeanModel:
    return lean.from_transformers(make("llama"))


class Counting(RecurrentForward):
    """Notes what each forward was fed."""

    fed: list[list[int]]

    def rows(self, tokens: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        self.fed.append(tokens.tolist())
        return super().rows(tokens, *rest)


def made(target: lean.LeanModel, folder: Path, shape: TreeShape | None = None) -> tuple[ParallelEagleDrafter, Counting]:
    pair = pair_of(target, {KIND: saved(task_of(KIND, target), folder)})
    forward = Counting(**vars(RecurrentForward.of(pair.head(KIND), target)))
    object.__setattr__(forward, "fed", [])
    return ParallelEagleDrafter(RecurrentRunner(forward), shape), forward


def begun(drafter: ParallelEagleDrafter, target: lean.LeanModel, count: int = 9, processor: Any = None) -> Sequence:
    seq = sequence(ids(count), ModelRunner(target), processor)
    seq.hidden = prefill(seq.runner, seq.tokens[:-1], drafter.needs_hidden)  # type: ignore[arg-type]
    drafter.begin(seq)
    return seq


@pytest.mark.parametrize("shape", [None, TreeShape(2, 5)], ids=["chain", "tree"])
def test_a_round_is_one_forward_and_keeps_rows_of_the_text_only(
    shape: TreeShape | None, target: lean.LeanModel, tmp_path: Path
) -> None:
    drafter, forward = made(target, tmp_path, shape)
    seq = begun(drafter, target)
    assert [len(rows) for rows in forward.fed] == [7]
    proposal = proposal_of(drafter.propose(seq, FixedGamma(3), 10))
    assert forward.fed[1:] == [[seq.tokens[-1], MASK, MASK]]
    assert seq.drafter_state[drafter].rows.length == 8
    assert len(proposal) == (3 if shape is None else 5)


def test_it_fills_no_more_places_than_the_rule_and_the_text_have(target: lean.LeanModel, tmp_path: Path) -> None:
    for gamma, limit, places in ((1, 9, 1), (2, 9, 2), (9, 9, STEPS), (3, 2, 2)):
        drafter, forward = made(target, tmp_path / f"{gamma} {limit}")
        assert len(proposal_of(drafter.propose(begun(drafter, target), FixedGamma(gamma), limit))) == places
        assert forward.fed[1:] == [[*forward.fed[1][:1], *[MASK] * (places - 1)]]


def test_a_rule_may_raise_its_gamma_when_it_has_seen_the_first_draft(target: lean.LeanModel, tmp_path: Path) -> None:
    class Later(FixedGamma):
        def before(self, drafted: int, distribution: DraftDistribution | None) -> bool:
            self.gamma = 3
            return super().before(drafted, distribution)

    def drafts(name: str, rule: LengthRule) -> list[int]:
        drafter, forward = made(target, tmp_path / name)
        found = proposal_of(drafter.propose(begun(drafter, target), rule, 10)).tokens.tolist()
        assert len(forward.fed) == (3 if isinstance(rule, Later) else 2)
        return found

    assert drafts("later", Later(1)) == drafts("at once", FixedGamma(3))


def test_marginals_are_what_is_drafted_from(target: lean.LeanModel, tmp_path: Path) -> None:
    """`[places, V]`; the best of each is the chain under greedy, and under sampling each is drawn from its own q."""
    drafter, _ = made(target, tmp_path / "one")
    with torch.inference_mode():
        logits = run_single(drafter.ahead(begun(drafter, target), STEPS))
    assert logits.shape == (STEPS, target.vocab_size)
    again, _ = made(target, tmp_path / "two")
    assert (
        proposal_of(again.propose(begun(again, target), FixedGamma(3), 10)).tokens.tolist() == logits.argmax(1).tolist()
    )
    drawn, processor = made(target, tmp_path / "three")[0], MultinomialProcessor(0.7)
    proposal = proposal_of(drawn.propose(begun(drawn, target, processor=processor), FixedGamma(3), 10))
    assert proposal.draft_probs is not None
    torch.testing.assert_close(proposal.draft_probs, processor(logits), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layers", [1, 2])
def test_every_row_is_trained_as_it_drafts(layers: int, target: lean.LeanModel, tmp_path: Path) -> None:
    """Behind each token of a text, with one block and with two: a mask row that saw another row's would differ."""
    plain, tokens = task_of(KIND, target), ids(8, seed=3)
    task = ParallelEagleTask(replace(plain.config, layers=layers), plain.trunk)
    for weight in task.module.parameters():
        torch.nn.init.normal_(weight, std=0.3)
        weight.data = weight.data.to(torch.bfloat16).float()
    states = prefill(ModelRunner(target), tokens, feature_layers(target.num_layers))
    batch = TrainingBatch.of([TrainingRow(torch.tensor(tokens), 0, True, states)], states, torch.device("cpu"))
    with torch.no_grad():
        expected = torch.stack([(one.rows @ task.trunk.output.T)[0] for one in task.drafts(batch)])
    pair = pair_of(target, {KIND: saved(task, tmp_path)})
    drafter = ParallelEagleDrafter.build(pair, {**Settings(), "draft_weights": "full"})
    for known in range(1, 7):
        seq = sequence(tokens[: known + 1], ModelRunner(target))
        seq.hidden = prefill(seq.runner, seq.tokens[:-1], drafter.needs_hidden)  # type: ignore[arg-type]
        drafter.begin(seq)
        with torch.inference_mode():
            logits = run_single(drafter.ahead(seq, STEPS))
        torch.testing.assert_close(logits[:, DRAFT_IDS], expected[:, known - 1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tree", ["chain", "dynamic"])
def test_graphs_int8_and_a_shared_head_draft_alike(tree: str, target: lean.LeanModel, tmp_path: Path) -> None:
    """Fixed shapes draft what free ones do; rounded weights keep the target's output."""
    pair = pair_of(target, {KIND: saved(task_of(KIND, target), tmp_path)})
    fixed = replace(pair, target=ModelRunner.with_graphs(target))

    def run(pair: Any, **more: str) -> tuple[list[tuple[int, ...]], list[int]]:
        values = Settings()
        values.assign_all([("length", "24"), ("draft_tree", tree), ("gamma", "3"), *more.items()])
        rounds = [event for event in PairEngine(pair).stream(KIND, values, ids(6)) if isinstance(event, Round)]
        return [tuple(one.drafts) for one in rounds], [token for one in rounds for token in one.emitted]

    plain = run(pair, draft_weights="full")
    assert run(fixed, draft_weights="full") == plain
    assert run(pair, draft_weights="int8")[1] == plain[1]


def varied_pair(folder: Path) -> Pair:
    """The toy pair with a head whose drafts differ from round to round."""
    torch.manual_seed(3)
    sizes = {"intermediate_size": 8, "heads": 2, "kv_heads": 1, "head_dim": 4, "steps": 3, "hidden_size": VOCAB}
    ids = torch.tensor((0, 1, 2, 4, 5))
    heads = save_random_heads(folder, {**sizes, "vocab_size": VOCAB, "window": WINDOW}, 1, ids, [KIND])
    return replace(toy_pair(), heads=heads)


@pytest.mark.parametrize("name", [KIND, f"{KIND} dynamic tree"])
def test_rows_that_are_kept_are_those_of_the_text(name: str, tmp_path: Path) -> None:
    suite.check_redraft(case(name), varied_pair(tmp_path))


def test_the_suite_sees_mask_rows_that_are_kept(tmp_path: Path) -> None:
    """Output stays right, drafts are others than those of a drafter that starts anew."""

    class Keeping(RecurrentSlot):
        def crop(self, length: int) -> None:
            self._base = length

    class KeepingRunner(RecurrentRunner):
        def another(self) -> RecurrentSlot:
            return Keeping(self)

    def broken(pair: Any) -> ParallelEagleDrafter:
        return ParallelEagleDrafter(KeepingRunner(RecurrentForward.of(pair.head(KIND), pair.target.model)))

    pair, bad = varied_pair(tmp_path), replace(case(KIND), drafter=broken)
    suite.check_greedy(bad, pair, length=10)
    with pytest.raises(AssertionError, match="drafted"):
        suite.check_redraft(bad, pair, length=10, honest=case(KIND))


def case(name: str) -> Case:
    return Case(lambda pair: build_drafter(name, pair), lambda: FixedGamma(3), RejectionVerifier)


def test_it_begins_with_a_guess_of_the_next_state(target: lean.LeanModel, tmp_path: Path) -> None:
    """The first place does better than at random; a mask row begins as a row of mean embedding and states."""
    rows = rows_of(target)
    random, task = task_of(KIND, target), task_of(KIND, target)
    start(task, rows, tmp_path / "none", target.num_layers)
    layers = sorted({*task.config.features, task.trunk.last})
    batch = TrainingBatch.of(rows, layers, torch.device("cpu"))
    with torch.no_grad():
        losses = [replace_steps(one, 1).loss(batch).item() for one in (task, random)]
    assert losses[0] < losses[1] - 0.3, losses
    head = task.module
    tokens = torch.cat([row.tokens for row in rows])
    torch.testing.assert_close(head.mask_embedding, target.embedding[tokens].mean(0))
    low = torch.cat([row.states[task.config.features[0]][:-1].float() for row in rows]).mean(0)
    torch.testing.assert_close(head.mask_hidden[: len(low)], low)


def test_its_blocks_begin_as_the_targets_last_ones(target: lean.LeanModel) -> None:
    plain = task_of(KIND, target)
    task = ParallelEagleTask(replace(plain.config, layers=2), plain.trunk)
    assert task.inherited(30) == {"block.": "model.layers.28.", "later.0.": "model.layers.29."}
    assert plain.inherited(30) == {"block.": "model.layers.29."}


def replace_steps(task: Task, steps: int) -> Task:
    return with_config(task, replace(task.config, steps=steps))

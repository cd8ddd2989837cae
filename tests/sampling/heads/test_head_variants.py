"""Variants of heads that a training may choose: losses, weights of drafts, norms, own states, low-rank outputs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sampling.distill.accuracy import accuracy
from sampling.distill.batches import TrainingBatch
from sampling.distill.low_rank import low_rank
from sampling.distill.objective import LOSSES, UNITS, Objective
from sampling.distill.shards import TrainingRow
from sampling.distill.tasks import RecurrentTask, Task, feature_layers
from sampling.distill.training import CHECKPOINT, Schedule, Trainer
from sampling.forward.kernels.probe import make_linear
from sampling.forward.models import lean
from sampling.forward.requests import run_single
from sampling.forward.runner import ModelRunner, prefill
from sampling.heads.config import HeadConfig
from sampling.heads.head_files import load_head
from sampling.heads.inference import output_matrix
from sampling.heads.recurrent import CANDIDATES
from sampling.methods.settings import Settings
from sampling.methods.tables import DRAFTERS, MODELS
from tests.refusals import refused
from tests.sequences import sequence
from tests.tiny_heads import check_goes_on_exactly, pair_of, rows_of, saved, task_of
from tests.tiny_models import VOCAB, ids, make

VARIANTS: dict[str, dict[str, Any]] = {
    "each": {"state_norm": "each"},
    "joined": {"state_norm": "joined"},
    "fed back": {"normed_feedback": True},
    "eagle-3.1": {"state_norm": "each", "normed_feedback": True},
    "low rank": {"output_rank": 5},
    "candidates": {"candidate_rank": 5, "candidates": 7},
    "layers": {"layers": 3},
    "windows": {"layers": 2, "attention_windows": (3, 0)},
    "a window less than a draft": {"attention_windows": (2,), "output_rank": 5},
    "all": {"state_norm": "each", "normed_feedback": True, "output_rank": 7},
    "eagle-4": {"normed_feedback": True, "attention_windows": (3,), "candidate_rank": 6, "candidates": 4},
}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def target() -> lean.LeanModel:
    return lean.from_transformers(make("llama"))


def variant_of(kind: str, target: lean.LeanModel, values: dict[str, Any]) -> Task:
    """A task with random weights of this variant, over all tokens."""
    like = task_of(kind, target, torch.arange(VOCAB))
    torch.manual_seed(1)
    task: Task = MODELS[kind].load_task()(replace(like.config, **values), like.trunk)
    for weight in task.module.parameters():
        torch.nn.init.normal_(weight, std=0.3)
        weight.data = weight.data.to(torch.bfloat16).float()
    return task


@pytest.mark.parametrize("kind", ["eagle", "mtp"])
@pytest.mark.parametrize("name", VARIANTS)
def test_what_drafts_is_what_was_trained(kind: str, name: str, target: lean.LeanModel, tmp_path: Path) -> None:
    task, tokens = variant_of(kind, target, VARIANTS[name]), ids(9, seed=3)
    states = prefill(ModelRunner(target), tokens, feature_layers(target.num_layers))
    batch = TrainingBatch.of([TrainingRow(torch.tensor(tokens), 0, True, states)], states, CPU)
    known = 5
    with torch.no_grad():
        expected = [task.drafted(one.rows)[0, known - 1] for one in task.drafts(batch)]
        usual = task_of(kind, target, torch.arange(VOCAB))
        assert task.module.state_dict().keys() != usual.module.state_dict().keys() or name == "fed back"
    pair = pair_of(target, {kind: saved(task, tmp_path)})
    drafter = DRAFTERS[kind].build(pair, {**Settings(), "draft_weights": "full"})
    seq = sequence(tokens[: known + 1], pair.target)
    seq.hidden = prefill(pair.target, seq.tokens[:-1], drafter.needs_hidden)
    drafter.begin(seq)
    with torch.inference_mode():
        logits = [run_single(drafter.root(seq))]
        logits += [run_single(drafter.feed(seq, torch.tensor(tokens[known + n : known + n + 1]))) for n in (1, 2)]
    for mine, theirs in zip(logits, expected, strict=True):
        torch.testing.assert_close(mine[0], theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_learns_and_goes_on_exactly(name: str, target: lean.LeanModel, tmp_path: Path) -> None:
    schedule = Schedule(4, 64, 1e-2, 2, 2, 0, Objective("lk", 0.6))
    whole = check_goes_on_exactly(
        lambda: variant_of("eagle", target, VARIANTS[name]), rows_of(target, 8), schedule, tmp_path
    )
    assert whole.history.losses[-1] < whole.history.losses[0]


@pytest.mark.parametrize("other", [Objective("acceptance", 0.6), Objective("lk", 0.8)])
def test_a_checkpoint_of_another_objective_is_refused(other: Objective, target: lean.LeanModel, tmp_path: Path) -> None:
    rows, schedule = rows_of(target, 6), Schedule(1, 64, 1e-2, 2, 2, 0, Objective("lk", 0.6))
    for one in (schedule, schedule):
        Trainer(task_of("mtp", target), rows, rows[:2], one, CPU).run(tmp_path, lambda *_: None, float)
    with refused(tmp_path / CHECKPOINT, "objective", "--out"):
        Trainer(task_of("mtp", target), rows, rows[:2], replace(schedule, objective=other), CPU).run(
            tmp_path, lambda *_: None, float
        )


def test_losses_are_what_their_formulas_say() -> None:
    p = torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.5, 0.0]])
    q = torch.tensor([[0.1, 0.2, 0.7], [0.25, 0.25, 0.5]])
    alpha = torch.tensor([0.4, 0.5])
    found = {name: loss(p, q.log()) for name, loss in LOSSES.items()}
    assert found.keys() == UNITS.keys()
    torch.testing.assert_close(found["acceptance"], -alpha.log().mean())
    divergence = (0.7 * torch.tensor(7.0).log() + 0.1 * torch.tensor(1 / 7).log() + torch.tensor(2.0).log()) / 2
    weight = torch.exp(-3 * alpha.mean())
    torch.testing.assert_close(found["lk"], weight * divergence + (1 - weight) * (1 - alpha.mean()))
    same = {name: loss(p, p.clamp(min=1e-30).log()) for name, loss in LOSSES.items()}
    torch.testing.assert_close(same["lk"], torch.tensor(0.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(same["acceptance"], torch.tensor(0.0), atol=1e-6, rtol=0)


def test_the_weight_of_the_mixed_loss_is_not_learned_from() -> None:
    p, logits = torch.tensor([[0.7, 0.2, 0.1]]), torch.tensor([[0.1, 1.0, -0.5]], requires_grad=True)
    LOSSES["lk"](p, logits.log_softmax(-1)).backward()
    q = logits.detach().softmax(-1)
    accepted = torch.minimum(p, q).sum()
    weight = torch.exp(-3 * accepted)
    below = (q < p).float()
    slope = -(q * (below - (q * below).sum()))
    torch.testing.assert_close(logits.grad, weight * (q - p) + (1 - weight) * slope)


def test_every_loss_raises_the_acceptance(target: lean.LeanModel, tmp_path: Path) -> None:
    rows = rows_of(target)
    found = {}
    for loss in LOSSES:
        task = task_of("mtp", target, torch.arange(VOCAB))
        schedule = Schedule(20, 64, 1e-2, 2, 10_000, 0, Objective(loss))
        whole = TrainingBatch.of(rows, sorted({*task.config.features, task.trunk.last}), CPU)
        before = task.loss(whole, 1.0, Objective("acceptance")).item()
        Trainer(task, rows, rows[:4], schedule, CPU).run(tmp_path / loss, lambda *_: None, float)
        found[loss] = task.loss(whole, 1.0, Objective("acceptance")).item()
        assert found[loss] < before - 0.5
    assert len(set(found.values())) == len(LOSSES)


def test_later_drafts_weigh_what_the_decay_says(target: lean.LeanModel) -> None:
    task = task_of("medusa", target)
    batch = TrainingBatch.of(rows_of(target, 4), [task.trunk.last], CPU)
    one = replace(task.config, steps=1)
    first = task.loss(batch, 1.0, Objective("kl", 1e-9))
    task_of_one = task_of("medusa", target)
    task_of_one.config = one
    torch.testing.assert_close(first, task_of_one.loss(batch))
    assert not torch.equal(task.loss(batch, 1.0, Objective("kl", 0.6)), task.loss(batch))


def test_norms_begin_at_the_size_of_what_they_read(target: lean.LeanModel) -> None:
    """So that the first weights of a head with norms read what one without them reads, but for each token's size."""
    rows, width = rows_of(target), target.embedding.shape[1]
    for state_norm, count in (("each", 3), ("joined", 1)):
        task = variant_of("eagle", target, {"state_norm": state_norm})
        assert isinstance(task, RecurrentTask)
        with torch.no_grad():
            task.begin(rows, lambda step: torch.zeros(width, 2 * width))
            read = task.head.read([rows[0].states[layer].float() for layer in task.config.features])
        assert len(task.head.state_norms) == count
        last = rows[0].states[task.trunk.last].float()[:-1]
        cosine = torch.nn.functional.cosine_similarity(read[:-1], last, dim=-1)
        torch.testing.assert_close(cosine, torch.ones_like(cosine))
        assert 0.3 < float(read[:-1].norm() / last.norm()) < 3


def test_a_low_rank_output_begins_nearest_to_the_targets() -> None:
    torch.manual_seed(0)
    output, states = torch.randn(50, 12) + 3, torch.randn(400, 12) * torch.logspace(0, -3, 12)
    exact = (states @ output.T).softmax(-1)
    gaps = []
    for rank in (2, 6, 12):
        down, up = low_rank(output, states, rank)
        assert down.shape == (rank, 12) and up.shape == (50, rank)
        gaps.append(float(((states @ down.T @ up.T).softmax(-1) - exact).abs().sum(-1).mean()))
    assert gaps[0] > gaps[1] > gaps[2] and gaps[2] < 1e-4


def test_a_low_rank_output_is_two_layers_by_any_kernel(target: lean.LeanModel, tmp_path: Path) -> None:
    task = variant_of("mtp", target, VARIANTS["low rank"])
    head = load_head(saved(task, tmp_path))
    output, rows = output_matrix(head, target), torch.randn(3, target.embedding.shape[1])
    expected = rows @ head.weights["output_down.weight"].T @ head.weights["output_up.weight"].T
    torch.testing.assert_close(output(rows), expected, rtol=1e-4, atol=1e-4)
    again = output.with_kernel(lambda weight, bias=None: make_linear(2 * weight, bias))
    torch.testing.assert_close(again(rows), 4 * expected, rtol=1e-4, atol=1e-4)


def test_only_candidates_have_logits_and_those_of_the_whole_output(target: lean.LeanModel, tmp_path: Path) -> None:
    task = variant_of("mtp", target, VARIANTS["candidates"])
    head = load_head(saved(task, tmp_path))
    output, rows = output_matrix(head, target), torch.randn(3, target.embedding.shape[1])
    whole = rows @ target.output_rows(torch.arange(VOCAB)).T
    rough = rows @ head.weights["candidates_down.weight"].T @ head.weights["candidates_up.weight"].T
    found = rough.topk(7).indices
    for computed in (output(rows), output.with_kernel(make_linear)(rows)):
        torch.testing.assert_close(computed.gather(1, found), whole.gather(1, found), rtol=1e-4, atol=1e-4)
        assert ((computed > torch.finfo(torch.float32).min).sum(dim=1) == 7).all()
    assert output(rows[:0]).shape == (0, VOCAB), "rows of a prompt, behind which nothing is drafted"


def test_what_finds_candidates_learns_from_the_head_and_teaches_it_nothing(target: lean.LeanModel) -> None:
    """The head has the gradient that it has without; what finds candidates comes nearer to the head."""
    rows, task = rows_of(target, 4), variant_of("mtp", target, VARIANTS["candidates"])
    alone = variant_of("mtp", target, {})
    assert isinstance(task, RecurrentTask) and isinstance(alone, RecurrentTask)
    alone.head.load_state_dict({name: task.head.state_dict()[name] for name in alone.head.state_dict()})
    batch = TrainingBatch.of(rows, sorted({*task.config.features, task.trunk.last}), CPU)
    losses = [one.loss(batch) for one in (task, alone)]
    for loss in losses:
        loss.backward()
    for name, weight in alone.head.named_parameters():
        assert torch.equal(task.head.get_parameter(name).grad, weight.grad)  # type: ignore[arg-type]
    finds = [task.head.get_parameter(name) for name in CANDIDATES]
    torch.optim.SGD(finds, lr=0.05).step()
    assert task.loss(batch) < losses[0]


def test_held_out_drafts_are_counted_by_the_heads_own_output(target: lean.LeanModel) -> None:
    task = variant_of("mtp", target, VARIANTS["low rank"])
    batch = TrainingBatch.of(rows_of(target, 4), sorted({*task.config.features, task.trunk.last}), CPU)
    found = accuracy(task, [batch], ranks=VOCAB)
    assert isinstance(task, RecurrentTask) and task.head.output_up is not None
    with torch.no_grad():
        task.head.output_up.weight.zero_()
    assert accuracy(task, [batch], ranks=VOCAB).ranks != found.ranks


@pytest.mark.parametrize(
    ("values", "quoted"),
    [
        ({"state_norm": "some"}, ("state_norm", "'some'", "none", "each", "joined")),
        ({"output_rank": -1}, ("output_rank", -1, 0)),
        ({"output_rank": 9}, ("output_rank", 9, 8, "hidden_size")),
        ({"output_rank": 4, "draft_vocab": 7}, ("output_rank", 4, 0, 9)),
        ({"candidate_rank": 9, "candidates": 2}, ("candidate_rank", 9, 8, "hidden_size")),
        ({"candidate_rank": 4, "candidates": 2, "draft_vocab": 7}, ("candidate_rank", 4, 0, 9)),
        ({"candidate_rank": 4, "candidates": 2, "output_rank": 4}, ("candidate_rank", 4, 0, "output_rank")),
        ({"candidate_rank": 4, "candidates": 10}, ("candidates", 10, 1, 9)),
        ({"candidate_rank": 4}, ("candidates", 0, 1, 9)),
        ({"candidates": 2}, ("candidates", 2, 0, "candidate_rank is 0")),
        ({"attention_windows": (4, 0)}, ("attention_windows", (4, 0), "1 layers")),
        ({"attention_windows": (-1,)}, ("attention_windows", (-1,))),
    ],
)
def test_what_no_head_has_is_refused(values: dict[str, Any], quoted: tuple[object, ...]) -> None:
    with refused(*quoted):
        HeadConfig(
            **{"method": "mtp", "base": "", "base_digest": "", "hidden_size": 8, "vocab_size": 9}
            | {"draft_vocab": 9}
            | values
        )

"""A one-pass head on a tiny Llama: its chain's law, its cache, its blocks in training, and its confidence."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from egag.draft_distribution import DraftDistribution, Token
from egag.length_rule import FixedGamma
from sampling.distill.batches import TrainingBatch
from sampling.distill.one_pass import DsparkTask
from sampling.drafters.heads.dspark import DsparkDrafter
from sampling.forward.models import lean
from sampling.forward.requests import run_batched, run_single
from sampling.forward.runner import prefill
from sampling.heads.one_pass_forward import Markov, OnePassForward, OnePassRunner
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from tests.sequences import sequence
from tests.tiny_heads import pair_of, rows_of, saved, task_of
from tests.tiny_models import VOCAB, ids, make
from utils.events import Round
from utils.logits_processor import MultinomialProcessor

STEPS = 3


@pytest.fixture(scope="module")
def target() -> lean.LeanModel:
    return lean.from_transformers(make("llama"))


@pytest.fixture
def drafter(target: lean.LeanModel, tmp_path: Path) -> DsparkDrafter:
    pair = pair_of(target, {"dspark": saved(task_of("dspark", target, torch.arange(VOCAB)), tmp_path)})
    return DsparkDrafter.build(pair, {**Settings(), "draft_weights": "full"})


def begun(drafter: DsparkDrafter, target: lean.LeanModel, length: int = 9) -> Sequence:
    seq = sequence(ids(length, seed=3), pair_of(target, {}).target)
    seq.processor = MultinomialProcessor(1.0)
    seq.hidden = prefill(seq.runner, seq.tokens[:-1], drafter.needs_hidden)
    drafter.begin(seq)
    return seq


@torch.inference_mode()
def proposed(drafter: DsparkDrafter, seq: Sequence) -> Proposal:
    return run_single(drafter.propose(seq, FixedGamma(STEPS), STEPS))


def given_the_marginals(drafter: DsparkDrafter, seq: Sequence, tokens: Tensor) -> Tensor:
    """q_k = softmax(U_k + W1[x_{k-1}] W2), from the block before the Markov head."""
    with torch.inference_mode():
        marginals = run_single(drafter.ahead(seq, STEPS))
        assert drafter._forward.markov is not None
        before = torch.cat([torch.tensor(seq.tokens[-1:]), tokens[:-1]])
        return torch.softmax(marginals + drafter._forward.markov(before), dim=-1)


def test_what_is_handed_over_is_the_law_that_was_drawn_from(drafter: DsparkDrafter, target: lean.LeanModel) -> None:
    """Not the marginal one, and not that behind another draft."""
    seq = begun(drafter, target)
    found = proposed(drafter, seq)
    assert len(found) == STEPS and found.draft_probs is not None
    torch.testing.assert_close(found.draft_probs, given_the_marginals(drafter, seq, found.tokens))
    other = (found.tokens + 1) % VOCAB
    wrong = given_the_marginals(drafter, seq, other)
    torch.testing.assert_close(found.draft_probs[0], wrong[0])
    assert (found.draft_probs[1:] - wrong[1:]).abs().amax(dim=1).min() > 1e-2


def test_drafts_come_as_often_as_their_law_says(drafter: DsparkDrafter, target: lean.LeanModel) -> None:
    """Pairs of first drafts against q_1(a) q_2(b | a), and against a chain that forgets a, which must fail."""
    markov = drafter._forward.markov
    assert markov is not None
    drafter._forward = replace(drafter._forward, markov=replace(markov, before=4 * markov.before))
    seq, rounds, groups = begun(drafter, target), 600, 8
    counts = torch.zeros(groups, groups)
    for number in range(rounds):
        seq.rng.at(number)
        first, second, _ = proposed(drafter, seq).tokens.tolist()
        counts[first % groups, second % groups] += 1
    with torch.inference_mode():
        marginals = run_single(drafter.ahead(seq, STEPS))
        assert drafter._forward.markov is not None
        one = torch.softmax(marginals[0] + drafter._forward.markov(torch.tensor(seq.tokens[-1:]))[0], dim=-1)
        two = torch.softmax(marginals[1] + drafter._forward.markov(torch.arange(VOCAB)), dim=-1)

    def grouped(law: Tensor) -> Tensor:
        member = torch.nn.functional.one_hot(torch.arange(VOCAB) % groups).float()
        return member.T @ law @ member

    law, forgetful = grouped(one.unsqueeze(1) * two), grouped(one.unsqueeze(1) * (one @ two))
    noise = (law * (1 - law) / rounds).sqrt().sum() / 2
    distance, other = ((counts / rounds - each).abs().sum() / 2 for each in (law, forgetful))
    assert distance < noise < other - 0.05


def test_a_chain_that_forgets_the_token_before_is_noticed(
    drafter: DsparkDrafter, target: lean.LeanModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The classic fault: every row draws behind the last token of the text."""
    seq = begun(drafter, target)
    monkeypatch.setattr(
        drafter, "feed", lambda seq, tokens, parents=None: DsparkDrafter.feed(drafter, seq, tokens * 0 + seq.tokens[-1])
    )
    found = proposed(drafter, seq)
    assert found.draft_probs is not None
    assert (found.draft_probs - given_the_marginals(drafter, seq, found.tokens)).abs().max() > 1e-2


def test_the_cache_has_rows_of_the_text_alone(drafter: DsparkDrafter, target: lean.LeanModel) -> None:
    seq = begun(drafter, target)
    rows = seq.drafter_state[drafter].rows
    assert rows.length == len(seq.tokens) - 1
    first = proposed(drafter, seq)
    assert rows.length == len(seq.tokens) - 1
    seq.rng.at(0)
    fresh = begun(drafter, target)
    fresh.rng.at(0)
    torch.testing.assert_close(proposed(drafter, seq).draft_probs, proposed(drafter, fresh).draft_probs)
    assert first.draft_probs is not None and first.draft_probs.shape == (STEPS, VOCAB)


def test_blocks_see_the_text_before_them_and_no_other_block(target: lean.LeanModel) -> None:
    """Any number of blocks in one forward gives what each gives alone; what comes later in the text changes nothing."""
    task, row = task_of("dspark", target), rows_of(target, 1)[0]
    assert isinstance(task, DsparkTask)
    batch = TrainingBatch.of([row], row.states, torch.device("cpu"))
    with torch.no_grad():
        many = task._blocks(batch, torch.tensor([2, 5, 6]))
        for place, anchor in enumerate((2, 5, 6)):
            torch.testing.assert_close(many[:, place], task._blocks(batch, torch.tensor([anchor]))[:, 0])
        states = {layer: torch.cat([part[:, :5], part[:, 5:] + 1], 1) for layer, part in batch.states.items()}
        later = task._blocks(replace(batch, states=states), torch.tensor([2, 5, 6]))
    torch.testing.assert_close(later[:, :2], many[:, :2])
    assert (later[:, 2] - many[:, 2]).abs().max() > 1e-3, "the state before the last block is read"


def test_the_confidence_head_learns_how_much_of_its_law_is_the_targets(target: lean.LeanModel) -> None:
    task, rows = task_of("dspark", target, torch.arange(VOCAB)), rows_of(target, 8)
    assert isinstance(task, DsparkTask) and task.head.confidence is not None
    batch, size = TrainingBatch.of(rows, rows[0].states, torch.device("cpu")), task.config.hidden_size
    with torch.no_grad():
        first, *_ = (one.rows for one in task.passes(batch))
        p = torch.softmax(batch.states[task.trunk.last] @ task.trunk.output.T, dim=-1)
        shared = torch.minimum(p, torch.softmax(first @ task.output.T, dim=-1)).sum(dim=-1)
    known = torch.arange(batch.tokens.shape[1]) + 1 < batch.lengths[:, None]

    @torch.no_grad()
    def error() -> float:
        told = torch.sigmoid(task.head.told(first[..., :size], first[..., size:]))
        return float((told - shared)[known].abs().mean())

    before, optimizer = error(), torch.optim.Adam(task.head.confidence.parameters(), 3e-2)
    for step in range(200):
        optimizer.zero_grad()
        task.loss(batch, step / 200).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    constant = float((shared[known] - shared[known].mean()).abs().mean())
    assert error() < min(0.5 * before, 0.75 * constant), "better than the mean, too"


def test_a_rule_is_told_what_the_confidence_head_says(drafter: DsparkDrafter, target: lean.LeanModel) -> None:
    told: list[float | None] = []

    class Listening(FixedGamma):
        def before(self, drafted: int, distribution: DraftDistribution | None) -> bool:
            told.append(None if distribution is None else distribution.acceptance)
            return super().before(drafted, distribution)

        def after(self, drafted: int, distribution: DraftDistribution | None, token: Token | None) -> bool:
            return super().after(drafted, distribution, token)

    seq = begun(drafter, target)
    with torch.inference_mode():
        found = run_single(drafter.propose(seq, Listening(STEPS), STEPS))
        block, forward = seq.drafter_state[drafter], drafter._forward
        before = torch.cat([torch.tensor(seq.tokens[-1:]), found.tokens[:-1]])
        expected = [forward.acceptance(block.state[row : row + 1], before[row : row + 1]) for row in range(STEPS)]
    assert told == [one.item() for one in expected if one is not None] and len(told) == STEPS
    assert all(0 < one < 1 for one in told if one is not None)


@pytest.mark.parametrize("tree", ["static", "dynamic"])
def test_nodes_of_a_tree_are_behind_their_parents(
    tree: str, drafter: DsparkDrafter, target: lean.LeanModel, tmp_path: Path
) -> None:
    """The chances of a dynamic tree are those of the chain's law along each path."""
    pair = pair_of(target, {"dspark": saved(task_of("dspark", target, torch.arange(VOCAB)), tmp_path)})
    values = {**Settings(), "draft_weights": "full", "draft_tree": tree, "tree_width": 2, "tree_tokens": 6}
    grown = DsparkDrafter.build(pair, values)
    found = proposed(grown, begun(grown, target))
    assert len(found) == 6 and found.parents is not None
    law, nodes = begun(drafter, target), found.tokens.tolist()
    for row, parent in enumerate(found.parents):
        path = [nodes[row]]
        while parent >= 0:
            path.insert(0, nodes[parent])
            parent = found.parents[parent]
        q = given_the_marginals(drafter, law, torch.tensor([*path, 0, 0])[:STEPS])[len(path) - 1]
        assert nodes[row] in q.topk(2).indices.tolist()


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_prompt_may_be_as_short_as_it_can(length: int, target: lean.LeanModel, tmp_path: Path) -> None:
    engine = PairEngine(pair_of(target, {"dspark": saved(task_of("dspark", target), tmp_path)}))
    values = {**Settings(), "length": 6}
    said = [
        [token for e in engine.stream(name, values, ids(length)) if isinstance(e, Round) for token in e.emitted]
        for name in ("target", "dspark")
    ]
    assert said[0] == said[1] and len(said[0]) == 6


def test_a_token_that_is_never_drafted_gains_nothing() -> None:
    ids = torch.tensor([1, 3])
    markov = Markov(torch.tensor([[1.0], [2.0], [3.0], [4.0]]), lambda x: x @ torch.tensor([[1.0, 10.0]]), ids)  # type: ignore[arg-type]
    assert markov(torch.tensor([2, 0])).tolist() == [[0, 3, 0, 30], [0, 1, 0, 10]]


def test_int8_rounds_what_does_not_read_the_states(target: lean.LeanModel, tmp_path: Path) -> None:
    from sampling.forward.kernels.int8 import Int8Linear

    head = pair_of(target, {"dspark": saved(task_of("dspark", target), tmp_path)}).head("dspark")
    full = OnePassForward.of(head, target)
    rough = full.with_kernel(Int8Linear)
    assert rough.feature is full.feature and rough.inject is full.inject
    assert rough.output is not full.output and rough.blocks.layers[0].qkv is not full.blocks.layers[0].qkv


def test_texts_share_the_forward_of_their_blocks(target: lean.LeanModel, tmp_path: Path) -> None:
    """Of different lengths, and what each says is what it says alone."""
    head = pair_of(target, {"dspark": saved(task_of("dspark", target), tmp_path)}).head("dspark")
    shared = OnePassRunner(OnePassForward.of(head, target))
    drafter, lone = DsparkDrafter(shared), DsparkDrafter(OnePassRunner(shared.forward))
    texts = [begun(drafter, target, length) for length in (2, 9, 5)]
    runs: list[int] = []
    run = shared.run
    shared.run = lambda feeds: (runs.append(len(feeds)), run(feeds))[1]  # type: ignore[method-assign,func-returns-value]
    with torch.inference_mode():
        found, _ = run_batched([drafter.root(seq) for seq in texts])
        for seq, logits in zip(texts, found, strict=True):
            torch.testing.assert_close(logits, run_single(lone.root(begun(lone, target, len(seq.tokens)))))
    assert runs == [3]

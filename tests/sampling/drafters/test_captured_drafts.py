"""A round's drafts as one captured function: bit for bit what the steps give one by one."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from egag.length_rule import FixedGamma
from sampling.drafters.captured import DraftingPlan, captured_drafts
from sampling.drafters.draft_tree import TreeShape
from sampling.drafters.growth import DraftGrowth
from sampling.drafters.heads.eagle_mtp import RecurrentDrafter
from sampling.drafters.model import ModelDrafter
from sampling.forward.graphs.further import Feed, FurtherForwards
from sampling.forward.graphs.sequence_graphs import width_for
from sampling.forward.requests import StepGenerator, run_single
from sampling.forward.runner import ModelRunner
from sampling.forward.tree import laid_out
from sampling.heads.recurrent_graphs import FedDrafts
from sampling.proposal import Proposal
from tests.emulated_graphs import emulate
from tests.sampling.forward.test_captured import DRAWN, SAMPLED, TREE, pair_of, rounds
from utils.device.captured import failures
from utils.device.graph_pool import GraphPool, Tensors
from utils.device.graphed import Graphed
from utils.logits_processor import GreedyProcessor, MultinomialProcessor, TopKProcessor
from utils.numbers.random_numbers import CounterRNG

CPU, VOCAB, ROUNDS = torch.device("cpu"), 40, 5
RANKS = ((0.5, 0.2, 0.2, 0.1), (0.4, 0.4, 0.1, 0.0))
SHAPES = {
    "chain": (None, 5),
    "dynamic": (TreeShape(4, 12), 4),
    "dynamic of 60": (TreeShape(8, 60), 6),
    "wider than the vocabulary": (TreeShape(60, 50), 3),
    "static": (TreeShape(4, 10, RANKS), 3),
    "drawn": (TreeShape(4, 10, RANKS, drawn=True), 3),
}
PROCESSORS = {"greedy": GreedyProcessor(), "multinomial": MultinomialProcessor(0.7), "top_k": TopKProcessor(1.0, 2)}


class Drafted:
    """A drafter of random logits: what follows a token is a row of a table. levels: the logits are so many numbers."""

    def __init__(self, levels: int) -> None:
        self.pool, self.graphs = GraphPool(), dict[Hashable, Graphed]()
        chance = torch.Generator().manual_seed(levels)
        self.table = torch.randint(0, levels, (ROUNDS, VOCAB, VOCAB), generator=chance) / levels * 6.0
        self.fed, self.known = list[int](), dict[Hashable, Any]()

    def graph(self, key: Hashable, function: Callable[..., Tensors]) -> Graphed:
        return self.graphs.setdefault(key, Graphed(function, CPU, self.pool))

    def further(self, round: int) -> FurtherForwards:
        return FurtherForwards(
            (), self.graph, self.known, (self.table[round],), feed_of, lambda: self.fed.append(round)
        )


def feed_of(table: Tensor) -> Feed:
    """Rows behind tokens, which depend on the path through the tokens before as well."""
    sums: list[Tensor] = [torch.zeros(1, table.shape[1])]

    def feed(tokens: Tensor, parents: Tensor | None) -> StepGenerator[Tensor]:
        yield from ()
        above = sums[-1][-1:] if parents is None else torch.cat(sums).index_select(0, parents + 1)
        sums.append(above * 0.5 + table.index_select(0, tokens))
        return sums[-1]

    return feed


def plain(plan: DraftingPlan, table: Tensor, rng: CounterRNG) -> Proposal:
    growth = DraftGrowth(FixedGamma(plan.depth), plan.depth, plan.processor, rng, CPU)
    return run_single(growth.proposal(plan.shape, table[:1], feed_of(table)))


def parts(proposal: Proposal) -> list[Tensor]:
    """All numbers of a proposal, and the tree as a forward takes it."""
    found = [proposal.tokens, proposal.draft_probs, proposal.first_entropy, proposal.point_mass_check]
    if proposal.parents is not None:
        width = width_for(len(proposal) + 1)
        found += [proposal.parents_on(CPU), proposal.seen_on(CPU), *laid_out(proposal.parents, width, CPU)]
    return [part.clone() for part in found if part is not None]


@pytest.mark.parametrize("levels", [2, 7, 1 << 20], ids=lambda levels: f"{levels} levels")
@pytest.mark.parametrize(
    ("shape", "processor"),
    [
        *((shape, "multinomial") for shape in SHAPES),
        *((shape, processor) for shape in ("chain", "drawn") for processor in ("greedy", "top_k")),
    ],
)
def test_it_drafts_what_steps_draft(shape: str, processor: str, levels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few levels nearly all logits are ties. Drawn drafts use the same random numbers."""
    emulate(monkeypatch)
    before, drafted = failures(), Drafted(levels)
    plan = DraftingPlan(*SHAPES[shape], VOCAB, PROCESSORS[processor])
    for round in range(ROUNDS):
        rngs = CounterRNG(3, [1, 2]), CounterRNG(3, [1, 2])
        for rng in rngs:
            rng.at(round)
        found = captured_drafts(plan, drafted.table[round][:1], drafted.further(round), rngs[0])
        expected = plain(plan, drafted.table[round], rngs[1])
        assert type(found.parents) is type(expected.parents)
        assert all(map(torch.equal, parts(found), parts(expected)))
        assert len(parts(found)) == len(parts(expected)) >= 3
        assert torch.equal(*(rng.uniform((2,), torch.float64, "draft") for rng in rngs))
    assert failures() == before and drafted.fed == [*range(ROUNDS)]
    assert [graph.shapes for graph in drafted.graphs.values()] == [1]


def told(method: str, values: Mapping[str, str]) -> list[tuple[Any, ...]]:
    """Everything of a text's rounds but their times."""
    times = {"draft_s": 0.0, "verify_s": 0.0, "other_s": 0.0, "capture_s": 0.0}
    return [replace(round, **times) for round in rounds(pair_of(ModelRunner.with_graphs), method, values)]


METHODS = [
    ("speculative", {"gamma": "4"}),
    ("speculative", {"gamma": "4", "processor": SAMPLED}),
    ("mtp", {"gamma": "3"}),
    ("mtp", TREE),
    ("eagle", {"gamma": "4", "processor": SAMPLED}),
    ("eagle", {**TREE, "processor": SAMPLED}),
    ("eagle", {**TREE, "draft_tree": "static"}),
    ("eagle", DRAWN),
]


@pytest.mark.parametrize(
    ("method", "values"), METHODS, ids=lambda one: one if isinstance(one, str) else "-".join(one.values())
)
def test_models_and_heads_draft_as_step_by_step(
    method: str, values: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens, trees and probabilities of all rounds, to the last bit."""
    emulate(monkeypatch)
    at_once = told(method, values)
    for drafter in (RecurrentDrafter, ModelDrafter):
        monkeypatch.setattr(drafter, "further", lambda *about: None)
    assert at_once == told(method, values) and len(at_once) > 5


def test_a_draft_that_does_not_see_its_ancestors_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch)
    right, table = told("eagle", DRAWN), FedDrafts._table

    def alone(self: FedDrafts, parents: Tensor) -> Tensor:
        seen = table(self, parents)
        fed = seen.shape[1] - len(seen)
        return torch.cat([torch.zeros_like(seen[:, :fed]), seen[:, fed:]], 1)

    monkeypatch.setattr(FedDrafts, "_table", alone)
    assert told("eagle", DRAWN) != right

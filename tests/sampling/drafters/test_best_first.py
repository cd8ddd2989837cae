"""The tree of the likeliest paths: the best there is of its size, by trying all, and what it is expected to bring."""

from collections.abc import Sequence
from itertools import combinations, product
from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor

from egag.cost_model import CostModel
from egag.expected_round import expected_tokens
from egag.length_rule import FixedGamma, GrowToGamma, LengthRule
from egag.survival import SurvivalGamma
from egag.tree_growth import TreeGrowth
from sampling.drafters import best_first as file
from sampling.drafters.best_first import DraftNode, best_first, choices, likeliest
from sampling.drafters.draft_tree import TreeShape, grow_tree
from sampling.forward.requests import StepGenerator, run_single
from sampling.forward.tree import depths
from sampling.methods.settings import Settings
from sampling.methods.tables import HEADS, METHODS
from sampling.pair.pair_engine import PairEngine
from tests.conformance.toy import PROMPT, toy_pair
from tests.refusals import refused

Path = tuple[int, ...]


def marginals(depth: int, size: int, seed: int) -> Tensor:
    """Raw logits `[depth, size]` of places that are not alike."""
    return 2.0 * torch.randn(depth, size, generator=torch.Generator().manual_seed(seed))


def paths_of(nodes: Sequence[DraftNode]) -> list[Path]:
    """The tokens from the text down to each node."""
    paths: list[Path] = []
    for node in nodes:
        paths.append((*(paths[node.parent] if node.parent >= 0 else ()), node.token))
    return paths


def grown(logits: Tensor, most: int, rule: LengthRule | None = None) -> list[DraftNode]:
    return list(likeliest(choices(logits, most, rule or FixedGamma(9)), most))


def best_of_all(logits: Tensor, size: int) -> float:
    """What the best tree of so many nodes brings, of all sets of paths that hold the beginnings of their paths."""
    probs = torch.softmax(logits, -1).tolist()
    depth, vocab = len(probs), len(probs[0])
    every = [path for deep in range(1, depth + 1) for path in product(range(vocab), repeat=deep)]
    chance = {path: prod(probs[place][token] for place, token in enumerate(path)) for path in every}
    trees = (set(tree) for tree in combinations(every, size))
    return max(
        1.0 + sum(chance[path] for path in tree)
        for tree in trees
        if all(len(path) == 1 or path[:-1] in tree for path in tree)
    )


@pytest.mark.parametrize(("depth", "vocab", "size"), [(2, 3, 1), (2, 3, 3), (2, 3, 5), (3, 2, 4), (3, 2, 6), (1, 5, 3)])
@pytest.mark.parametrize("seed", range(4))
def test_no_other_tree_of_its_size_brings_more(depth: int, vocab: int, size: int, seed: int) -> None:
    logits = marginals(depth, vocab, seed)
    nodes = grown(logits, size)
    assert len(nodes) == len(set(paths_of(nodes))) == size
    assert all(node.parent < row for row, node in enumerate(nodes)), "parents before children"
    assert expected_tokens([node.chance for node in nodes]) == pytest.approx(best_of_all(logits, size), abs=1e-6)


@pytest.mark.parametrize("bug", ["no siblings", "no children", "layer by layer"])
def test_a_broken_heap_is_found_out(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same comparison sees each planted bug."""
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2], [0.8, 0.1, 0.1]]))
    honest = file.heappush

    def broken(heap: Any, item: tuple[float, int, int, int, int]) -> None:
        survival, order, parent, depth, rank = item
        if (bug, rank > 0) != ("no siblings", True) and (bug, depth > 0) != ("no children", True):
            honest(heap, (depth if bug == "layer by layer" else survival, order, parent, depth, rank))

    assert expected_tokens([node.chance for node in grown(logits, 4)]) == pytest.approx(best_of_all(logits, 4))
    monkeypatch.setattr(file, "heappush", broken)
    assert expected_tokens([node.chance for node in grown(logits, 4)]) < best_of_all(logits, 4) - 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_what_is_expected_is_what_is_accepted_on_average(seed: int) -> None:
    """Over all texts that the marginals can give, each as often as they do, judged node by node."""
    logits = marginals(3, 3, seed)
    probs, nodes = torch.softmax(logits, -1).tolist(), grown(logits, 7)
    tree, mean = set(paths_of(nodes)), 0.0
    for text in product(range(3), repeat=3):
        accepted = max(deep for deep in range(4) if deep == 0 or text[:deep] in tree)
        mean += prod(probs[place][token] for place, token in enumerate(text)) * (accepted + 1)
    assert expected_tokens([node.chance for node in nodes]) == pytest.approx(mean, abs=1e-6)


def test_the_paths_come_in_order() -> None:
    """Chances .6, .4 and then .9, .1: .6, .54, .4, .36, .06, .04."""
    nodes = grown(torch.log(torch.tensor([[0.6, 0.4], [0.9, 0.1]])), 9)
    assert [node.chance for node in nodes] == pytest.approx([0.6, 0.54, 0.4, 0.36, 0.06, 0.04])
    assert paths_of(nodes) == [(0,), (0, 0), (1,), (1, 0), (0, 1), (1, 1)]


def test_what_cannot_stand_there_is_no_node() -> None:
    logits = torch.tensor([[0.0, 1.0, -torch.inf, -torch.inf]]).expand(2, -1)
    assert {node.token for node in grown(logits, 30)} == {0, 1} and len(grown(logits, 30)) == 6


@pytest.mark.parametrize("most", [1, 4, 12, 24])
def test_a_tree_grown_layer_by_layer_is_this_one_where_it_is_as_wide_as_it_is_large(most: int) -> None:
    """EAGLE-2's way comes to the same tree for `tokens` children of `tokens` nodes a layer, and to less for fewer."""
    logits = marginals(4, 40, 7)

    def dynamic(width: int) -> tuple[list[int], tuple[int, ...], list[float]]:
        rows = iter(logits[1:])

        def feed(tokens: Tensor, parents: Tensor | None) -> StepGenerator[Tensor]:
            yield from ()
            return next(rows).expand(len(tokens), -1)

        tree = run_single(grow_tree(TreeShape(width, most), 4, logits[:1], feed, FixedGamma(4)))
        return tree.tokens.tolist(), tuple(tree.parents), tree.chances.tolist()

    nodes = grown(logits, most)
    found = [node.token for node in nodes], tuple(node.parent for node in nodes), [node.chance for node in nodes]
    assert dynamic(most) == found
    assert expected_tokens(dynamic(2)[2]) <= expected_tokens(found[2])
    if most > 4:
        assert expected_tokens(dynamic(2)[2]) < expected_tokens(found[2]) - 1e-3


def test_smaller_trees_are_the_beginning_of_larger_ones() -> None:
    logits = marginals(3, 20, 2)
    whole = grown(logits, 24)
    assert all(grown(logits, most) == whole[:most] for most in (1, 5, 12))


def price(row_s: float) -> CostModel:
    """Rows that cost so much beside a forward of 20."""
    return CostModel(((1, 20.0), (65, 20.0 + 64 * row_s)), first_s=0.5, step_s=0.5)


def survival(row_s: float) -> SurvivalGamma:
    rule = SurvivalGamma(survival_explore=0.0)
    rule.use_cost_model(price(row_s))
    rule.begin()
    return rule


def test_the_price_of_a_row_says_how_many_nodes_there_are() -> None:
    logits = marginals(3, 60, 5)
    counts = [len(best_first(logits, 48, survival(row_s))) for row_s in (0.01, 0.1, 0.4, 1.6, 400.0)]
    assert counts == sorted(counts, reverse=True) and counts[0] > 2 * counts[2] > 0 and counts[-1] == 0
    assert len(best_first(logits, 5, survival(0.01))) == 5, "tree_tokens is the most there can be"
    assert len(best_first(logits, 48, FixedGamma(4))) == 48, "a rule without prices takes all"


def test_the_last_node_pays_and_the_next_one_would_not() -> None:
    rule, logits = survival(0.4), marginals(3, 60, 5)
    kept = len(best_first(logits, 48, rule))
    nodes, ranks = likeliest(choices(logits, 48, rule), 48), choices(logits, 48, rule)
    accepted = {(depth, one.token): one.accepted for depth, place in enumerate(ranks) for one in place}
    chances = [prod(accepted[depth, token] for depth, token in enumerate(path)) for path in paths_of(list(nodes))]
    assert chances == sorted(chances, reverse=True)
    rates = [expected_tokens(chances[:count]) / (20.0 + 0.4 * count + 1.5) for count in range(len(chances))]
    assert rates[kept] == max(rates) and 0 < kept < 47


def test_a_rule_that_learnt_what_depth_is_worth_orders_the_nodes_by_it() -> None:
    """Where the second place is never right the tree is flat."""

    class FlatGrowth(GrowToGamma):
        def acceptance(self, chance: float, depth: int) -> float:
            return 0.0 if depth else chance

    class Flat(FixedGamma):
        @property
        def tree_growth(self) -> TreeGrowth:
            return FlatGrowth(self)

    logits = marginals(3, 60, 5)
    proposal = best_first(logits, 12, Flat(4))
    assert depths(proposal.parent_rows) == [1] * 12
    assert max(depths(best_first(logits, 12, FixedGamma(4)).parent_rows)) > 1


def test_the_rule_is_told_how_many_steps_the_pass_took() -> None:
    told: list[int] = []

    class NoGrowth(GrowToGamma):
        def start_tree(self, distribution: Any, steps: int = 1) -> bool:
            told.append(steps)
            return False

    class Telling(FixedGamma):
        @property
        def tree_growth(self) -> TreeGrowth:
            return NoGrowth(self)

    assert not len(best_first(marginals(3, 9, 0), 4, Telling(4))) and told == [3]


def test_one_softmax_goes_over_the_vocabulary_beside_that_of_the_entropy(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []
    softmax = torch.softmax

    def counted(x: Tensor, dim: int) -> Tensor:
        seen.append(tuple(x.shape))
        return softmax(x, dim)

    monkeypatch.setattr(file.torch, "softmax", counted)
    best_first(marginals(3, 50, 0), 8, FixedGamma(3))
    assert sorted(seen) == [(3, 50), (50,)]


@pytest.mark.parametrize("kind", sorted(set(HEADS) - {"medusa", "parallel_eagle", "dspark"}))
def test_who_drafts_place_by_place_refuses_by_name(kind: str) -> None:
    settings = Settings()
    settings.assign("draft_tree", "best_first")
    with refused("draft_tree best_first", kind, "chain", "static", "drawn", "dynamic"):
        PairEngine(toy_pair()).drafter(kind, settings)


def test_its_width_is_no_setting() -> None:
    values = {**Settings(), "draft_tree": "best_first"}
    names = {parameter.name for parameter in METHODS["medusa"].relevant(values)}
    assert "tree_tokens" in names and "tree_width" not in names
    assert METHODS["medusa"].drafts_trees(values)
    assert PairEngine(toy_pair()).drafter("medusa", values).shape.tokens == 12  # type: ignore[attr-defined]
    assert list(PairEngine(toy_pair()).stream("medusa", {**values, "length": 8}, PROMPT))

"""Trees whose alternatives are drawn without replacement."""

from collections import Counter

import pytest
import torch

from egag.length_rule import FixedGamma
from sampling.drafters.draft_tree import TreeShape, grow_tree
from sampling.drafters.drawing import WithoutReplacement
from sampling.forward.requests import StepGenerator, run_single
from sampling.methods.tables import HEADS
from tests.conformance import suite
from tests.conformance.matrix import case
from tests.conformance.toy import toy_pair
from utils.events import Round
from utils.logits_processor import GreedyProcessor, LogitsProcessor, MultinomialProcessor, TopKNucleusProcessor
from utils.numbers.random_numbers import CounterRNG

KINDS = ("drawn", "static")


def test_alternatives_are_drawn_one_after_the_other() -> None:
    """Each from what those before it left, so that none comes twice, and each pair as often as that says."""
    logits = torch.tensor([[1.0, 0.5, 0.0, -1.0]])
    q = logits.softmax(-1)[0]
    counts: Counter[tuple[int, int]] = Counter()
    for seed in range(4000):
        tokens, chances, probs = WithoutReplacement(MultinomialProcessor(1.0), CounterRNG(seed))(logits, 3)
        first, second, third = tokens[0].tolist()
        assert probs is not None and len({first, second, third}) == 3
        assert torch.allclose(probs[0, 0], q)
        assert float(probs[0, 1, first]) == float(probs[0, 2, second]) == 0.0
        assert float(chances[0, 1]) == pytest.approx(float(q[second] / (1 - q[first])), rel=1e-5)
        counts[first, second] += 1
    assert len(counts) == 12
    for (a, b), seen in counts.items():
        mass = float(q[a] * q[b] / (1 - q[a]))
        assert abs(seen / 4000 - mass) < 5 * (mass * (1 - mass) / 4000) ** 0.5


@pytest.mark.parametrize("processor", [GreedyProcessor(), TopKNucleusProcessor(1.0, 1, 1.0)])
def test_where_nothing_is_left_to_draw_the_likeliest_stand(processor: LogitsProcessor) -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0, 2.0]])
    tokens, chances, probs = WithoutReplacement(processor, CounterRNG(0))(logits, 3)
    assert tokens.tolist() == [[1, 3, 2]] and chances.tolist() == [[1.0] * 3]
    assert probs is not None and torch.equal(probs[0], torch.nn.functional.one_hot(tokens[0], 4).float())


def test_the_shape_is_that_of_the_ranks_whatever_was_drawn() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0]])

    def feed(tokens: torch.Tensor, parents: torch.Tensor | None) -> StepGenerator[torch.Tensor]:
        yield from ()
        return logits.expand(len(tokens), -1)

    shape, parents = TreeShape(3, 5, ((0.5, 0.3, 0.1), (0.4, 0.2)), drawn=True), set[tuple[int, ...]]()
    for seed in range(20):
        pick = WithoutReplacement(MultinomialProcessor(1.0), CounterRNG(seed))
        tree = run_single(grow_tree(shape, 2, logits, feed, FixedGamma(2), pick))
        parents.add(tuple(tree.parents))
        assert tree.probs is not None and tree.probs.shape == (5, 3)
        assert bool((tree.probs.gather(1, tree.tokens.unsqueeze(1)) > 0.0).all())
    assert parents == {(-1, -1, 0, 1, -1)}, "0.5, 0.3, 0.5 * 0.4, 0.3 * 0.4, 0.1"


@pytest.mark.parametrize("kind", HEADS)
def test_under_greedy_it_is_the_static_tree(kind: str) -> None:
    """The best token is the first alternative, and the likeliest of the others follow as point masses."""
    drawn, static = (
        [(event.drafts, event.parents, event.path) for event in events if isinstance(event, Round)]
        for events in (suite.run(case(f"{kind} {tree} tree"), toy_pair(), GreedyProcessor(), 12) for tree in KINDS)
    )
    assert drawn == static


def test_a_shape_that_follows_what_was_drawn_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: of three drawn alternatives the two likeliest are kept, which favours likely tokens."""
    honest = WithoutReplacement.__call__

    def chosen(self: WithoutReplacement, logits: torch.Tensor, width: int):  # type: ignore[no-untyped-def]
        picked = honest(self, logits, width)
        order = picked.tokens.argsort(-1)
        rows = picked.probs.gather(1, order.unsqueeze(-1).expand_as(picked.probs))  # type: ignore[union-attr]
        return type(picked)(picked.tokens.gather(1, order), picked.chances.gather(1, order), rows)

    one, processor = case("eagle drawn tree"), MultinomialProcessor(1.0)
    suite.check_law(one, toy_pair(), processor)
    monkeypatch.setattr(WithoutReplacement, "__call__", chosen)
    with pytest.raises(AssertionError):
        suite.check_law(one, toy_pair(), processor)

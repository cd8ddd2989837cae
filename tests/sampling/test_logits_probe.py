"""What the models said before the processor, beside what they said after it."""

import pytest
import torch

from sampling.logits_probe import LogitsProbe, ObservedRound
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from tests.tiny import tiny_pair
from utils.events import Round

PROMPT = (3, 1, 4, 1, 5)


def rounds(engine: PairEngine, method: str, **values: str) -> list[Round]:
    settings = Settings()
    settings.assign_all([("length", "12"), *values.items()])
    return [event for event in engine.stream(method, settings, PROMPT) if isinstance(event, Round)]


@pytest.mark.parametrize("processor", ["greedy", "multinomial 1", "topk 0.7 5"])
@pytest.mark.parametrize("method", ["speculative", "egag", "ngram", "target"])
def test_raw_probabilities_are_softmax_at_temperature_one(method: str, processor: str) -> None:
    plain = rounds(PairEngine(tiny_pair()), method, processor=processor)
    engine = PairEngine(tiny_pair())
    raw = engine.raw = LogitsProbe()
    settings = Settings()
    settings.assign_all([("length", "12"), ("processor", processor)])
    tokens, seen = list(PROMPT), 0
    for event in engine.stream(method, settings, PROMPT):
        if not isinstance(event, Round):
            continue
        before = raw.of(event)
        assert before is not None and (event.drafts, event.emitted) == (plain[seen].drafts, plain[seen].emitted)
        said = [*tokens, *event.drafts]
        logits = engine.pair.target.another().forward(torch.tensor(said)).logits[len(tokens) - 1 :]
        expected = torch.softmax(logits.float(), -1)
        for row, token in enumerate(event.drafts):
            assert before.p[row] == pytest.approx(expected[row, token].item(), abs=1e-4)
        if event.next_token is not None:
            assert before.next_p == pytest.approx(expected[event.accepted, event.next_token].item(), abs=1e-4)
        drawn = method in ("speculative", "egag")
        assert all((q is not None) is drawn for q in before.q) and len(before.q) == len(event.drafts)
        if processor == "multinomial 1" and drawn:
            assert before.q == pytest.approx(event.q, abs=1e-5) and before.p == pytest.approx(event.p, abs=1e-5)
        tokens += event.emitted
        seen += 1
    assert seen == len(plain)


@pytest.mark.parametrize("parents", [None, (-1, -1, 1)], ids=["chain", "tree"])
def test_each_figure_is_of_its_own_row(parents: tuple[int, ...] | None) -> None:
    """Row 0 is the root's and row i + 1 draft i's; of a tree no distribution of the drafter is told."""
    probe = LogitsProbe()
    target, drafter = torch.randn(4, 7), [torch.randn(7), None, torch.randn(7)]
    probe.seen = ObservedRound(target, drafter)
    path, drafts = ((0, 1), (3, 5, 6)) if parents is None else ((1, 2), (3, 5, 6))
    found = probe.of(Round(0, 9, 3, drafts, parents, (0.5,) * 3, (0.5,) * 3, path, 2, None, 7))
    assert found is not None
    p, q = target.softmax(-1), [None if row is None else row.softmax(-1) for row in drafter]
    rows = (0, 1, 2) if parents is None else (0, 0, 2)
    assert found.p == pytest.approx([p[row, token].item() for row, token in zip(rows, drafts, strict=True)])
    last = path[-1] + 1
    assert found.next_p == pytest.approx(p[last, 2].item())
    if parents is None:
        assert q[0] is not None and q[2] is not None
        assert found.q == pytest.approx((q[0][3].item(), None, q[2][6].item()))
    else:
        assert found.q == (None, None, None)
    assert probe.seen == ObservedRound(), "what was told is not told again"


def test_without_drafts_the_next_token_is_the_roots() -> None:
    probe, target = LogitsProbe(), torch.randn(1, 7)
    probe.seen = ObservedRound(target)
    found = probe.of(Round(0, 9, 0, (), None, (), (), (), 4, None, 7))
    assert found is not None and found.next_p == pytest.approx(target.softmax(-1)[0, 4].item())
    probe.seen = ObservedRound(torch.randn(3, 7))
    assert probe.of(Round(0, 9, 0, (), None, (), (), (), 4, None, 7)) is None, "of another round"

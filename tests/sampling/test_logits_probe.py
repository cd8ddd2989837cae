"""What the models said before the processor, beside what they said after it."""

import pytest
import torch

from sampling.logits_probe import LogitsProbe
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

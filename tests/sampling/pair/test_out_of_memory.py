"""Memory that runs out in the middle of an answer: one sentence that helps, and the engine goes on."""

from typing import Any

import pytest
import torch

from sampling.forward.runner import ModelRunner
from sampling.methods.settings import Settings
from sampling.pair.pair_engine import PairEngine
from tests.refusals import refused
from tests.tiny import tiny_pair
from utils.events import Round

ASKED = {**Settings(), "length": 12}


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB."), MemoryError()]
)
@pytest.mark.parametrize("method", ["target", "speculative"])
def test_an_answer_that_does_not_fit_says_so(method: str, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = PairEngine(tiny_pair())
    forward, calls = ModelRunner.forward, 0

    def short(self: ModelRunner, *given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise error
        return forward(self, *given, **named)

    monkeypatch.setattr(ModelRunner, "forward", short)
    with refused("cpu", "--dtype bfloat16", "--target-weights int8", "--device") as told:
        list(engine.stream(method, ASKED, [5, 9, 2]))
    assert ("20 MiB" in str(told.value)) == ("20 MiB" in str(error))
    after, fresh = (
        [event.emitted for event in made.stream(method, ASKED, [5, 9, 2]) if isinstance(event, Round)]
        for made in (engine, PairEngine(tiny_pair()))
    )
    assert after == fresh

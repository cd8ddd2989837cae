"""The method `auto` on a pretended target whose rejections cost a known time, by a clock that its forwards move."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

from egag.rollback_price import FREE, RollbackPrice
from sampling.forward.caches.cache import RollbackCache
from sampling.forward.runner import ModelRunner
from sampling.methods.settings import Settings
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from sampling.pair.profile import DraftTimes, LatencyProfile
from tests.conformance.toy import PROMPT, ToyModel, toy_model, toy_pair
from utils.device import timing
from utils.events import Round

CALL, ROW, BACK, TOKEN = 20.0, 0.1, 30.0, 1.0
PRICE = RollbackPrice(BACK, TOKEN)
PROFILE = LatencyProfile({64: ((1, CALL), (11, CALL + 10 * ROW))}, ((64, 50.0),), 0.0, {"suffix": DraftTimes(0.0, 0.0)})


class PretendedCache(RollbackCache):
    """Counts what a crop of rejected rows leaves to be read again."""

    begun = owed = 0

    def crop(self, length: int) -> None:
        self.owed += length - self.begun if length < self.length else 0
        super().crop(length)


@dataclass
class PretendedTarget(ToyModel):
    """The toy model; a forward takes `CALL` and `ROW` for each further row, and pays for the rejection before it."""

    seconds: list[float] = field(default_factory=lambda: [0.0])

    def new_cache(self) -> RollbackCache:
        return PretendedCache(1, self.device, self.dtype)

    def forward(
        self, tokens: Tensor, positions: Tensor, mask: Any, cache: Any, hidden: Sequence[int], rows: int
    ) -> tuple[Tensor, dict[int, Tensor]]:
        self.seconds[0] += CALL + ROW * (len(tokens) - 1)
        if cache.owed:
            self.seconds[0] += BACK + TOKEN * cache.owed
            cache.rollback_s, cache.reread = cache.rollback_s + BACK, cache.reread + cache.owed
        cache.begun, cache.owed = cache.length, 0
        return super().forward(tokens, positions, mask, cache, hidden, rows)


def pretended(window: int = 640) -> tuple[Pair, list[float]]:
    """A pair without a drafter, and its clock. Its text of six tokens is a chaotic one: copies are seldom right."""
    told = toy_model(0, window)
    model = PretendedTarget(told.weights, told.sharpness, window)
    bare = replace(toy_pair(window=window), drafter=None, heads={}, target=ModelRunner(model))
    return bare, model.seconds


def token_s(monkeypatch: pytest.MonkeyPatch, method: str, price: RollbackPrice, values: dict[str, Any]) -> float:
    """Seconds of a token under a profile with this price."""
    pair, seconds = pretended()
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: seconds[0]))
    engine = PairEngine(replace(pair, profile=replace(PROFILE, rollback=price)))
    settings = {**Settings(), "length": 600, **values}
    rounds = [event for event in engine.stream(method, settings, PROMPT) if isinstance(event, Round)]
    spent = sum(round.draft_s + round.verify_s + round.other_s for round in rounds)
    return spent / sum(len(round.emitted) for round in rounds)


def test_auto_loses_nothing_to_rejections_that_it_knows_the_price_of(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = token_s(monkeypatch, "target", FREE, {})
    assert plain == pytest.approx(CALL)
    for live in (True, False):
        priced, unpriced = (token_s(monkeypatch, "auto", price, {"survival_live": live}) for price in (PRICE, FREE))
        assert priced < 1.02 * plain
        assert unpriced > 1.1 * plain, "the price left out"


def test_what_rejections_make_worthless_is_not_built() -> None:
    """Right in 3 of 10: a draft brings 1.3 tokens in 21.1 s, and what it takes back takes .7 x 31 s."""
    drafters = {"mtp": DraftTimes(1.0, 1.0, (0.3,)), "model": DraftTimes(0.5, 0.5, (0.95,))}
    free = replace(PROFILE, drafters={"mtp": drafters["mtp"]})
    assert free.worth_trying(["mtp"]) == ["mtp"]
    assert replace(free, rollback=PRICE).worth_trying(["mtp"]) == []
    sure = replace(PROFILE, drafters=drafters, rollback=PRICE)
    assert sure.worth_trying(["mtp", "model"]) == ["model"]

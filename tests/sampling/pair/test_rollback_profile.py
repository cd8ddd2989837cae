"""The price of taking tokens back in a profile: exact on a pretended runner, above 0 on states, none on rows."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from egag.rollback_price import FREE, RollbackPrice
from sampling.forward.caches.states.rollback import Reread
from sampling.forward.models.recurrent import RecurrentModel
from sampling.forward.runner import ModelRunner
from sampling.loading.adapt import adapted
from sampling.measure.times.profiling import finished, measuring
from sampling.measure.times.rollback_times import RollbackTimes
from sampling.pair import profile_store
from sampling.pair.pair import Pair
from sampling.pair.profile import LatencyProfile
from sampling.pair.profile_store import keep, store_path, with_stored
from tests.refusals import refused
from tests.tiny import mamba, random_model, tiny_pair
from utils.device import timing

SAVE, RESTORE, CALL, ROW = 1.0, 3.0, 10.0, 0.5


class Pretended:
    """A runner whose forwards take known seconds: saving before several tokens, restoring after a rejection."""

    def __init__(self, window: int = 400) -> None:
        self.window, self.length, self.saved, self.read = window, 0, 0, 0
        self.now, self.cache = 0.0, SimpleNamespace(rollback_s=0.0, reread=0)

    def crop(self, length: int) -> None:
        self.length = length

    def keep(self, base: int, path: Sequence[int]) -> None:
        self.crop(base + 1 + len(path))

    def forward(self, tokens: Sequence[int]) -> None:
        back = self.length < self.read
        if back:
            self.saved = self.read = self.saved if self.saved <= self.length else 0
            self.now += RESTORE
            self.cache.rollback_s += RESTORE
        again = self.length - self.read
        if again > 16:
            self.now, again, self.read = self.now + CALL + ROW * again, 0, self.length
        if not again and (back or len(tokens) > 1):
            self.saved, self.now = self.read, self.now + SAVE
            self.cache.rollback_s += SAVE
        self.cache.reread += again
        self.now += CALL + ROW * (again + len(tokens))
        self.length = self.read = self.length + len(tokens)

    def timed(self, call: Any) -> float:
        before = self.now
        call()
        return self.now - before


@pytest.mark.parametrize("turns", [1, 3])
def test_the_price_of_a_rejection_is_what_the_next_round_takes_longer(turns: int) -> None:
    """Restoring for 3 in place of saving for 1, and half a second a token."""
    runner = Pretended()
    times = RollbackTimes(runner, [5] * 150, 128, runner.timed)  # type: ignore[arg-type]
    assert not times.needed
    runner.forward([5] * 128)
    runner.forward([5] * 5)
    runner.crop(128)
    runner.forward([5])
    assert times.needed and times.price() == FREE
    for _ in range(turns):
        assert [*times.turn()] == [False] * 4
    assert times.price() == RollbackPrice(RESTORE - SAVE, ROW) and times.restoring_s == RESTORE


def test_two_rounds_need_room() -> None:
    runner = Pretended(window=137)
    runner.cache.reread = 1
    assert not RollbackTimes(runner, [5] * 150, 128, runner.timed).needed  # type: ignore[arg-type]


def states_pair() -> Pair:
    model = cast(RecurrentModel, adapted("mamba", random_model(mamba())))
    return replace(tiny_pair(window=256), target=ModelRunner(model.going(Reread())), drafter=None, drafter_info=None)


def profile_of(pair: Pair, steps: int = 1500) -> LatencyProfile:
    return finished(measuring(pair, steps, clock=count().__next__))


@pytest.mark.filterwarnings("ignore")
def test_a_recurrent_target_has_a_price_and_plain_decoding_does_not_pay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that its forwards move, each by its rows; a plain one is one row, whatever was taken back before."""
    pair, now = states_pair(), 0.0

    def tick(module: Any, arguments: Any, named: Any) -> None:
        nonlocal now
        now += 10.0 + named["input_ids"].shape[1] / 2

    pair.target.model.hf.register_forward_pre_hook(tick, with_kwargs=True)  # type: ignore[attr-defined]
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now))
    profile = profile_of(pair, 3000)
    assert profile.rollback.token_s == pytest.approx(0.5) and profile.rollback.back_s == pytest.approx(0.0)
    for times in profile.forward.values():
        # what restoring takes is real time, and is taken off
        assert times == tuple((rows, pytest.approx(10 + rows / 2, abs=0.01)) for rows, _ in times)


@pytest.mark.filterwarnings("ignore")
def test_a_recurrent_targets_price_is_above_zero_by_the_real_clock() -> None:
    profile = profile_of(states_pair(), 3000)
    assert profile.rollback and LatencyProfile.from_dict(json.loads(json.dumps(profile.as_dict()))) == profile
    price, plain = profile.cost_model("suffix"), profile.cost_model("none")
    assert price is not None and plain is not None and price.rollback == plain.rollback == profile.rollback


def test_rows_are_taken_back_for_nothing() -> None:
    assert profile_of(tiny_pair(window=256)).rollback is FREE


def test_a_profile_of_before_has_no_price_and_a_kept_one_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest holds profiles of its time; the store's are measured again, for nobody knows what a rejection took."""
    profile = LatencyProfile({64: ((1, 2.0),)}, ((64, 3.0),), 0.1, rollback=RollbackPrice(0.2, 0.1))
    content = profile.as_dict()
    assert LatencyProfile.from_dict(content) == profile
    del content["rollback"]
    assert LatencyProfile.from_dict(content) == replace(profile, rollback=FREE)
    for wrong in (3, {"back_s": 1.0}, {"back_s": -1.0, "token_s": 0.0}, {"back_s": "1", "token_s": 0.0}):
        with refused("rollback"):
            LatencyProfile.from_dict({**content, "rollback": wrong})
    monkeypatch.setattr(profile_store, "cache_folder", lambda: tmp_path)
    pair = tiny_pair()
    assert keep(pair, profile) and with_stored(pair).profile == profile
    kept = json.loads(store_path().read_text())
    for pairs in kept["machines"].values():
        for entry in pairs.values():
            del entry["profile"]["rollback"]
    store_path().write_text(json.dumps({**kept, "format": 3}))
    assert with_stored(pair).profile is None
    assert keep(pair, profile) and with_stored(pair).profile == profile

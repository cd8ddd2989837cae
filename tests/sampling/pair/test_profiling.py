"""Measuring a profile: on tiny models of each kind, within a budget, and on the embedded pair."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from egag.length_rule import FixedGamma
from sampling.forward.models.lean import LeanModel
from sampling.forward.tree import depths
from sampling.loading.pairs import LoadOptions, load_pair
from sampling.measure.times import profiling
from sampling.measure.times.forward_times import _BRANCHES, _FORKED, ForwardTimes, never_dearer, undisturbed
from sampling.measure.times.profiling import _in_turn, ensure_profile, measure, measuring
from sampling.measure.times.shares import tokens_per_round
from sampling.methods.settings import Settings
from sampling.methods.tables import COPIERS, HEADS
from sampling.pair import profile_store
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from sampling.pair.profile import ROWS, LatencyProfile
from sampling.pair.profile_store import store_path, with_stored
from tests.ablation.mock_engine import make_round
from tests.heads import random_heads
from tests.tiny import TOKENS, tiny_pair
from tests.tiny_seq2seq import WINDOW, seq2seq_pair
from utils.device import machine, timing


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache folder, and a machine that is free."""
    monkeypatch.setattr(profile_store, "cache_folder", lambda: tmp_path / "cache")  # models come from the user's own
    monkeypatch.setattr(machine, "_busy_s", lambda: 0.0)
    monkeypatch.setattr(machine, "_SHORTEST_S", 0.0)


def with_heads() -> Pair:
    return replace(tiny_pair(window=256), heads=random_heads(32, 3, 256, tuple(range(TOKENS)), TOKENS))


def profile_of(pair: Pair, steps: int) -> tuple[LatencyProfile, list[float]]:
    """The profile by a budget of so many steps, each of which is a second by this clock."""
    told = []
    work = measuring(pair, steps, clock=count().__next__)
    while True:
        try:
            told.append(next(work))
        except StopIteration as end:
            return end.value, told


def test_every_drafter_of_a_pair_is_timed() -> None:
    profile, told = profile_of(with_heads(), 1500)
    assert list(profile.forward) == [128, 224]  # a window of 256 less the most rows
    assert all([rows for rows, _ in times] == list(ROWS) for times in profile.forward.values())
    assert [tokens for tokens, _ in profile.prefill] == [128, 224]
    assert set(profile.drafters) == {"model", *HEADS, *COPIERS, "recycling", "logitspec"}
    assert all(times.first_s > 0 for times in profile.drafters.values()) and profile.rest_s > 0
    assert profile.drafters["model"].found > 0.9 > profile.drafters["prompt_lookup"].found
    assert all(0 <= share <= 1 for times in profile.drafters.values() for share in times.acceptance)
    assert profile.drafters["model"].acceptance  # it agrees often, and not always
    assert told == sorted(told) and told[-1] == 1.0
    assert LatencyProfile.from_dict(json.loads(json.dumps(profile.as_dict()))) == profile


def test_what_forwards_and_drafts_take_is_what_the_profile_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only forwards move, each by its rows, its context and its shape; a few take longer, as the first.

    The drafter takes 2 and a tenth a row; behind a round it reads one token, and in a long one it drafts three more.
    """
    pair, now, calls = tiny_pair(window=256), 0.0, count()
    target, plain = pair.target.model, LeanModel.forward

    def forward(self: LeanModel, tokens: Any, positions: Any, *more: Any) -> Any:
        nonlocal now
        rows, context = len(tokens), int(positions[0])
        took = 10 + rows / 2 + context / 100 if self is target else 2 + rows / 10
        disturbed = next(calls) % 11 == 0 and rows <= max(ROWS)
        branched = int(positions[-1]) - context != rows - 1
        now += took * (1.25 if branched else 1.0) * (3.0 if disturbed else 1.0)
        return plain(self, tokens, positions, *more)

    monkeypatch.setattr(LeanModel, "forward", forward)
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now))
    profile, _ = profile_of(pair, 2500)
    for context, times in profile.forward.items():
        assert times == tuple((rows, pytest.approx(10 + rows / 2 + context / 100)) for rows in ROWS)
    assert profile.prefill == tuple((tokens, pytest.approx(10 + (tokens - 1) / 2)) for tokens in (128, 224))
    assert profile.tree == pytest.approx(1.25) and profile.rest_s == 0.0
    model, copies = profile.drafters["model"], profile.drafters["suffix"]
    assert (model.first_s, model.step_s) == (pytest.approx(2.1), pytest.approx(2.1))
    assert model.found == pytest.approx(1 - 6 / 119)  # the last round of each of the six texts has no room for a draft
    assert (copies.first_s, copies.step_s) == (0.0, 0.0)


def test_forwards_are_timed_once_then_four_in_a_row_and_the_first_of_those_does_not_count() -> None:
    """Behind two contexts: a step a forward, a chunk of a prompt, and pairs of chain and tree from the second turn."""
    forwards = ForwardTimes(tiny_pair(window=256), profiling.TEXTS)
    steps = [*forwards.steps()]
    assert len(steps) == 2 * ((1 + 3 * 4) * len(ROWS) + 2 + 3 * 3) and not any(steps)
    assert {len(times) for (_, rows), times in forwards._times.items() if rows} == {1 + 3 * 3}
    assert len(forwards._forks) == 2 * 3 * 3


def test_drafters_prefill_and_draft_once_each_and_then_more_rounds_in_a_row() -> None:
    told = list[str]()

    class Works:
        def __init__(self, name: str, rounds: int) -> None:
            self.name, self.rounds = name, rounds

        def steps(self) -> Iterator[None]:
            for _ in range(self.rounds):
                told.append(self.name)
                yield

    steps = [*_in_turn({name: Works(name, rounds) for name, rounds in (("a", 11), ("b", 3))})]  # type: ignore[misc]
    assert "".join(told) == "aabb" + 4 * "a" + "b" + 5 * "a"
    assert steps[-1] and not any(steps[:-1])


def test_the_tree_that_is_timed_is_two_branches_of_four() -> None:
    assert list(depths(_BRANCHES)) == [1, 2, 3, 4] * 2 and len(_BRANCHES) + 1 == _FORKED


def test_what_others_add_to_a_forward_does_not_count() -> None:
    assert undisturbed([90.0, 21.0, 20.0, 64.0, 27.0]) == 20.0
    assert undisturbed([90.0, *range(20, 29)]) == 22.0
    assert undisturbed([9.0, 1.0, 5.0]) == 1.0, "all but the first one"
    assert undisturbed([90.0]) == 90.0, "the first one, where there is no other"
    assert never_dearer([(1, 20.0), (2, 27.0), (3, 21.0)]) == ((1, 20.0), (2, 21.0), (3, 21.0))
    assert never_dearer([(1, 22.0), (2, 22.0), (4, 21.0), (9, 30.0)]) == ((1, 21.0), (2, 21.0), (4, 21.0), (9, 30.0))
    assert never_dearer([]) == ()


def test_trees_of_heads_are_timed_beside_their_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all heads that may be the best; here each counts as one, as random weights are worth nothing."""
    monkeypatch.setattr(LatencyProfile, "worth_trying", lambda self, names: names)
    profile, _ = profile_of(with_heads(), 5000)
    timed = {name: times.tree for name, times in profile.drafters.items() if times.tree is not None}
    assert timed and set(timed) <= set(HEADS)
    assert all(tree.first_s > 0 and tree.gain > 0 for tree in timed.values())


@pytest.mark.parametrize(
    ("nodes", "levels", "tokens"),
    [(1, 1, 1.5), (2, 1, 2.0), (2, 2, 2.0), (4, 2, 2.5), (4, 3, 3.0), (4, 4, 1.0)],
)
def test_tokens_of_a_round_are_read_off_the_text(nodes: int, levels: int, tokens: float) -> None:
    """The text 5 7 9. Drafts before it: 5 or 6, then 7 8 behind 5; before 7 9: 3 or 7, and 4 behind 3."""
    trees = [((5, 6, 7, 8), (-1, -1, 0, 2)), ((3, 7, 4), (-1, -1, 0)), ((), None)]
    made = [
        replace(make_round(number, drafts, 0, token, 1.0), parents=parents)
        for number, ((drafts, parents), token) in enumerate(zip(trees, (5, 7, 9), strict=True))
    ]
    assert tokens_per_round(made, nodes, levels) == tokens


def test_a_drafter_that_is_the_target_is_always_right() -> None:
    pair = tiny_pair()
    profile, _ = profile_of(replace(pair, drafter=pair.target.another()), 800)
    assert set(profile.drafters["model"].acceptance) == {1.0} and len(profile.drafters["model"].acceptance) == 4


def test_what_is_not_there_is_not_timed() -> None:
    profile, _ = profile_of(replace(tiny_pair(), drafter=None, drafter_info=None), 600)
    assert set(profile.drafters) == {*COPIERS, "recycling", "logitspec"}
    assert profile.cost_model("model") is None and profile.cost_model("suffix") is not None


def test_a_target_that_runs_chains_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeanModel, "trees", False)
    profile, _ = profile_of(tiny_pair(), 600)
    assert "recycling" not in profile.drafters and "model" in profile.drafters


def test_an_encoder_decoder_pair() -> None:
    profile, _ = profile_of(seq2seq_pair("bart", TOKENS), 600)
    assert list(profile.forward) == [WINDOW - 32] and dict(profile.forward[WINDOW - 32]).keys() == set(ROWS)
    assert "model" in profile.drafters and profile.cost_model("model") is not None


def test_a_window_of_eight_tokens() -> None:
    profile, _ = profile_of(replace(tiny_pair(window=8), drafter=None, drafter_info=None), 200)
    assert {context: [rows for rows, _ in times] for context, times in profile.forward.items()} == {1: [*range(1, 8)]}


@pytest.mark.parametrize("steps", [0, 3, 10, 20, 60])
def test_a_short_budget_measures_less_and_never_nothing(steps: int) -> None:
    profile, told = profile_of(tiny_pair(), steps)
    assert len(told) <= steps + 5
    assert steps > 10 or (profile.tree, profile.rest_s) == (1.0, 0.0)
    first = profile.forward[min(profile.forward)]
    known = {10: [1, 2, 5], 20: [1, 2, 3, 5, 9, 17, 32]}
    assert steps not in known or [rows for rows, _ in first] == known[steps], "what the others are guessed from"
    assert dict(first)[1] > 0 and [rows for rows, _ in first] == sorted(dict(first))
    assert LatencyProfile.from_dict(profile.as_dict()) == profile
    price = profile.cost_model("none")
    assert price is not None and price.seconds(3) > 0


def test_the_time_between_steps_is_not_counted() -> None:
    now = 0.0

    def clock() -> float:
        return now

    work = measuring(tiny_pair(), 10.0, clock)
    for _ in range(200):
        assert next(work) == 0.0
        now += 1000.0


def test_the_pairs_own_caches_are_left_alone() -> None:
    pair = with_heads()
    pair.target.read([5, 6, 7])
    pair.target.forward([5, 6, 7])
    profile_of(pair, 100)
    assert pair.target.length == 3


def test_what_was_measured_is_kept_where_the_machine_was_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []
    profile = measure(tiny_pair(), told.append, budget_s=0.5)
    assert told[-1] == 1.0 and with_stored(tiny_pair()).profile == profile
    store_path().unlink()
    busy = count(step=10.0)
    monkeypatch.setattr(machine, "_busy_s", lambda: next(busy))
    assert measure(tiny_pair(), budget_s=0.2).forward
    assert not store_path().exists()


def test_ctrl_c_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "BUDGET_S", 0.5)

    def interrupted(share: float) -> None:
        if share > 0.3:
            raise KeyboardInterrupt

    engine = PairEngine(tiny_pair())
    with pytest.raises(KeyboardInterrupt):
        ensure_profile(engine, interrupted)
    assert engine.profile() is None and not store_path().exists()


def test_an_engine_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "BUDGET_S", 0.2)
    engine = PairEngine(tiny_pair())
    ensure_profile(engine)
    found = engine.profile()
    assert found is not None
    ensure_profile(engine)
    assert engine.profile() is found


def test_a_rule_hears_the_price_of_what_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = []
    monkeypatch.setattr(FixedGamma, "use_cost_model", lambda rule, price: heard.append(price))
    profile, _ = profile_of(tiny_pair(), 200)
    engine = PairEngine(replace(tiny_pair(), profile=profile))
    next(engine.stream("staged", {**Settings(), "staged_drafter": "prompt_lookup"}, [5, 6, 7]))
    assert heard == [profile.cost_model("model")]


def test_the_embedded_pair_end_to_end() -> None:
    """Bounds wide enough for a busy machine, on which a further draft may seem to cost nothing: which costs more."""
    pair = load_pair(LoadOptions(device="cpu", dtype="float32"))
    profile = measure(pair, budget_s=20.0)
    assert set(profile.drafters) == {"model", *pair.heads, *COPIERS, "recycling", "logitspec"}
    times = dict(profile.forward[128])
    assert times[max(times)] > times[1] > 0
    price = profile.cost_model("mtp", 128)
    assert price is not None and price.draft_s(4) > 0 and price.c < 1
    assert profile.drafters["suffix"].first_s < times[1] / 2
    assert with_stored(replace(pair, profile=None)).profile == profile

"""Acceptance along texts: by hand, against single forwards, against rounds that were run, and against faults."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from sampling.measure.acceptance import estimate
from sampling.measure.acceptance.controls import Shifted, controls
from sampling.measure.acceptance.estimate import DepthSums
from sampling.measure.acceptance.met import Met
from sampling.measure.acceptance.reading import GivenText
from sampling.measure.acceptance.rounds import RoundSums
from sampling.measure.acceptance.target_rows import TargetRows
from sampling.measure.acceptance.trees import RankTree, on_tree
from sampling.measure.acceptance.walk import walk_along
from sampling.measure.acceptance.walkers import FedWalker, Walker, target_itself, walker
from sampling.measure.rounded import greedy_run
from sampling.methods.settings import Settings
from sampling.pair.pair import Pair
from sampling.pair.pair_engine import PairEngine
from sampling.pair.processing import processor_of
from sampling.processors.with_text import changes_of, rows_of
from tests.conformance.toy import PROMPT as TOY
from tests.conformance.toy import toy_pair
from tests.refusals import refused
from tests.tiny import tiny_pair
from utils.errors import UserError
from utils.events import Round

PROMPT = (3, 1, 4, 1, 5, 9, 2, 6, 3, 1, 4, 1)
HEADS = ("medusa", "hydra", "eagle", "mtp")
NAN = float("nan")


def settings(**values: str) -> Settings:
    chosen = Settings()
    chosen.assign_all([("length", "24"), ("draft_weights", "full"), *values.items()])
    return chosen


def answered(engine: PairEngine, prompt: Sequence[int], length: int = 24) -> GivenText:
    return GivenText("a", tuple(prompt), tuple(greedy_run(engine, prompt, length).output_ids))


def met_by(pair: Pair, text: GivenText, method: str, values: Settings, one_by_one: bool = False, depth: int = 4) -> Met:
    engine = PairEngine(pair)
    walking = {method: walker(engine, method, values, depth, one_by_one)}
    return walk_along(pair, text, walking, processor_of(pair, values["processor"]), depth)[method]


def hand(accept: Sequence[Sequence[float]], follow: Sequence[Sequence[float]]) -> Met:
    known = np.array(accept, dtype=float)
    return Met(~np.isnan(known) & (known >= 0), np.maximum(known, 0.0), np.array(follow, dtype=float))


def test_survival_counts_what_a_text_tells_and_no_more() -> None:
    """Five places, two drafts: of three first drafts that pass, one ends the text and one leaves it."""
    met = hand(
        [[1, 1], [1, NAN], [0, NAN], [0, NAN], [1, NAN]],
        [[1, 1], [NAN, NAN], [0, NAN], [0, NAN], [1, NAN]],
    )
    sums = DepthSums.of([met])
    assert sums.risk.tolist() == [[5.0, 1.0]] and sums.hits.tolist() == [[3.0, 1.0]]
    assert sums.survival.tolist() == pytest.approx([0.6, 0.6])
    assert [one.value for one in estimate.tokens_a_round(sums)] == pytest.approx([1.6, 2.2])
    assert [one.value for one in estimate.conditional(sums)] == [0.6, 1.0]


def test_a_place_without_a_draft_is_no_case_of_acceptance_and_a_round_without_tokens() -> None:
    met = hand([[1, -1], [-1, NAN], [0, NAN], [1, NAN]], [[1, 0], [0, NAN], [0, NAN], [1, NAN]])
    sums = DepthSums.of([met])
    assert [one.value for one in estimate.drafted(sums)] == [0.75, 0.0]
    assert estimate.conditional(sums)[0].value == pytest.approx(2 / 3)
    assert sums.survival.tolist() == [0.5, 0.0]


def test_survivors_stand_at_easy_places() -> None:
    """Easy places follow each other: a second draft is accepted more than a first, and no more than a first there."""
    right = [1, 1, 1, 1, 0, 0, 0, 0]
    accept = [[right[at], right[at + 1] if at < 7 else NAN] for at in range(8)]
    sums = DepthSums.of([hand(accept, accept)])
    assert estimate.conditional(sums)[0].value == 0.5
    assert estimate.conditional(sums)[1].value == estimate.first_there(sums)[1].value == 0.75
    assert estimate.anywhere(sums)[1].value == pytest.approx(3 / 7)


def test_rounds_begin_where_the_last_one_failed() -> None:
    """h = drafts that pass: 2 0 1 0 2 1 0. Of gamma 2: rounds at 0, 3, 4; of gamma 1: at 0, 2, 4, 6."""
    hits = [2, 0, 1, 0, 2, 1, 0]
    accept = [[float(h > d) if at + d < 7 else NAN for d in range(2)] for at, h in enumerate(hits)]
    met = hand(accept, accept)
    two, one = RoundSums.of([met], 2), RoundSums.of([met], 1)
    assert (two.rounds[0, 0], two.accepted.tolist()) == (3.0, [[2.0, 2.0]])
    assert (one.rounds[0, 0], one.accepted.tolist()) == (4.0, [[3.0]])
    assert (two.joint()[0].value, one.joint()[0].value) == (pytest.approx(2 / 3), 0.75)
    assert DepthSums.of([met]).survival[0] == pytest.approx(4 / 7)


def test_intervals_are_over_texts_and_hold_the_truth() -> None:
    """200 studies of 12 texts that differ: S(2) and tokens a round are in their intervals about as often as told."""
    rng = np.random.default_rng(3)
    held = np.zeros(2)
    for _ in range(200):
        mets = []
        for ease in rng.beta(4, 4, size=12):
            right = rng.random(60) < ease
            accept = np.stack([right, np.append(right[1:], False)], axis=1).astype(float)
            accept[-1, 1] = NAN
            mets.append(Met(np.ones((60, 2), dtype=bool), accept, accept.copy()))
        sums = DepthSums.of(mets)
        square = 4 * 5 / (8 * 9)  # E[ease^2]
        for place, (found, truth) in enumerate(
            [(estimate.unconditional(sums)[1], square), (estimate.tokens_a_round(sums)[1], 1.5 + square)]
        ):
            held[place] += found.low <= truth <= found.high
    assert (held / 200 > 0.9).all(), held


@pytest.mark.parametrize("processor", ["greedy", "nucleus 0.9 0.9"])
def test_of_a_model_drafter_every_chance_is_that_of_single_forwards(processor: str) -> None:
    pair, values = tiny_pair(), settings(processor=processor)
    assert pair.drafter is not None
    text = answered(PairEngine(pair), PROMPT)
    met, under = met_by(pair, text, "speculative", values), processor_of(pair, values["processor"])
    for place in range(met.places):
        p, q = (under(_row(runner, text.ids[: len(PROMPT) + place])) for runner in (pair.target, pair.drafter))
        token = text.answer[place]
        assert met.accept[place, 0] == pytest.approx(float(torch.minimum(p, q).sum()), abs=1e-5)
        follow = min(1.0, float(q[0, token] / p[0, token])) if p[0, token] > 0 else NAN
        assert met.follow[place, 0] == pytest.approx(follow, abs=1e-4, nan_ok=True)
        assert np.isnan(met.accept[place, 2]) == (place + 2 >= met.places)
        if place >= 2:
            assert met.accept[place - 2, 2] == met.accept[place, 0]


def _row(runner: object, ids: Sequence[int]) -> Tensor:
    fresh = runner.another()  # type: ignore[attr-defined]
    fresh.read(ids)
    return torch.as_tensor(fresh.forward(list(ids), rows=1).logits)


@pytest.mark.parametrize(
    ("method", "processor"),
    [
        *product(["speculative", "mtp"], ["greedy", "multinomial 1", "nucleus 0.9 0.9 repetition=1.3"]),
        *((method, "nucleus 0.9 0.9 repetition=1.3") for method in HEADS if method != "mtp"),
    ],
)
def test_many_places_at_once_are_one_by_one(method: str, processor: str) -> None:
    pair, values = toy_pair(), settings(processor=processor)
    text = answered(PairEngine(pair), TOY, 30)
    fast, slow = (met_by(pair, text, method, values, one_by_one, 3) for one_by_one in (False, True))
    assert fast.drafted.tolist() == slow.drafted.tolist()
    for name in ("accept", "follow", "cover"):
        np.testing.assert_allclose(getattr(fast, name), getattr(slow, name), atol=1e-4)


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, values = toy_pair(), settings(processor="multinomial 1")
    text = answered(PairEngine(pair), TOY, 30)
    whole = {method: met_by(pair, text, method, values) for method in ("mtp", "speculative", "medusa")}
    for module in ("reading", "target_rows"):
        monkeypatch.setattr(f"sampling.measure.acceptance.{module}.BLOCK", 7)
    for method, met in whole.items():
        np.testing.assert_allclose(met_by(pair, text, method, values).accept, met.accept, atol=1e-4)


@pytest.mark.parametrize("gamma", [1, 3])
@pytest.mark.parametrize("method", ["speculative", "mtp", "eagle", "hydra"])
def test_rounds_along_the_targets_answer_are_those_of_the_run(method: str, gamma: int) -> None:
    pair, values = toy_pair(), settings(gamma=str(gamma), length="30")
    text = answered(PairEngine(pair), TOY, 30)
    made = [event for event in PairEngine(pair).stream(method, values, TOY) if isinstance(event, Round)]
    sums = RoundSums.of([met_by(pair, text, method, values, depth=gamma)], gamma)
    accepted = [float(sum(round.accepted > place for round in made)) for place in range(gamma)]
    assert (sums.rounds[0, 0], sums.accepted[0].tolist()) == (len(made), accepted)


@pytest.mark.parametrize("method", ["prompt_lookup", "ngram", "suffix", "recycling", "extended"])
def test_copies_and_hybrids_follow_their_own_drafts(method: str) -> None:
    pair, values = tiny_pair(), settings()
    text = GivenText("copy", PROMPT, PROMPT[2:] + PROMPT)
    met = met_by(pair, text, method, values)
    assert met.cover is None and met.drafted.any()
    reached = met.reached()
    assert ((reached == 0) | (reached == 1)).all() and set(np.unique(met.accept[~np.isnan(met.accept)])) <= {0.0, 1.0}


def test_a_tree_of_one_path_is_the_chain_and_a_wide_one_is_the_coverage() -> None:
    pair, values = toy_pair(), settings()
    met = met_by(pair, answered(PairEngine(pair), TOY, 30), "mtp", values)
    assert met.cover is not None
    chain = on_tree(met, RankTree.parse("[[0], [0, 0], [0, 0, 0]]"))
    np.testing.assert_allclose(DepthSums.of([chain]).survival, DepthSums.of([met]).survival[:3])
    wide = on_tree(met, RankTree.parse("3"))
    assert DepthSums.of([wide]).survival[0] == pytest.approx(met.cover[:, 0, 2].mean())
    both = on_tree(met, RankTree.parse("6,6"))  # the whole vocabulary
    assert DepthSums.of([both]).survival.tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("text", ["", "0", "4,x", "[[1, 0]]", "[[99]]", "11", "{}", "[3]"])
def test_trees_that_are_none_are_refused(text: str) -> None:
    with refused("--tree", text):
        RankTree.parse(text)


def test_a_row_is_changed_by_the_text_before_it() -> None:
    pair, values = tiny_pair(), settings(processor="multinomial 1 repetition=1.5 frequency=0.3")
    text, under = answered(PairEngine(pair), PROMPT), processor_of(pair, values["processor"])
    met = met_by(pair, text, "speculative", values)
    assert pair.drafter is not None
    for place in (0, 1, 9):
        ids = text.ids[: len(PROMPT) + place]
        changes = changes_of(under, PROMPT, pair.target.vocab_size, pair.target.device, pair.stop)
        assert changes is not None
        p, q = (
            rows_of(under)(changes.behind(PROMPT, ids[len(PROMPT) :], _row(runner, ids)))
            for runner in (pair.target, pair.drafter)
        )
        assert met.accept[place, 0] == pytest.approx(float(torch.minimum(p, q).sum()), abs=1e-5)


@pytest.mark.parametrize("processor", ["greedy", "nucleus 0.9 0.9"])
def test_the_target_accepts_itself_everywhere(processor: str) -> None:
    pair, values = tiny_pair(), settings(processor=processor)
    text = answered(PairEngine(pair), PROMPT)
    met = walk_along(pair, text, {"t": target_itself(pair)}, processor_of(pair, values["processor"]), 4)["t"]
    known = met.accept[~np.isnan(met.accept)]
    assert len(known) == 24 * 4 - 6 and known == pytest.approx(1.0, abs=1e-4)


class Leaking:
    """A walker that was shown the token which it should draft: an off-by-one of the kind that controls are for."""

    fed, layers = True, ()

    def begin(self, text: GivenText) -> None:
        pass

    def enter(self, met: Met, block: TargetRows) -> None:
        FedWalker(_Shown()).enter(met, block)

    def end(self, met: Met) -> None:
        pass


class _Shown:
    layers: tuple[int, ...] = ()
    by_tokens = True

    def begin(self, text: GivenText) -> None:
        pass

    def rows(self, block: TargetRows, depth: int) -> list[Tensor]:
        return [
            torch.nn.functional.one_hot(
                block.said(2, 1).new_tensor(block.text.answer[block.start + 1 : block.stop]), 261
            ).float()
        ]


def test_controls_hold_on_a_walk_that_is_right_and_not_on_one_that_is_off_by_one() -> None:
    pair, values = tiny_pair(), settings()
    engine = PairEngine(pair)
    text, under = answered(engine, PROMPT, 60), processor_of(pair, values["processor"])
    walkers: dict[str, Walker] = {"speculative": walker(engine, "speculative", values, 1), "leaking": Leaking()}
    found = {control.name: control for control in controls(pair, [text], walkers, under)}
    fixed = [control for name, control in found.items() if not name.startswith(("speculative", "leaking"))]
    assert len(fixed) == 3 and all(control.held for control in fixed)
    assert found["leaking, target shifted by one"].found.value > 0.9
    assert not found["leaking, target shifted by one"].held


def test_shifted_rows_are_those_of_the_place_after() -> None:
    pair, values = tiny_pair(), settings()
    text, under = answered(PairEngine(pair), PROMPT), processor_of(pair, values["processor"])
    plain = target_itself(pair)
    met = walk_along(pair, text, {"s": Shifted(plain)}, under, 1)["s"]
    again = [float(here == after) for here, after in zip(text.answer, text.answer[1:], strict=False)]
    assert met.accept[:-1, 0].tolist() == again


def test_what_cannot_be_walked_is_refused() -> None:
    pair, values = toy_pair(), settings()
    engine = PairEngine(pair)
    for method in ("target", "auto", "beam", "drafter"):
        with refused(method):
            walker(engine, method, values, 4)
    with pytest.raises(UserError):
        GivenText("short", (1,), (2, 3))
    with refused("long", 60):
        walk_along(pair, GivenText("long", TOY, (1,) * 56), {}, processor_of(pair, values["processor"]), 4)
    with refused("greedy"):
        met_by(tiny_pair(), GivenText("drawn", PROMPT, PROMPT), "extended", settings(processor="multinomial 1"))


def test_heads_draft_to_the_end_of_their_window() -> None:
    pair, values = toy_pair(window=48), settings()
    text = GivenText("w", TOY, tuple(greedy_run(PairEngine(pair), TOY, 44).output_ids))
    fast, slow = (met_by(pair, text, "mtp", values, one_by_one) for one_by_one in (False, True))
    assert fast.drafted.tolist() == slow.drafted.tolist()


def test_a_text_that_the_target_would_not_write_is_censored_where_it_leaves() -> None:
    pair, values = toy_pair(None), settings()
    own = answered(PairEngine(pair), TOY, 12)
    other = tuple((token + 1) % 6 if place == 5 else token for place, token in enumerate(own.answer))
    met = met_by(pair, replace(own, answer=other), "speculative", values)
    assert met.accept[5, 0] == 1.0 and np.isnan(met.follow[5, 0]) and met.reached()[5, 1] == 0.0
    assert DepthSums.of([met]).survival.tolist() == pytest.approx([1.0] * 4)

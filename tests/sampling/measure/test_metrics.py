import math
from dataclasses import fields
from typing import Any

import pytest

from sampling.measure.comparison import cost_ratio, speedup
from sampling.measure.metrics import RunMetrics
from utils.events import Acceptance, BeamRound, Finished, Hypothesis, Prefilled, Round, WholeAnswer

V = 100


def make_round(number: int, **values: Any) -> Round:
    drafts = values.pop("drafts", ())
    numbers = {"q": (0.5,) * len(drafts), "p": (0.5,) * len(drafts), "entropy": None, "vocab_size": V}
    times = {"draft_s": 0.010, "verify_s": 0.030, "other_s": 0.002}
    parts = {"gamma": 3, "parents": None, "path": (), "next_token": 9, "position": 0}
    return Round(**{**numbers, **times, **parts, "number": number, "drafts": drafts, **values})


def account(*events: Any) -> RunMetrics:
    metrics = RunMetrics()
    for event in events:
        metrics.add(event)
    return metrics


@pytest.fixture
def chain() -> RunMetrics:
    """Three rounds of three drafts: 1 accepted and 1 rejected; all accepted; the first rejected. 3 more tokens."""
    return account(
        Prefilled(prompt_tokens=7, prefill_s=0.2),
        make_round(0, drafts=(1, 2, 3), path=(0,), next_token=4, entropy=1.0),
        make_round(1, drafts=(5, 6, 7), path=(0, 1, 2), next_token=8, entropy=2.0, gamma=5),
        make_round(2, drafts=(5, 6, 7), path=(), next_token=9),
        Finished("length", 7),
    )


def test_before_any_event_nothing_is_counted() -> None:
    values = (getattr(RunMetrics(), field.name) for field in fields(RunMetrics))
    assert not any(value for value in values if isinstance(value, int | float))
    assert RunMetrics().tokens_per_s is None and RunMetrics().acceptance_rate is None


def whole(acceptance: Acceptance, tokens: int = 7) -> RunMetrics:
    """An engine's answer: its first two tokens after 1 s, the others after 3 s more."""
    return account(WholeAnswer(5, tuple(range(tokens)), "stop", 1.0, 4.0, 2, acceptance, 0.5))


def test_an_engines_answer_counts_what_the_engine_says() -> None:
    found = whole(Acceptance(3, 8, 4, (1, 1, 0, 1), ((1, 3), (3, 3), (0, 2))))
    assert (found.rounds, found.drafted, found.accepted, found.tested) == (3, 8, 4, 6)
    assert found.tokens_by_round == [2, 4, 1] and found.drafted_by_round == [3, 3, 2]
    assert found.accept_hist == [1, 1, 0, 1] and found.tested_at == [3, 2, 1]
    assert (found.prompt_tokens, found.new_tokens, found.queued_s, found.finish_reason) == (5, 7, 0.5, "stop")
    assert found.decode_s == pytest.approx(3.0) and found.tokens_per_s == pytest.approx(5 / 3)


def test_what_an_engine_does_not_say_is_none_of_anything() -> None:
    found = whole(Acceptance())
    assert (found.rounds, found.drafted, found.accepted, found.tested) == (0, 0, 0, 0)
    assert not found.tokens_by_round and not found.drafted_by_round


def test_a_round_of_an_engine_that_was_cut_has_the_tokens_that_are_left() -> None:
    assert whole(Acceptance(2, 6, 6, (0, 0, 0, 2), ((3, 3), (3, 3))), tokens=6).tokens_by_round == [4, 2]


def test_counts(chain: RunMetrics) -> None:
    assert chain.output_ids == [1, 4, 5, 6, 7, 8, 9] and chain.new_tokens == 7
    assert (chain.prompt_tokens, chain.finish_reason, chain.rounds) == (7, "length", 3)
    assert (chain.drafted, chain.tested, chain.accepted) == (9, 6, 4)
    assert chain.accept_hist == [1, 1, 0, 1]
    assert not chain.trees and account(make_round(0, drafts=(1, 2), parents=(-1, -1))).trees


def test_rates(chain: RunMetrics) -> None:
    assert chain.acceptance_rate == pytest.approx(4 / 9)
    assert chain.alpha == pytest.approx(4 / 6)
    assert chain.tokens_per_round == pytest.approx(7 / 3)
    assert chain.mean_gamma == pytest.approx(11 / 3)
    assert chain.mean_entropy == pytest.approx(1.5)
    assert chain.mean_normalised_entropy == pytest.approx(1.5 / math.log(V))


def test_acceptance_by_position(chain: RunMetrics) -> None:
    """Accepted at 1: rounds 0, 1; at 2 and 3: round 1. Tested at 1: all; at 2: rounds 0, 1; at 3: round 1."""
    assert chain.accepted_at == [2, 1, 1]
    assert chain.conditional_acceptance == pytest.approx([2 / 3, 1 / 2, 1 / 1])


def test_times(chain: RunMetrics) -> None:
    assert chain.decode_s == pytest.approx(3 * 0.042)
    assert chain.ttft_s == pytest.approx(0.2 + 0.042)
    assert chain.wall_s == pytest.approx(0.2 + 3 * 0.042)
    assert chain.tokens_per_s == pytest.approx(7 / 0.126)
    assert chain.e2e_tokens_per_s == pytest.approx(7 / 0.326)
    assert (chain.draft_ms, chain.verify_ms, chain.other_ms) == pytest.approx((10.0, 30.0, 2.0))


def test_a_stop_token_inside_the_drafts() -> None:
    """Two of three drafts are emitted and the second ends the text: nothing was rejected, no token follows."""
    metrics = account(make_round(0, drafts=(1, 2, 3), path=(0, 1), next_token=None))
    assert metrics.output_ids == [1, 2] and metrics.alpha == 1.0
    assert metrics.acceptance_rate == pytest.approx(2 / 3)
    assert metrics.conditional_acceptance == [1.0, 1.0]


def test_a_tree_counts_depths_not_rows() -> None:
    """Root children a, b; below b: c, d. a rejected, b accepted, c rejected, d accepted; then a bonus token."""
    tree = {"drafts": (1, 2, 3, 4), "parents": (-1, -1, 1, 1)}
    metrics = account(
        make_round(0, **tree, path=(1, 3), next_token=9),
        make_round(1, **tree, path=(1,), next_token=9),
        make_round(2, **tree, path=(0,), next_token=9),
    )
    assert metrics.output_ids == [2, 4, 9, 2, 9, 1, 9]
    assert (metrics.drafted, metrics.tested, metrics.accepted) == (12, 5, 4)
    assert metrics.tested == sum(metrics.tested_at) and metrics.alpha == pytest.approx(4 / 5)
    assert metrics.accept_hist == [0, 2, 1]
    assert metrics.accepted_at == [3, 1]
    assert metrics.conditional_acceptance == pytest.approx([3 / 3, 1 / 2])  # nothing hangs below a: not tested there


def test_speedup_and_cost(chain: RunMetrics) -> None:
    reference = account(*(make_round(i, gamma=0, draft_s=0.0, verify_s=0.04, other_s=0.01) for i in range(4)))
    assert reference.tokens_per_s == pytest.approx(20.0) and reference.tokens_per_round == 1.0
    assert speedup(chain, reference) == pytest.approx(7 / 0.126 / 20.0)
    assert cost_ratio(chain, reference) == pytest.approx(0.030 / 9 / 0.04)


def test_nothing_is_unknown_not_zero() -> None:
    empty, plain = RunMetrics(), account(make_round(0))
    assert empty.tokens_per_s is None and empty.tokens_per_round is None and empty.accept_hist == []
    assert plain.acceptance_rate is None and plain.alpha is None and plain.mean_entropy is None
    assert plain.conditional_acceptance == [] and plain.accepted_at == []
    assert speedup(plain, empty) is None and cost_ratio(plain, plain) is None


def test_a_search_has_times_and_a_score_and_no_rates() -> None:
    """Three rounds settle nothing, two tokens, one: the first token is there after the second round."""
    best = Hypothesis((4, 5, 6), -2.0, -1.0)
    rounds = [BeamRound(n, ids, (), (), 0.030, 0.002) for n, ids in enumerate(((), (4, 5), (6,)))]
    running = account(Prefilled(7, 0.2), *rounds[:2])
    assert running.output_ids == [4, 5] and running.score is None
    assert running.tokens_per_s is None and running.e2e_tokens_per_s is None and running.token_ms is None
    metrics = account(Prefilled(7, 0.2), *rounds, Finished("stop", 3, (best,)))
    assert (metrics.output_ids, metrics.rounds, metrics.finish_reason) == ([4, 5, 6], 3, "stop")
    assert metrics.ttft_s == pytest.approx(0.2 + 2 * 0.032)
    assert metrics.token_ms == pytest.approx(32.0) and metrics.score == -1.0
    assert metrics.tokens_per_round is None and metrics.mean_gamma is None and metrics.acceptance_rate is None
    assert metrics.accept_hist == [] and metrics.tokens_by_round == []
